"""Intervals and tests against numbers by hand and against slow second implementations."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.episode import End
from gem_ma.scores.comparison import difference_of
from gem_ma.scores.forked import Pair
from gem_ma.scores.groups import finite, interval_text
from gem_ma.scores.standings import standings
from gem_ma.scores.stats import (
    clustered_wilson,
    holm,
    mean_interval,
    paired,
    pass_at_k,
    pass_hat_k,
    pass_hat_k_interval,
    sign_flip,
    skewed_t,
    t_quantile,
    wilson,
)
from gem_ma.scores.studies import one_difference
from gem_ma.scores.together import Group
from gem_ma.scores.tournaments import gap_of, halves


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(17, 20, 0.640, 0.948), (20, 20, 0.839, 1.0), (0, 20, 0.0, 0.161), (1, 2, 0.095, 0.905)],
)
def test_wilson_gives_the_numbers_by_hand(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_bounds_are_the_rates_at_which_the_score_test_just_rejects(
    pair: tuple[int, int],
) -> None:
    successes, n = pair
    z = statistics.NormalDist().inv_cdf(0.975)
    for bound in wilson(successes, n):
        assert 0 <= bound <= 1
        if 0 < bound < 1:
            assert abs(successes / n - bound) == pytest.approx(
                z * math.sqrt(bound * (1 - bound) / n), rel=1e-6
            )


@pytest.mark.parametrize(
    ("p", "degrees", "value"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 4, 2.7764),
        (0.975, 10, 2.2281),
        (0.975, 30, 2.0423),
        (0.95, 5, 2.0150),
        (0.995, 19, 2.8609),
        (0.5, 3, 0.0),
    ],
)
def test_t_quantiles_equal_the_printed_table(p: float, degrees: int, value: float) -> None:
    assert t_quantile(p, degrees) == pytest.approx(value, abs=6e-5)
    assert t_quantile(1 - p, degrees) == pytest.approx(-value, abs=6e-5)


def test_without_skewness_the_interval_is_students_t() -> None:
    low, high = skewed_t([2.0, 4.0, 6.0, 8.0])  # mean 5, s = 2.582, t_3 = 3.1824
    assert (low, high) == (
        pytest.approx(5 - 3.1824 * 2.58199 / 2, abs=1e-3),
        pytest.approx(5 + 3.1824 * 2.58199 / 2, abs=1e-3),
    )


def slow_skewed(values: Sequence[float], quantile: float) -> tuple[float, float]:
    """Hall's interval by looking for the means whose transformed t is the quantile."""
    n, mean = len(values), statistics.fmean(values)
    spread = statistics.stdev(values)
    moments = [statistics.fmean([(x - mean) ** power for x in values]) for power in (2, 3)]
    g = moments[1] / moments[0] ** 1.5 * math.sqrt(n * (n - 1)) / (n - 2)

    def transformed(mu: float) -> float:
        t = (mean - mu) / spread
        return t + g * t * t / 3 + g * g * t**3 / 27 + g / (6 * n)

    def where(value: float) -> float:
        low, high = mean - 1e4 * spread, mean + 1e4 * spread
        for _ in range(200):  # the transformation falls with mu
            middle = (low + high) / 2
            low, high = (middle, high) if transformed(middle) > value else (low, middle)
        return low

    reach = quantile / math.sqrt(n)
    return where(reach), where(-reach)


@pytest.mark.parametrize("seed", range(6))
def test_a_skewed_interval_inverts_halls_transformation(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.expovariate(1) ** 2 * (-1) ** seed for _ in range(6 + 7 * seed)]
    quantile = t_quantile(0.975, len(values) - 1)
    assert skewed_t(values) == pytest.approx(slow_skewed(values, quantile), rel=1e-6)
    # in other units, and beside a task of as many values each, it is the same
    moved = skewed_t([1e-9 * value for value in values])
    assert moved == pytest.approx([1e-9 * bound for bound in skewed_t(values)])
    thrice = skewed_t([3 * value for value in values], [3] * len(values))
    assert thrice == pytest.approx(skewed_t(values))


def test_repeats_of_one_task_do_not_make_the_interval_narrow() -> None:
    tasks = [task for task in range(40) for _ in range(8)]
    values = [float(task % 2) for task in tasks]  # every repeat says the same
    naive = wilson(sum(values), len(values))
    for rate in (False, True):
        low, high = mean_interval(values, tasks, rate=rate)[1:3]
        assert high - low > 2 * (naive[1] - naive[0])


def test_unequal_repeats_weigh_as_they_weigh_in_the_mean() -> None:
    """One task has most of the tries, so the rest tell less than so many tasks would."""
    counts = [16] + [1] * 15
    heavy = clustered_wilson([8, *[1, 0] * 7, 1], counts)
    even = clustered_wilson([1, 1] * 8, [2, 2] * 8)
    assert heavy[1] - heavy[0] > 1.3 * (even[1] - even[0])
    # the mean lies inside, wherever the weight is
    for at in range(17):
        low, high = clustered_wilson([at, *[1] * 15], counts)
        assert low <= (at + 15) / 31 <= high


@pytest.mark.parametrize(("won", "tries"), [(0, 2), (2, 2), (1, 2)])
def test_where_all_tasks_agree_each_is_one_try(won: int, tries: int) -> None:
    values = [float(at < won) for _ in range(12) for at in range(tries)]
    names = [task for task in range(12) for _ in range(tries)]
    found = mean_interval(values, names, rate=True)
    assert found[1:3] == pytest.approx(wilson(12 * won / tries, 12))
    again = pass_hat_k_interval([won] * 12, [tries] * 12, 1)
    assert again[1:3] == pytest.approx(found[1:3])


def test_pass_1_has_the_interval_of_the_rate_it_is() -> None:
    won = [4, 4, 3, 0, 2, 4, 1, 4]
    values = [float(at < count) for count in won for at in range(4)]
    names = [task for task in range(8) for _ in range(4)]
    rate, first = mean_interval(values, names, rate=True), pass_hat_k_interval(won, [4] * 8, 1)
    assert first[1:3] == pytest.approx(rate[1:3])
    # one try each is Wilson's, as ever
    ones = [1, 0, 1, 1, 1]
    assert pass_hat_k_interval(ones, [1] * 5, 1)[1:3] == pytest.approx(wilson(4, 5))


@pytest.mark.parametrize("tasks", [1, 2, 5, 30])
@pytest.mark.parametrize("value", [0.0, 1e-9, -3.0, 1e200, 1e300])
def test_values_of_any_size_have_an_interval(tasks: int, value: float) -> None:
    low, high = mean_interval([value] * tasks)[1:3]
    is_seen = tasks > 2  # two equal values say nothing of others
    assert (low, high) == (pytest.approx((value, value)) if is_seen else (-math.inf, math.inf))
    if tasks > 1:
        low, high = mean_interval([*[value] * (tasks - 1), value / 2 + 1e-9])[1:3]
        assert low < high and math.isfinite(low) and math.isfinite(high)


def test_two_equal_values_have_no_interval_wherever_one_is_told() -> None:
    alone = mean_interval([0.7, 0.7])
    assert (alone.mean, alone.method) == (0.7, "two equal values")
    assert interval_text(alone._asdict()) == "0.700 [n/a]"
    # repeats tell nothing of a third task
    assert mean_interval([1.0, 3.0, 2.0, 2.0], ["a", "a", "b", "b"])[1:4] == alone[1:4]
    pair = paired([0.0, 1.0], [0.5, 1.5], [0, 1], family=3)
    assert (pair.low, pair.high, pair.wide_low, pair.wide_high) == (-math.inf, math.inf) * 2
    row = pair._asdict() | {"low": finite(pair.low), "high": finite(pair.high)}
    assert difference_of(row) == "+0.500 [two equal values: n/a]"
    assert math.isfinite(paired([0.0, 1.0], [0.5, 1.6], [0, 1]).low)
    # of a rate it is known how far others can be
    assert 0 < mean_interval([1.0, 1.0], rate=True).low < 1
    assert -1 <= paired([0.0, 0.0], [0.0, 0.0], [0, 1], rate=True).low < 0
    told = gap_of([(("test/0", 1), 0.5), (("test/0", 2), 0.5)], copied=False)
    assert told is not None and (told["low"], told["high"]) == (None, None)


def test_the_interval_that_fits_is_chosen() -> None:
    assert mean_interval([1, 0, 1, 1], rate=True).method == "wilson"
    assert mean_interval([1, 0, 1, 1], ["a", "b", "c", "d"], rate=True)[1:3] == wilson(3, 4)
    many = [i // 2 for i in range(60)]
    for values, names in (
        ([1, 0, 1, 1], ["a", "a", "b", "b"]),
        ([float(i % 3 == 0) for i in range(60)], many),
    ):
        assert mean_interval(values, names, rate=True).method == "wilson over tasks"
        assert mean_interval(values, names).method == "t over tasks"
    assert mean_interval([0.5, 0.25, 1.0] * 10, rate=True).method == "t over tasks"
    equal = mean_interval([1.0] * 60, many, rate=True)
    assert (equal.method, equal[1:3]) == ("wilson over tasks", wilson(30, 30))
    half = mean_interval([1, 0] * 25, [i // 2 for i in range(50)], rate=True)
    assert (half.method, half[1:3]) == ("wilson over tasks", wilson(12.5, 25))
    assert mean_interval([0.5, 1.5, 2.5]).method == "t over tasks"
    assert mean_interval([3.0, 3.0, 3.0])[:3] == (3.0, 3.0, 3.0)
    assert mean_interval([2.0, 3.0], ["a", "a"])[:3] == (2.5, -math.inf, math.inf)
    assert mean_interval([1, 0], ["a", "a"], rate=True)[:3] == (0.5, 0.0, 1.0)


PAYOFFS = st.lists(st.sampled_from((0.0, 1.0)), min_size=1, max_size=60)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(PAYOFFS, st.integers(1, 3), st.sampled_from((6.0, -3.0, 0.25)), st.sampled_from((0.0, 2.0)))
def test_payoffs_that_happen_to_be_0_or_1_are_no_rate(
    values: list[float], repeats: int, scale: float, shift: float
) -> None:
    tasks = [at // repeats for at in range(len(values))]
    plain, moved = (
        mean_interval(values, tasks),
        mean_interval([scale * value + shift for value in values], tasks),
    )
    assert plain.method == moved.method and "wilson" not in plain.method
    # a mean in other units has its interval in other units
    bounds = sorted(scale * bound + shift for bound in plain[1:3])
    assert list(moved[1:3]) == [
        bound if math.isinf(bound) else pytest.approx(bound, abs=1e-9) for bound in bounds
    ]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 3))
def test_the_interval_of_a_rate_stays_between_0_and_1(values: list[float], repeats: int) -> None:
    estimate = mean_interval(values, [at // repeats for at in range(len(values))], rate=True)
    assert (
        -1e-12 <= estimate.low <= estimate.mean + 1e-9
        and estimate.mean - 1e-9 <= estimate.high <= 1 + 1e-12
    )


@pytest.mark.parametrize("values", [[1.5], [-0.1, 1.0], [0.0, 1.0, 6.0]])
def test_what_lies_outside_of_0_to_1_is_refused_as_a_rate(values: list[float]) -> None:
    with pytest.raises(ValueError, match="a rate lies between 0 and 1"):
        mean_interval(values, rate=True)


@pytest.mark.parametrize("tasks", [8, 40])
@pytest.mark.parametrize("family", [1, 3, 63, 10_000])
@pytest.mark.parametrize("rate", [False, True])
def test_the_wide_interval_is_the_one_of_its_level_and_never_the_narrower(
    tasks: int, family: int, rate: bool
) -> None:
    rng = random.Random(tasks)
    a, b = ([rng.random() for _ in range(tasks)] for _ in range(2))
    names = range(tasks)
    one = paired(a, b, names, resamples=9, family=family, rate=rate)
    alone = paired(a, b, names, level=1 - 0.05 / family, resamples=9, rate=rate)
    assert (one.wide_low, one.wide_high) == pytest.approx((alone.low, alone.high))
    assert (one.low, one.high, one.p) == paired(a, b, names, resamples=9, rate=rate)[1:4]
    assert one.wide_low <= one.low and one.high <= one.wide_high


@pytest.mark.parametrize(
    ("tasks", "tries", "rate", "rho"),
    [(10, 4, 0.8, 0.3), (25, 4, 0.9, 0.3), (50, 4, 0.95, 0.3), (30, 8, 0.5, 0.6)],
)
def test_the_95_percent_interval_of_a_rate_covers_that_often_with_repeats(
    tasks: int, tries: int, rate: float, rho: float
) -> None:
    rng, hits, naive_hits, trials = np.random.default_rng(5), 0, 0, 250
    share = (1 - rho) / rho
    for _ in range(trials):
        rates = rng.beta(rate * share, (1 - rate) * share, tasks)
        won = rng.binomial(tries, rates)
        low, high = clustered_wilson(won, [tries] * tasks)
        hits += low <= rate <= high
        low, high = wilson(int(won.sum()), tasks * tries)
        naive_hits += low <= rate <= high
    assert hits / trials > 0.94
    assert naive_hits / trials < 0.92  # what the interval over all episodes would have claimed


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng: np.exp(rng.normal(0, 1, 25)), math.exp(0.5)),
        (lambda rng: rng.exponential(1, 25), 1.0),
        (lambda rng: rng.exponential(1, 25) * (rng.random(25) < 0.2), 0.2),
        (lambda rng: -10.0 * (rng.random(25) < 0.2), -2.0),
    ],
)
def test_the_interval_of_skewed_returns_covers(draw: Any, mean: float) -> None:
    rng, hits, trials = np.random.default_rng(6), 0, 400
    for _ in range(trials):
        low, high = mean_interval(draw(rng))[1:3]
        hits += low <= mean <= high
    assert hits / trials > 0.9


def test_no_difference_in_a_few_tasks_is_no_proof_that_there_is_none() -> None:
    won = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    for tasks in (6, 60):
        same = paired(won * (tasks // 6), won * (tasks // 6), range(tasks), rate=True)
        assert same.difference == 0.0 and -same.low == pytest.approx(same.high)
        assert 1.5 / tasks < same.high < 4.5 / tasks and same.p == 1.0
    # returns have no bounds that tell how large a difference may be
    assert paired(won, won, range(6))[1:3] == (0.0, 0.0)


def test_pairing_removes_the_spread_between_tasks() -> None:
    rng = np.random.default_rng(1)
    level = rng.normal(0, 5, 40)
    names = np.repeat(np.arange(40), 2).tolist()
    a = np.repeat(level, 2) + rng.normal(0, 0.2, 80)
    b = a + 0.3 + rng.normal(0, 0.2, 80)
    result = paired(a, b, names)
    assert (
        result.low < 0.3 < result.high and result.low > 0 and result.p < 0.01 and result.tasks == 40
    )
    assert (
        result.high - result.low < 0.2 < mean_interval(b, names).high - mean_interval(b, names).low
    )


@pytest.mark.parametrize("tasks", [3, 19, 40])
@pytest.mark.parametrize("family", [1, 30, 10_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_interval_of_a_difference_of_rates_stays_where_one_can_lie(
    tasks: int, family: int, sign: int
) -> None:
    zeros, ones = np.zeros(tasks), np.ones(tasks)
    ones[:1] = 0  # all but one differ as far as they can
    a, b = (zeros, ones) if sign > 0 else (ones, zeros)
    free, bound = (paired(a, b, range(tasks), family=family, rate=rate) for rate in (False, True))
    for low, high in ((1, 2), (6, 7)):
        assert -1 <= bound[low] <= bound[high] <= 1
    # nothing else changes
    assert bound[0] == free[0] and bound.p == free.p
    if tasks == 3:
        assert max(abs(free.low), abs(free.high)) > 1  # Student's t reaches beyond


def test_paired_weighs_tasks_alike_and_is_antisymmetric() -> None:
    a, b, names = [0, 0, 0, 0], [1, 1, 1, -1], ["x", "x", "x", "y"]
    there, back = paired(a, b, names), paired(b, a, names)
    assert there.difference == 0.0  # mean of +1 (task x) and -1 (task y), not 0.5 over episodes
    assert (back.low, back.high) == (
        pytest.approx(-there.high),
        pytest.approx(-there.low),
    ) and back.p == there.p


def test_what_rounding_leaves_is_no_difference() -> None:
    """The same payments in another order: .1 + .2 + .3 is not .3 + .2 + .1 in floats."""
    first, second = [0.1 + 0.2 + 0.3] * 8, [0.3 + 0.2 + 0.1] * 8
    assert first != second
    found = paired(first, second, range(8))
    assert (found.difference, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)
    assert Group.of([0, 1], [first[0], second[0]]).spread == 0.0
    play = ("test/0", 7, 0)
    assert one_difference([((play,), first[0], second[0])])["difference"] == 0.0
    assert halves({play: first[0]}, {play: second[0]}) == [(play[:2], 0.0)]
    done, other = (
        SimpleNamespace(returns=lambda paid=paid: {"a": paid[0]}, end=End.TERMINATED)
        for paid in (first, second)
    )
    assert Pair(done, other).apart("a") == 0.0  # type: ignore[arg-type]
    seats = {"x": ("left", "right"), "o": ("left", "right")}
    table = np.array([[1.0, 2.0], [2.0, 3.0]])[:, :, None] * 0.1 + np.arange(5) / 3
    told = standings(seats, [table, table + 1e-16 * np.arange(5)], {}, copied=False)
    assert [told["cross_play"]["gap"][key] for key in ("mean", "low", "high")] == [0.0] * 3
    assert told["seats"]["mean"] == 0.0


def test_sign_flip_agrees_with_all_flips_by_hand() -> None:
    d = [0.5, 1.0, -0.25, 0.75, 0.6, 0.9, 0.1]
    observed = abs(sum(d))
    exact = (
        sum(
            abs(sum(s * x for s, x in zip(signs, d, strict=True))) >= observed - 1e-12
            for signs in itertools.product((1, -1), repeat=7)
        )
        / 2**7
    )
    assert sign_flip(d, resamples=40_000) == pytest.approx(exact, abs=0.005)
    assert sign_flip([1.0] * 12, resamples=999) >= 1 / 1000  # never 0
    assert sign_flip([1.0] * 30, resamples=999) == 1 / 1000


def test_sign_flip_rejects_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    ps = [sign_flip(rng.normal(0, 1, 15), resamples=499) for _ in range(300)]
    assert 0.02 < np.mean(np.array(ps) <= 0.05) < 0.09


def slow_holm(p: Sequence[float]) -> list[float]:
    """The definition: adjusted p_i is the largest (m - j + 1) p_(j) over all p_(j) <= p_i."""
    ordered = sorted(p)
    return [min(1.0, max((len(p) - j) * q for j, q in enumerate(ordered) if q <= one)) for one in p]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=8, unique=True))
def test_holm_equals_its_definition(p: list[float]) -> None:
    assert holm(p) == pytest.approx(slow_holm(p))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@pytest.mark.parametrize(("c", "n"), [(c, n) for n in range(1, 6) for c in range(n + 1)])
def test_pass_k_equals_counting_all_choices_of_k_tries(c: int, n: int) -> None:
    tries = [True] * c + [False] * (n - c)
    for k in range(1, n + 1):
        chosen = list(itertools.combinations(tries, k))
        assert pass_hat_k([c], [n], k) == pytest.approx(sum(map(all, chosen)) / len(chosen))
        assert pass_at_k([c], [n], k) == pytest.approx(sum(map(any, chosen)) / len(chosen))


def test_pass_k_is_the_mean_over_tasks() -> None:
    assert pass_hat_k([3, 4, 0], [4, 4, 4], 2) == pytest.approx((0.5 + 1 + 0) / 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pass_hat_k([1], [4], 5), "k = 5 with 4 tries"),
        (lambda: pass_at_k([1, 1], [4, 2], 3), "k = 3 with 2 tries"),
        (lambda: pass_hat_k([1], [4], 0), "k must lie"),
        (lambda: pass_hat_k([5], [4], 1), "got 5 of 4"),
        (lambda: pass_hat_k([], [], 1), "at least one"),
        (lambda: wilson(3, 2), "got 3 of 2"),
        (lambda: wilson(0, 0), "n > 0"),
        (lambda: wilson(1, 2, level=95), "as 0.95"),
        (lambda: skewed_t([1.0]), "at least 2"),
        (lambda: mean_interval([]), "at least one"),
        (lambda: mean_interval([1.0, float("nan")]), "not finite"),
        (lambda: mean_interval([1.0], ["a", "b"]), "got 2 tasks and 1 values"),
        (lambda: paired([1.0], [1.0, 2.0], ["a"]), "got 1 and 2"),
        (lambda: holm([1.5]), "between 0 and 1"),
        (lambda: sign_flip([]), "at least one"),
    ],
)
def test_input_that_makes_no_sense_is_refused_with_its_numbers(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
