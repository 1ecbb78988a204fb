"""Intervals of a mean and of a rate over tasks that may have been tried several times. Pure numpy;
it knows numbers, not episodes. Axes: T tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from gem_ma.scores.student_t import t_quantile

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
    # by the largest value, whose square may be no number any more
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
