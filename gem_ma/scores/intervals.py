"""Intervals of a mean and of a rate over tasks that may have been tried several times. Pure numpy;
it knows numbers, not episodes. Axes: T tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

# Student's t distribution: its quantiles, without a library of statistics.
# By the continued fraction of the incomplete beta function; equal to the printed tables in all
# their digits (tests/scores/test_stats.py).

TINY = 1e-300  # in place of a zero that the fraction would divide by
SAME = 1e-15  # the fraction has settled: rounding changes more than its next term
SETTLED = 1e-12  # of the quantile
STEPS = 100  # at most; a step about doubles t far out in a heavy tail, and then there are few left


def t_quantile(p: float, degrees: float) -> float:
    """The value that Student's t with this many degrees of freedom stays below with probability p.

    >>> round(t_quantile(0.975, 10), 4)
    2.2281
    """
    if not 0 < p < 1 or not degrees > 0:
        raise ValueError(
            f"a quantile needs 0 < p < 1 and degrees > 0; got p = {p}, degrees = {degrees}"
        )
    if p < 0.5:
        return -t_quantile(1 - p, degrees)
    # Newton's way from the normal's quantile, which lies below: the distribution is concave above
    # 0, so no step goes too far
    norm = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(norm) / math.sqrt(degrees * math.pi)
    t = NormalDist().inv_cdf(p)
    for _ in range(STEPS):
        density = scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        step = (p - _t_below(t, degrees)) / density
        t += step
        if abs(step) <= SETTLED * max(1.0, t):
            break
    return t


def _t_below(t: float, degrees: float) -> float:
    """P(T <= t) for t >= 0 = 1 - I_x(degrees / 2, 1 / 2) / 2 with x = degrees / (degrees + t^2)."""
    return 1 - 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised I_x(a, b) by its continued fraction (modified Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # the fraction settles fast on this side of the mean alone
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_scale + a * math.log(x) + b * math.log1p(-x)) / a
    c = 1.0
    d = 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        # the even and the odd coefficient of Numerical Recipes' `betacf`
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or TINY)
            c = (1 + term / c) or TINY
            fraction *= c * d
        if abs(c * d - 1) < SAME:
            break
    return front * fraction


EVENTS = 3  # degrees of freedom for each task that holds the rarer outcome

Floats = npt.NDArray[np.float64]


def wilson(successes: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate of independent yes/no outcomes.

    centre = (p + z^2/2n) / (1 + z^2/n), half width = z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n).
    Raises ValueError unless 0 <= successes <= n, n > 0.

    >>> [round(bound, 3) for bound in wilson(17, 20)]
    [0.64, 0.948]
    >>> [round(bound, 3) for bound in wilson(0, 20)]
    [0.0, 0.161]
    """
    if not n > 0 or not 0 <= successes <= n:
        raise ValueError(f"a rate needs 0 <= successes <= n and n > 0; got {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + fraction(level) / 2)
    return _score_bounds(successes / n, n, z)


def _score_bounds(rate: float, n: float, z: float) -> tuple[float, float]:
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # rounding may leave the end a hair inside or outside
    return (0.0 if rate == 0 else centre - half), (1.0 if rate == 1 else centre + half)


def clustered_wilson(
    sums: Sequence[float] | Floats, tries: Sequence[float] | Floats, level: float = 0.95
) -> tuple[float, float]:
    """Wilson's interval of a rate whose tasks [T], T >= 2, were tried several times: `sums`
    successes of `tries`.

    n is the number of tries divided by the design effect: the jackknife variance over tasks against
    that of independent tries, between 1 and m, the tries of a task (weighted by size). Few tasks
    with the rarer outcome show too little of how it clusters, so one more task is counted whose m
    tries came out that way: deff = (deff e + m^2) / (e + m) with e rarer outcomes. Student's t
    stands in for z, with as many degrees of freedom as such tasks allow.

    >>> [round(bound, 3) for bound in clustered_wilson([4, 4, 3, 4, 0, 4, 4, 4], [4] * 8)]
    [0.39, 0.979]
    """
    won = vector("sums", sums)
    counts = vector("tries", tries)
    total = float(counts.sum())
    rate = float(won.sum()) / total
    rest = counts - won
    size = float((counts * counts).sum()) / total
    rare = won if rate <= 0.5 else rest
    events = float(rare.sum())
    if events > 0:
        variance = _variance(_residuals(won, counts), total)
        effect = variance * total / (rate * (1 - rate))
        effect = (effect * events + size * size) / (events + size)
        holders = events * events / float((rare * rare).sum())
    else:
        effect = size
        holders = 1.0
    degrees = max(1.0, min(total / size - 1, EVENTS * holders))
    n = total / min(max(effect, 1.0), size)
    return _score_bounds(rate, n, t_quantile(0.5 + fraction(level) / 2, degrees))


def skewed_t(
    sums: Sequence[float] | Floats,
    counts: Sequence[float] | Floats | None = None,
    level: float = 0.95,
) -> tuple[float, float]:
    """Student's t interval of a mean, corrected for the skewness of the tasks [T], T >= 2: their
    `sums` over `counts` values each (one, where not given).

    The cubic transformation of P. Hall (1992, J. R. Statist. Soc. B 54) of t = (mean - mu) / s,
    turned back: u = 3 ((1 + g (t - g / 6T))^(1/3) - 1) / g, with the skewness g of the tasks.
    Without skewness it is Student's t.

    >>> [round(bound, 3) for bound in skewed_t([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    >>> [round(bound, 1) for bound in skewed_t([0.0] * 9 + [10.0])]
    [-0.4, 7.4]
    """
    array = vector("sums", sums)
    units = len(array)
    if units < 2:
        raise ValueError(f"a t interval needs at least 2 values; got {units}")
    each = np.ones(units) if counts is None else vector("counts", counts)
    total = float(each.sum())
    largest = float(np.abs(array / each).max())
    mean = float(array.sum()) / total
    if not largest:
        return mean, mean
    # by the largest value, whose square may overflow
    beyond = _residuals(array / largest, each)
    error = math.sqrt(_variance(beyond, total))
    # of equal values rounding leaves a hair
    if error <= 1e-14:
        return mean, mean
    degrees = max(1.0, total * total / float((each * each).sum()) - 1)
    reach = t_quantile(0.5 + fraction(level) / 2, degrees) / math.sqrt(units)
    scale = error * math.sqrt(units) * largest
    skewness = _skewness(beyond)

    def back(t: float) -> float:
        if abs(skewness) < 1e-6:
            return t
        inside = 1 + skewness * (t - skewness / (6 * units))
        return 3 * (math.copysign(abs(inside) ** (1 / 3), inside) - 1) / skewness

    return mean - back(reach) * scale, mean - back(-reach) * scale


# -- inside --------------------------------------------------------------------------------------


def vector(name: str, values: Sequence[float] | Floats) -> Floats:
    """Numbers as an array [N]. Raises ValueError for another shape, or one that is not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} is one number per entry, [N]; got shape {list(array.shape)}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} holds {int((~np.isfinite(array)).sum())} numbers that are not finite"
        )
    return array


def fraction(level: float) -> float:
    """A level, such as 0.95. Raises ValueError outside of 0..1."""
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, such as 0.95; got {level}")
    return level


def _residuals(sums: Floats, counts: Floats) -> Floats:
    """What each task [T] is beyond its share, as the mean without it shows: a task that weighs much
    draws the mean to itself."""
    total = counts.sum()
    units = len(counts)
    left = (sums - counts * (sums.sum() / total)) / (1 - counts / total)
    return np.asarray(left * (1 - 1 / units))


def _variance(residuals: Floats, total: float) -> float:
    """The variance of the mean that tasks with these residuals [T] have."""
    units = len(residuals)
    return float((residuals * residuals).sum()) * units / (units - 1) / (total * total)


def _skewness(residuals: Floats) -> float:
    """The sample skewness, corrected for the number of tasks as is usual."""
    units = len(residuals)
    correction = math.sqrt(units * (units - 1)) / (units - 2) if units > 2 else 1.0
    return correction * float((residuals**3).mean()) / float((residuals**2).mean()) ** 1.5
