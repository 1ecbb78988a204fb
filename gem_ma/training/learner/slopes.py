"""Numbers that carry their derivative along, so that a loss written for tensors gives its gradient
in numpy too.

A loss is a function of log-probabilities in the few operations that `Slope` and a torch tensor
share. Torch differentiates it backwards. Here each value carries its derivative by the one variable
that it depends on (forward mode), so no torch is needed and no derivative is written by hand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Slope:
    """Values [n], each with its derivative [n] by a variable of its own.

    Names and meaning of the methods are those of a tensor, as far as losses need them.

    >>> x = Slope.of(np.array([0.0, 1.0]))
    >>> ((x * 2).exp() - 1).slope.round(3).tolist()
    [2.0, 14.778]
    """

    __array_ufunc__ = None  # numpy leaves `array * slope` to `__rmul__`
    __slots__ = ("slope", "value")

    def __init__(self, value: Array, slope: Array) -> None:
        self.value = value
        self.slope = slope

    @classmethod
    def of(cls, value: Array) -> Slope:
        """The variable itself."""
        return cls(value, np.ones_like(value))

    def _with(self, other: Any) -> tuple[Array, Array]:
        """Value and slope of another operand; a plain number or array is constant."""
        if isinstance(other, Slope):
            return other.value, other.slope
        constant = np.asarray(other, np.float64)
        return constant, np.zeros_like(constant)

    def __add__(self, other: Any) -> Slope:
        value, slope = self._with(other)
        return Slope(self.value + value, self.slope + slope)

    def __sub__(self, other: Any) -> Slope:
        value, slope = self._with(other)
        return Slope(self.value - value, self.slope - slope)

    def __rsub__(self, other: Any) -> Slope:
        return -self + other

    def __mul__(self, other: Any) -> Slope:
        # apart from the product rule: it would add 0 * inf, which is not a number
        if not isinstance(other, Slope):
            return Slope(self.value * other, self.slope * other)
        return Slope(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __truediv__(self, other: Any) -> Slope:
        if not isinstance(other, Slope):
            return Slope(self.value / other, self.slope / other)
        slope = (self.slope - self.value / other.value * other.slope) / other.value
        return Slope(self.value / other.value, slope)

    def __neg__(self) -> Slope:
        return Slope(-self.value, -self.slope)

    __radd__ = __add__
    __rmul__ = __mul__

    # comparisons count clipped tokens; they have no slope
    def __lt__(self, other: Any) -> NDArray[np.bool_]:
        return np.asarray(self.value < self._with(other)[0])

    def __gt__(self, other: Any) -> NDArray[np.bool_]:
        return np.asarray(self.value > self._with(other)[0])

    def exp(self) -> Slope:
        power = np.exp(self.value)
        return Slope(power, self.slope * power)

    def expm1(self) -> Slope:
        # exp(x) - 1 would lose all digits of a small x, and `k3` could turn negative
        return Slope(np.expm1(self.value), self.slope * np.exp(self.value))

    def softplus(self) -> Slope:
        """log(1 + exp(x)); tensors have it as a function alone."""
        # by logaddexp: exp(x) itself overflows for x above 709
        return Slope(
            np.logaddexp(0, self.value), self.slope * np.exp(-np.logaddexp(0, -self.value))
        )

    def clamp(self, min: float = -np.inf, max: float = np.inf) -> Slope:
        """Outside of the bounds nothing changes any more; on them it does, as for a tensor."""
        inside = (self.value >= min) & (self.value <= max)
        return Slope(np.clip(self.value, min, max), np.where(inside, self.slope, 0.0))

    def minimum(self, other: Any) -> Slope:
        # of equals this one's slope; torch takes half of each, and where a loss clips they agree
        value, slope = self._with(other)
        return Slope(np.minimum(self.value, value), np.where(value < self.value, slope, self.slope))

    def maximum(self, other: Any) -> Slope:
        value, slope = self._with(other)
        return Slope(np.maximum(self.value, value), np.where(value > self.value, slope, self.slope))

    def detach(self) -> Slope:
        """The same values as constants."""
        return Slope(self.value, np.zeros_like(self.value))


class Pull(NamedTuple):
    """What a step does to each log-probability: d loss / d logprob [n]; the loss; and which tokens
    are clipped [n]."""

    slope: NDArray[np.float64]
    loss: float
    clipped: NDArray[np.bool_]
