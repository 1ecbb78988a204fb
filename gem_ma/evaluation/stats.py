"""How sure are we: intervals and tests for scores of tasks that were played several times. Pure
numpy; it knows numbers, not episodes.

Axes: N episodes, T tasks, B resamples, n tries of one task, k of them. Repeats of one task are not
independent, so *tasks* are resampled, each with all of its episodes. Which interval `mean_interval`
takes:
- a rate, yes/no values, one episode per task: Wilson
- a rate, all task means equal: Wilson with n = tasks (a bootstrap would have no width)
- fewer than 20 tasks: Student's t over the task means; of a rate within 0..1
- else: cluster bootstrap over tasks
Whether values are a rate is declared by the caller: payoffs that happen to be 0 or 1 are no rate.
Random draws come from a fixed seed: the same episodes give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gem_ma.evaluation.repeated import flipped_sums, repeats, resampled_means
from gem_ma.evaluation.student_t import t_quantile

RESAMPLES = 10_000
FEW_TASKS = 20  # below, percentile intervals cover less than they say
TAIL = 5  # resamples that a bootstrap quantile needs beyond it
_BLOCK = 1 << 21  # resampled indices held at once

Floats = npt.NDArray[np.float64]


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
    rate, z = successes / n, NormalDist().inv_cdf(0.5 + _level(level) / 2)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # rounding may leave the end a hair inside or outside
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def t_interval(values: Sequence[float] | Floats, level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean of independent values [T], T >= 2: mean +- t_{T-1} s /
    sqrt(T).

    >>> [round(bound, 3) for bound in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    array = _vector("values", values)
    if len(array) < 2:
        raise ValueError(f"a t interval needs at least 2 values; got {len(array)}")
    # ddof 1: the spread is estimated from the same values, which is what Student's t allows for
    error = float(array.std(ddof=1)) / math.sqrt(len(array))
    half = t_quantile(0.5 + _level(level) / 2, len(array) - 1) * error
    return float(array.mean()) - half, float(array.mean()) + half


def cluster_bootstrap(
    values: Sequence[float] | Floats,
    tasks: Sequence[Any],
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of the mean of `values` [N] when tasks [N] are drawn again, each with
    all of its values."""
    array = _vector("values", values)
    sums, counts = _by_task(array, tasks)
    # a ratio of sums: a task with more episodes weighs more here, as it does in the mean itself
    means = np.concatenate(
        [sums[draw].sum(1) / counts[draw].sum(1) for draw in _draws(len(sums), resamples, seed)]
    )
    return _quantiles(means, level)


def mean_interval(
    values: Sequence[float] | Floats,
    tasks: Sequence[Any] | None = None,
    level: float = 0.95,
    seed: int = 0,
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
    array = _vector("values", values)
    if not len(array):
        raise ValueError("a mean needs at least one value")
    if rate and not ((array >= 0) & (array <= 1)).all():
        raise ValueError(
            f"a rate lies between 0 and 1; got {float(array.min())} to {float(array.max())}"
        )
    mean, named = float(array.mean()), range(len(array)) if tasks is None else tasks
    sums, counts = _by_task(array, named)
    means, units = sums / counts, len(sums)
    # Wilson wants independent yes/no trials, which repeats of a task are not
    if rate and (counts == 1).all() and np.isin(array, (0.0, 1.0)).all():
        return Estimate(mean, *wilson(float(array.sum()), units, level), "wilson", units)
    if rate and units > 1 and np.ptp(means) < 1e-12:
        return Estimate(mean, *wilson(mean * units, units, level), "wilson over tasks", units)
    if units == 1:
        return Estimate(mean, *((0.0, 1.0) if rate else (-math.inf, math.inf)), "one task", 1)
    # a bootstrap over few tasks is too narrow: it cannot draw what it has not seen
    if units < FEW_TASKS:
        low, high = t_interval(means, level)
        # of the tasks: with unequal repeats it differs from the mean over episodes
        middle = float(means.mean())
        low, high = mean + low - middle, mean + high - middle
        return Estimate(
            mean,
            max(low, 0.0) if rate else low,
            min(high, 1.0) if rate else high,
            "t over tasks",
            units,
        )
    return Estimate(
        mean, *cluster_bootstrap(array, named, level, seed=seed), "bootstrap over tasks", units
    )


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

    Per task d = mean b - mean a; the interval is the bootstrap of the mean of d over tasks
    (Student's t below 20 tasks), p by sign flips of d. `family`: how many comparisons are read
    together; the wide interval leaves (1 - level) / family outside, by Student's t where fewer than
    5 resamples are in a tail. `rate`: values in 0..1, so both intervals stay within -1..1.
    """
    first, second = _vector("a", a), _vector("b", b)
    if len(first) != len(second):
        raise ValueError(f"paired values come in pairs; got {len(first)} and {len(second)}")
    if not len(first):
        raise ValueError("a comparison needs at least one pair")
    if family < 1:
        raise ValueError(f"a family has at least one comparison; got {family}")
    sums, counts = _by_task(second - first, tasks)
    # one number per task: its repeats are not independent
    d = sums / counts
    mean, p, wide = float(d.mean()), sign_flip(d, resamples, seed), 1 - (1 - _level(level)) / family
    if len(d) == 1:
        return Comparison(mean, -math.inf, math.inf, p, "one task", 1)
    reach = 1.0 if rate else math.inf  # what is cut off holds no value that could be true

    def within(low: float, high: float) -> tuple[float, float]:
        return max(low, -reach), min(high, reach)

    if len(d) < FEW_TASKS:
        alone, together = within(*t_interval(d, level)), within(*t_interval(d, wide))
        return Comparison(mean, *alone, p, "t over tasks", len(d), *together)
    if repeats(d):
        means = resampled_means(d, resamples, seed)
    else:
        means = np.concatenate([d[draw].mean(1) for draw in _draws(len(d), resamples, seed)])
    # far out in the tail a percentile hangs on a handful of resamples
    together = (
        _quantiles(means, wide) if resamples * (1 - wide) / 2 >= TAIL else t_interval(d, wide)
    )
    alone = within(*_quantiles(means, level))
    return Comparison(mean, *alone, p, "bootstrap over tasks", len(d), *within(*together))


def sign_flip(
    differences: Sequence[float] | Floats, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Two-sided p of "the differences [T] are symmetric around 0": (1 + flips at least as extreme)
    / (1 + flips).

    >>> sign_flip([0.0, 0.0, 0.0])
    1.0
    """
    d = _vector("differences", differences)
    if not len(d):
        raise ValueError("a test needs at least one difference")
    observed, rng, extreme, left = abs(float(d.sum())), np.random.default_rng(seed), 0, resamples
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
    adjusted, running = [0.0] * len(p), 0.0
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
    successes: Sequence[int], tries: Sequence[int], k: int, level: float = 0.95, seed: int = 0
) -> Estimate:
    """pass^k with its interval over tasks, inside [0, 1]; tasks are resampled with all of their
    tries. Raises ValueError where k > n.

    Below 20 tasks it is Student's t; where all tasks agree, or each is worth 0 or 1, Wilson with n
    = tasks.

    >>> pass_hat_k_interval([2, 1, 0], [2, 2, 2], 1).method
    't over tasks'
    """
    mean = pass_hat_k(successes, tries, k)
    values = [pass_hat_k([c], [n], k) for c, n in zip(successes, tries, strict=True)]
    # no spread to resample: the bootstrap would give an interval without width
    if max(values) - min(values) < 1e-12:
        return Estimate(
            mean, *wilson(mean * len(values), len(values), level), "wilson over tasks", len(values)
        )
    _, low, high, method, units = mean_interval(values, None, level, seed, rate=True)
    return Estimate(mean, low, high, method, units)


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


def _vector(name: str, values: Sequence[float] | Floats) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} is one number per entry, [N]; got shape {list(array.shape)}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} holds {int((~np.isfinite(array)).sum())} numbers that are not finite"
        )
    return array


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, such as 0.95; got {level}")
    return level


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


def _draws(units: int, resamples: int, seed: int) -> Iterator[npt.NDArray[np.intp]]:
    # in blocks: ten thousand resamples of a thousand tasks are 80 MB
    rng, rows = np.random.default_rng(seed), max(1, _BLOCK // units)
    for start in range(0, resamples, rows):
        yield rng.integers(0, units, (min(rows, resamples - start), units))


def _quantiles(means: Floats, level: float) -> tuple[float, float]:
    tail = (1 - _level(level)) / 2  # as much is left out above as below
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)
