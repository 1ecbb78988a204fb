"""What a server makes of the losses of a batch: their sum, or which mean. The Tinker API says
a sum over tokens; some servers divide by tokens or rows, and Adam hides it. So it is measured.

A step of AdamW with a huge eps and no moments is plain gradient descent, so how far it moves one
token tells by what its gradient was divided. Three batches ask: the token in a short row, in a row
twice as long, and beside a long row that learns nothing. A causal model gives all three the same
gradient; the divisor of each is that of `divisor`. Numbers only; the server is behind `Rise`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import ConfigError

WAYS = ("sum", "rows", "row_tokens", "row_tokens_and_rows", "tokens")
# nats that the token must move: above the rounding of bfloat16 logits, below where it bends
LEAST_MOVE = 0.03
MOST_MOVE = 0.6
FASTER = 4.0
TRIES = 14
FIRST_RATE = 1.0 / 64
NEAR = 0.12  # of a factor, as a natural logarithm; the ways lie 0.4 apart and more
CLIPPED = 0.2  # of a move; a step whose norm is bound to next to nothing moves less
PLAIN_EPS = 1e6  # beside it the root of the second moment is nothing


@dataclass(frozen=True, slots=True)
class Scale:
    """By what the server divides (`way`, of `WAYS`), and whether it clips gradients by their
    norm."""

    way: str = "sum"
    clips: bool = True

    def factors(self, lengths: Sequence[int]) -> NDArray[np.float64]:
        """Times which rows [R] of so many predicted tokens are sent, so that their pulls add up."""
        return np.array([divisor(self.way, length, lengths) for length in lengths], np.float64)


def divisor(way: str, length: int, lengths: Sequence[int]) -> float:
    """By what a server divides the gradient of a row of `length` among rows of `lengths`.

    >>> [divisor(way, 4, (4, 8)) for way in WAYS]
    [1.0, 2.0, 4.0, 8.0, 12.0]
    """
    rows = float(len(lengths))
    of = {
        "sum": 1.0,
        "rows": rows,
        "row_tokens": float(length),
        "row_tokens_and_rows": length * rows,
        "tokens": float(sum(lengths)),
    }
    return of[way]


# (lengths of the rows, of which the first learns; rate; largest norm, 0 = any) -> nats that the
# token of the first row rose by, with its sign
Rise = Callable[[Sequence[int], float, float], float]


def measured(rise: Rise, length: int, where: str) -> Scale:
    """The scale of a server, by six steps or a few more on weights that nobody needs afterwards.
    `length`: predicted tokens of the short row. Raises ConfigError where no way fits."""
    short = (length,)
    long = (2 * length,)
    beside = (length, 2 * length)
    rate = _rate(rise, short, where)
    # there and back in turn, so that the weights stay where they were, and so does the gradient
    back = rise(short, -rate, 0.0)
    longer = rise(long, rate, 0.0)
    crowded = rise(beside, -rate, 0.0)
    forth = rise(short, rate, 0.0)
    unit = (abs(back) + abs(forth)) / 2
    ratios = np.abs([longer, crowded]) / unit
    if not np.isfinite(ratios).all() or not (ratios > 0).all():
        raise ConfigError(f"{where}: a plain step of the server moves nothing; it cannot be used")
    errors = {way: np.abs(np.log(ratios) - np.log(_expected(way, length))).max() for way in WAYS}
    best = min(errors, key=lambda way: errors[way])
    if errors[best] > NEAR:
        raise ConfigError(
            f"{where}: it is not known by what the server divides the losses of a batch: a token"
            f" moves {ratios[0]:.3g} times as far in a row twice as long, and {ratios[1]:.3g} times"
            " beside such a row"
        )
    clipped = rise(short, -rate, 1e-6)
    return Scale(best, bool(abs(clipped) < CLIPPED * unit))


def _expected(way: str, length: int) -> NDArray[np.float64]:
    """How far the token moves in the other two batches, as a share of its move in the first."""
    first = divisor(way, length, (length,))
    others = [
        divisor(way, 2 * length, (2 * length,)),
        divisor(way, length, (length, 2 * length)),
    ]
    return first / np.array(others)


def _rate(rise: Rise, short: Sequence[int], where: str) -> float:
    """A rate at which the token moves enough and not too far."""
    rate = FIRST_RATE
    for _ in range(TRIES):
        moved = abs(rise(short, rate, 0.0))
        if moved >= LEAST_MOVE:
            # a gradient that grew on the way would be measured where it bends
            return rate if moved <= MOST_MOVE else rate * LEAST_MOVE / moved
        rate *= FASTER
    raise ConfigError(f"{where}: plain steps of the server do not move what they should")
