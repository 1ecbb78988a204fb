"""How sure are we: intervals and tests for scores of tasks that were played several times. Pure
numpy; it knows numbers, not episodes.

Axes: N episodes, T tasks, n tries of one task, k of them. Repeats of one task are not independent,
so tasks are the units. Which interval `mean_interval` takes:
- a rate, yes/no values, one episode per task: Wilson
- a rate, all task means equal: Wilson with n = tasks
- a rate, yes/no values, several episodes of a task: Wilson with the effective number of episodes
  (`clustered_wilson`)
- else: Student's t over tasks, corrected for skewness (`skewed_t`); of a rate within 0..1; of two
  tasks with equal means none
Whether values are a rate is declared by the caller: payoffs of 0 and 1 are not a rate.
`benchmarks/coverage.py` measures how often they cover, and how wide they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

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


# Flipping the signs of thousands of values of which only a few differ, such as the -1, 0 and 1 of a
# success: what counts is how often each is flipped. Axes: T tasks, B resamples.

MANY = 1_000  # tasks; below, drawing them one by one costs little
FEW = 100  # different values; with more of them nothing is gained


def repeats(values: Floats) -> bool:
    """Whether the function below is worth it for these values [T]."""
    return len(values) > MANY and len(np.unique(values)) <= FEW


def flipped_sums(values: Floats, resamples: int, seed: int) -> Floats:
    """The sums [B] of the values [T] with random signs."""
    sizes, counts = np.unique(np.abs(values), return_counts=True)
    # of c equal sizes k are added and c - k taken away
    added = np.random.default_rng(seed).binomial(counts, 0.5, (resamples, len(counts)))
    return np.asarray((2 * added - counts) @ sizes)


RESAMPLES = 10_000
# a spread of 0 with one degree of freedom says nothing: no interval, as of one
TWO_EQUAL = "two equal values"
_BLOCK = 1 << 21  # signs held at once


class Estimate(NamedTuple):
    """A mean with its interval; `method` names how the interval was made, `tasks` is the number of
    independent units."""

    mean: float
    low: float
    high: float
    method: str
    tasks: int


class Comparison(NamedTuple):
    """Mean difference B - A over paired tasks, its interval and the p value of a sign-flip
    permutation test.

    `wide_low`, `wide_high`: the interval that is right for all comparisons of a family at once
    (Bonferroni); of a single one the same interval.
    """

    difference: float
    low: float
    high: float
    p: float
    method: str
    tasks: int
    wide_low: float = -math.inf
    wide_high: float = math.inf


# -- intervals -----------------------------------------------------------------------------------


def mean_interval(
    values: Sequence[float] | Floats,
    tasks: Sequence[Any] | None = None,
    level: float = 0.95,
    *,
    rate: bool = False,
) -> Estimate:
    """The mean of `values` [N] with the interval that fits (rules in the module's docstring).
    `tasks` [N]: absent = all values independent.

    `rate`: every value lies in 0..1 by what it is. A single value or a single task has no spread to
    learn from: the interval is (-inf, inf), of a rate (0, 1). Raises ValueError where a rate has a
    value outside of 0..1.

    >>> mean_interval([1.0]).high, mean_interval([1.0], rate=True).high
    (inf, 1.0)
    """
    array = vector("values", values)
    if not len(array):
        raise ValueError("a mean needs at least one value")
    if rate and not ((array >= 0) & (array <= 1)).all():
        raise ValueError(
            f"a rate lies between 0 and 1; got {float(array.min())} to {float(array.max())}"
        )
    mean = float(array.mean())
    named = range(len(array)) if tasks is None else tasks
    sums, counts = _by_task(array, named)
    means = sums / counts
    units = len(sums)
    outcomes = rate and bool(np.isin(array, (0.0, 1.0)).all())
    # Wilson wants independent yes/no trials, which repeats of a task are not
    if outcomes and (counts == 1).all():
        return Estimate(mean, *wilson(float(array.sum()), units, level), "wilson", units)
    if rate and units > 1 and np.ptp(means) < 1e-12:
        return Estimate(mean, *wilson(mean * units, units, level), "wilson over tasks", units)
    if units == 1:
        return Estimate(mean, *((0.0, 1.0) if rate else (-math.inf, math.inf)), "one task", 1)
    if outcomes:
        return Estimate(mean, *clustered_wilson(sums, counts, level), "wilson over tasks", units)
    low, high = skewed_t(sums, counts, level)
    if units == 2 and low == high:
        return Estimate(mean, -math.inf, math.inf, TWO_EQUAL, 2)
    bounds = (max(low, 0.0), min(high, 1.0)) if rate else (low, high)
    return Estimate(mean, *bounds, "t over tasks", units)


# -- comparing two runs --------------------------------------------------------------------------


def paired(
    a: Sequence[float] | Floats,
    b: Sequence[float] | Floats,
    tasks: Sequence[Any],
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    family: int = 1,
    *,
    rate: bool = False,
) -> Comparison:
    """B against A on the same plays: a, b and tasks are [N], entry i of a and b is the same (task,
    seed).

    Per task d = mean b - mean a; the interval is that of the mean of d over tasks (`skewed_t`), p
    by sign flips of d. `family`: how many comparisons are read together; the wide interval leaves
    (1 - level) / family outside. `rate`: values in 0..1, so both intervals stay within -1..1.
    """
    first = vector("a", a)
    second = vector("b", b)
    if len(first) != len(second):
        raise ValueError(f"paired values come in pairs; got {len(first)} and {len(second)}")
    if not len(first):
        raise ValueError("a comparison needs at least one pair")
    if family < 1:
        raise ValueError(f"a family has at least one comparison; got {family}")
    sums, counts = _by_task(apart(first, second), tasks)
    # one number per task: its repeats are not independent
    d = sums / counts
    mean = float(d.mean())
    p = sign_flip(d, resamples, seed)
    wide = 1 - (1 - fraction(level)) / family
    if len(d) == 1:
        return Comparison(mean, -math.inf, math.inf, p, "one task", 1)
    reach = 1.0 if rate else math.inf  # what is cut off holds no value that could be true

    def within(low: float, high: float) -> tuple[float, float]:
        return max(low, -reach), min(high, reach)

    shown = _with_one_of_each(d) if rate else d
    alone = within(*skewed_t(shown, None, level))
    if len(shown) == 2 and alone[0] == alone[1]:
        return Comparison(mean, -math.inf, math.inf, p, TWO_EQUAL, 2)
    together = within(*skewed_t(shown, None, wide))
    return Comparison(mean, *alone, p, "t over tasks", len(d), *together)


def apart(first: Floats, second: Floats) -> Floats:
    """Second less first, 0 where that is rounding (`gem_ma.scores.together.is_tie`)."""
    return np.where(np.isclose(first, second, rtol=1e-9, atol=1e-12), 0.0, second - first)


def _with_one_of_each(d: Floats) -> Floats:
    """The differences [T] with two more tasks, one won by each side by as much as others are: a few
    tasks without a difference do not prove that there is none (D. Bonett and R. Price, 2012)."""
    seen = d[d != 0]
    reach = math.sqrt(float((seen * seen).mean())) if len(seen) else 1.0
    return np.concatenate([d, (reach, -reach)])


def sign_flip(
    differences: Sequence[float] | Floats, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Two-sided p of "the differences [T] are symmetric around 0": (1 + flips at least as extreme)
    / (1 + flips).

    >>> sign_flip([0.0, 0.0, 0.0])
    1.0
    """
    d = vector("differences", differences)
    if not len(d):
        raise ValueError("a test needs at least one difference")
    observed = abs(float(d.sum()))
    rng = np.random.default_rng(seed)
    extreme = 0
    left = resamples
    counted = repeats(d)
    while left:
        rows = left if counted else min(left, max(1, _BLOCK // len(d)))
        if counted:
            sums = np.abs(flipped_sums(d, rows, seed))
        else:
            sums = np.abs((rng.integers(0, 2, (rows, len(d)), dtype=np.int8) * 2.0 - 1.0) @ d)
        # the guard is for sums that differ by rounding: a tie counts as extreme
        extreme += int((sums >= observed - 1e-12 * max(1.0, observed)).sum())
        left -= rows
    # the observed signs are one of the flips, so p is never 0
    return (1 + extreme) / (1 + resamples)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given: of m tests the j-th smallest counts (m - j + 1)
    times, never below a smaller one.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    if any(not 0 <= value <= 1 for value in p):
        raise ValueError(f"p values lie between 0 and 1; got {list(p)}")
    # the smallest p first: it pays for all m tests
    adjusted = [0.0] * len(p)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = running
    return adjusted


# -- several tries of one task -------------------------------------------------------------------


def pass_hat_k(successes: Sequence[int], tries: Sequence[int], k: int) -> float:
    """pass^k, the chance that k tries of a task all succeed: mean over tasks [T] of C(c, k) / C(n,
    k). Raises ValueError where k > n.

    >>> [pass_hat_k([3], [4], k) for k in (1, 2, 3, 4)]
    [0.75, 0.5, 0.25, 0.0]
    """
    # unbiased for every n >= k, unlike (c / n) ** k
    return _over_tasks(successes, tries, k, lambda c, n: math.comb(c, k) / math.comb(n, k))


def pass_at_k(successes: Sequence[int], tries: Sequence[int], k: int) -> float:
    """pass@k, the chance that one of k tries succeeds: mean over tasks [T] of 1 - C(n - c, k) /
    C(n, k). Raises ValueError where k > n.

    >>> [pass_at_k([1], [4], k) for k in (1, 2, 3, 4)]
    [0.25, 0.5, 0.75, 1.0]
    """
    return _over_tasks(successes, tries, k, lambda c, n: 1 - math.comb(n - c, k) / math.comb(n, k))


def best_of_k(returns: Sequence[Sequence[float]], k: int) -> float:
    """The mean over tasks of what the best of k tries is paid, in expectation over all draws of k
    of the returns of a task. Raises ValueError where k > n.

    >>> [best_of_k([[0.0, 0.0, 0.0, 1.0]], k) for k in (1, 2, 4)]
    [0.25, 0.5, 1.0]
    """

    def expected(paid: Sequence[float]) -> float:
        draws = math.comb(len(paid), k)
        # the i-th smallest is the best of a draw whose others are all smaller
        return math.fsum(math.comb(i, k - 1) / draws * x for i, x in enumerate(sorted(paid)))

    if not returns or not all(1 <= k <= len(paid) for paid in returns):
        least = min(map(len, returns), default=0)
        raise ValueError(
            f"k lies between 1 and the number of tries; got k = {k} with {least} tries"
        )
    return math.fsum(map(expected, returns)) / len(returns)


def pass_hat_k_interval(
    successes: Sequence[int], tries: Sequence[int], k: int, level: float = 0.95
) -> Estimate:
    """pass^k with its interval over tasks, inside [0, 1], by the rule for rates: of k = 1 it is
    that of the rate, where all tasks were tried as often. Raises ValueError where k > n.

    >>> pass_hat_k_interval([2, 1, 0], [2, 2, 2], 1).method
    'wilson over tasks'
    """
    mean = pass_hat_k(successes, tries, k)
    values = [pass_hat_k([c], [n], k) for c, n in zip(successes, tries, strict=True)]
    units = len(values)
    # no spread to learn from
    if max(values) - min(values) < 1e-12:
        return Estimate(mean, *wilson(mean * units, units, level), "wilson over tasks", units)
    size = sum(tries) / units
    if size == 1:
        return Estimate(mean, *wilson(sum(values), units, level), "wilson", units)
    bounds = clustered_wilson([value * size for value in values], [size] * units, level)
    return Estimate(mean, *bounds, "wilson over tasks", units)


def _over_tasks(successes: Sequence[int], tries: Sequence[int], k: int, chance: Any) -> float:
    if len(successes) != len(tries) or not len(tries):
        raise ValueError(
            f"successes and tries are one number per task, at least one; got {len(successes)} and"
            f" {len(tries)}"
        )
    for c, n in zip(successes, tries, strict=True):
        if not 0 <= c <= n:
            raise ValueError(f"a task has 0 <= successes <= tries; got {c} of {n}")
        if not 1 <= k <= n:
            raise ValueError(
                f"k must lie between 1 and the number of tries; got k = {k} with {n} tries"
            )
    return sum(chance(int(c), int(n)) for c, n in zip(successes, tries, strict=True)) / len(tries)


# -- inside --------------------------------------------------------------------------------------


def _by_task(values: Floats, tasks: Sequence[Any]) -> tuple[Floats, Floats]:
    """Sum and number of values per task, [T] each, in order of first appearance."""
    if len(tasks) != len(values):
        raise ValueError(f"one task per value; got {len(tasks)} tasks and {len(values)} values")
    # by first appearance: numpy would sort, and task names need no order
    numbers: dict[Any, int] = {}
    index = np.array([numbers.setdefault(task, len(numbers)) for task in tasks], dtype=np.intp)
    return np.bincount(index, values, len(numbers)).astype(np.float64), np.bincount(
        index, minlength=len(numbers)
    ).astype(np.float64)
