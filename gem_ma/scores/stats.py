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
from typing import Any, NamedTuple

import numpy as np

from gem_ma.scores.intervals import (
    Floats,
    clustered_wilson,
    fraction,
    skewed_t,
    vector,
    wilson,
)

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
    sums, counts = _by_task(second - first, tasks)
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
