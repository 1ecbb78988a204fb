"""How often the 95 % intervals of a score hold the truth, and how wide they are.

    python benchmarks/coverage.py [--draws 4000] [--seed 0]

Rates: tasks drawn from a distribution of given mean and correlation within a task (a beta, or two
points of which one is 0 or 1), each tried several times; the interval of the score beside Wilson's
over all tries and Student's t over tasks. Returns: one value a task, of skewed distributions,
beside Student's t. Several agents: numbers of one play each, of 8 or 64 agents with luck of their
own and luck that all share, two thirds of them in one team. `cover` has two standard errors of the simulation added in the last column,
which the bar is held against: .94 for rates, .90 for returns.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from gem_ma.scores.stats import (
    mean_interval,
    paired,
    pass_hat_k,
    pass_hat_k_interval,
    t_quantile,
    wilson,
)

UNEQUAL = (1, 2, 4, 8, 16)
# tasks, tries of each, rate, correlation within a task, distribution of the tasks' rates
RATES: tuple[tuple[int, int | tuple[int, ...], float, float, str], ...] = (
    (10, 4, 0.8, 0.3, "beta"),
    (25, 4, 0.9, 0.3, "beta"),
    (50, 4, 0.95, 0.3, "beta"),
    (5, 16, 0.98, 0.9, "one of two"),
    (10, UNEQUAL, 0.5, 0.6, "beta"),
    (25, 2, 0.02, 0.9, "one of two"),
    (50, 16, 0.95, 0.6, "one of two"),
    (100, 4, 0.5, 0.0, "beta"),
    (100, UNEQUAL, 0.05, 0.3, "beta"),
    (200, 16, 0.02, 0.6, "one of two"),
    (200, 4, 0.8, 0.1, "beta"),
    (20, 8, 0.3, 0.6, "beta"),
    (15, 3, 0.97, 0.1, "beta"),
    (40, UNEQUAL, 0.9, 0.9, "one of two"),
)
Draw = Callable[[np.random.Generator, int], Any]
# name -> its draws, and its mean
RETURNS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(0, 1, n), 0.0),
    "exponential": (lambda rng, n: rng.exponential(1, n), 1.0),
    "lognormal, sigma 1": (lambda rng, n: np.exp(rng.normal(0, 1, n)), math.exp(0.5)),
    "lognormal, sigma 1.5": (lambda rng, n: np.exp(1.5 * rng.normal(0, 1, n)), math.exp(1.125)),
    "minus lognormal": (lambda rng, n: -np.exp(rng.normal(0, 1, n)), -math.exp(0.5)),
    "80 % zeros, else exponential": (
        lambda rng, n: rng.exponential(1, n) * (rng.random(n) < 0.2),
        0.2,
    ),
    "80 % zeros, else lognormal": (
        lambda rng, n: np.exp(rng.normal(0, 1, n)) * (rng.random(n) < 0.2),
        0.2 * math.exp(0.5),
    ),
    "10 with probability .2, else 0": (lambda rng, n: 10.0 * (rng.random(n) < 0.2), 2.0),
    "10 with probability .1, else 0": (lambda rng, n: 10.0 * (rng.random(n) < 0.1), 1.0),
}


def rates_of(rng: np.random.Generator, tasks: int, rate: float, rho: float, kind: str) -> Any:
    """The rates of tasks."""
    if not rho:
        return np.full(tasks, rate)
    if kind == "beta":
        share = (1 - rho) / rho
        return rng.beta(rate * share, (1 - rate) * share, tasks)
    # most tasks are sure: they always succeed where the rate is high, never where it is low
    if rate > 0.5:
        low = rate * (1 - rho)
        return np.where(rng.random(tasks) < (1 - rate) / (1 - low), low, 1.0)
    high = rate + rho * (1 - rate)
    return np.where(rng.random(tasks) < rate / high, high, 0.0)


class Tally:
    """How often an interval held the truth, and its mean width."""

    def __init__(self, truth: float) -> None:
        self.truth, self.hits, self.width, self.count = truth, 0, 0.0, 0

    def add(self, low: float, high: float) -> None:
        self.hits += low - 1e-12 <= self.truth <= high + 1e-12
        self.width += high - low
        self.count += 1

    @property
    def cover(self) -> float:
        return self.hits / self.count

    @property
    def bound(self) -> float:
        """The coverage and two standard errors of its simulation."""
        return self.cover + 2 * math.sqrt(self.cover * (1 - self.cover) / self.count)

    def __str__(self) -> str:
        return f"{self.cover:.3f} {self.width / self.count:.3f}"


def plain_t(sums: Sequence[float], counts: Sequence[float]) -> tuple[float, float]:
    means = np.asarray(sums) / np.asarray(counts)
    half = t_quantile(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
    return float(means.mean() - half), float(means.mean() + half)


def rate_row(setting: Any, draws: int, seed: int) -> tuple[Tally, Tally, Tally]:
    tasks, tries, rate, rho, kind = setting
    rng, counts = np.random.default_rng(seed), np.resize(np.atleast_1d(tries), tasks)
    names = np.repeat(np.arange(tasks), counts).tolist()
    ours, naive, student = (Tally(rate) for _ in range(3))
    for _ in range(draws):
        won = rng.binomial(counts, rates_of(rng, tasks, rate, rho, kind))
        values = np.repeat(np.tile((1.0, 0.0), tasks), np.column_stack((won, counts - won)).ravel())
        ours.add(*mean_interval(values, names, rate=True)[1:3])
        naive.add(*wilson(float(won.sum()), int(counts.sum())))
        student.add(*plain_t(won, counts))
    return ours, naive, student


def return_row(draw: Draw, truth: float, tasks: int, draws: int, seed: int) -> tuple[Tally, Tally]:
    rng, ours, student = np.random.default_rng(seed), Tally(truth), Tally(truth)
    for _ in range(draws):
        values = draw(rng, tasks)
        ours.add(*mean_interval(values)[1:3])
        student.add(*plain_t(values, np.ones(tasks)))
    return ours, student


def pass_row(tasks: int, tries: int, k: int, draws: int, seed: int) -> Tally:
    """pass^k of tasks whose rates are 1 less a square: most are near 1."""
    rng = np.random.default_rng(seed)
    # the mean of (1 - u^2)^k for u in 0..1
    truth = math.prod(2 * i / (2 * i + 1) for i in range(1, k + 1))
    tally = Tally(truth)
    for _ in range(draws):
        won = rng.binomial(tries, 1 - rng.random(tasks) ** 2).tolist()
        tally.add(*pass_hat_k_interval(won, [tries] * tasks, k)[1:3])
        assert pass_hat_k(won, [tries] * tasks, k) <= 1
    return tally


def difference_row(tasks: int, tries: int, a: float, b: float, draws: int, seed: int) -> Tally:
    """A difference of two rates on the same tasks, whose own rates spread around them."""
    rng, tally = np.random.default_rng(seed), Tally(b - a)
    names = np.repeat(np.arange(tasks), tries).tolist()
    for _ in range(draws):
        # the reach keeps both within 0..1, so the difference of the means stays
        reach = min(a, b, 1 - a, 1 - b)
        shift = rng.uniform(-reach, reach, tasks)
        first, second = (
            (rng.random((tasks, tries)) < (rate + shift)[:, None]).astype(float).ravel()
            for rate in (a, b)
        )
        tally.add(*paired(first, second, names, resamples=1, rate=True)[1:3])
    return tally


LARGE = 40_000  # plays that the truth of a number of several agents is taken from


def crowd(rng: np.random.Generator, agents: int, plays: int) -> dict[str, Any]:
    """Numbers of plays [plays], as a summary has them; all agents share the luck of a play."""
    shared = rng.exponential(1, (plays, 1))
    paid = shared + rng.exponential(1, (plays, agents)) * (1 + shared)
    large = 2 * agents // 3
    sides = paid[:, :large], paid[:, large:]
    apart = np.sort(paid, 1) @ (2 * np.arange(agents) + 1 - agents)
    return {
        "return": sides[0].mean(1),
        "spread": sides[0].std(1),
        "welfare": paid.sum(1),
        "equality": 1 - apart / (agents * paid.sum(1)),
        "won": (sides[0].mean(1) > sides[1].mean(1)).astype(float),
    }


def crowd_rows(agents: int, plays: int, draws: int, seed: int) -> dict[str, Tally]:
    rng = np.random.default_rng(seed)
    truth = {name: float(of.mean()) for name, of in crowd(rng, agents, LARGE).items()}
    tallies = {name: Tally(value) for name, value in truth.items()}
    for _ in range(draws):
        for name, values in crowd(rng, agents, plays).items():
            rate = name in ("equality", "won")
            tallies[name].add(*mean_interval(values, rate=rate)[1:3])
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    draws, seed = chosen.draws, chosen.seed
    short = []

    def line(name: str, bar: float, ours: Tally, *others: Tally) -> None:
        cells = " | ".join(map(str, (ours, *others)))
        print(f"| {name} | {cells} | {ours.bound:.3f} |", flush=True)
        short.extend([name] if ours.bound < bar else [])

    print(
        "| tasks x tries, rate, correlation | cover, width | Wilson over tries | t over tasks | + 2 s.e. |"
    )
    print("|---|---|---|---|---|")
    for setting in RATES:
        tasks, tries, rate, rho, kind = setting
        each = tries if isinstance(tries, int) else f"{tries[0]}..{tries[-1]}"
        name = f"{tasks} x {each}, {rate}, {rho} {kind if rho else ''}".rstrip()
        line(name, 0.94, *rate_row(setting, draws, seed))
    for tasks, tries, k in ((25, 4, 1), (25, 4, 4), (50, 4, 2), (10, 8, 4)):
        line(f"pass^{k}, {tasks} x {tries}", 0.94, pass_row(tasks, tries, k, draws, seed))
    for at in ((25, 1, 0.5, 0.6), (50, 1, 0.95, 0.95), (20, 4, 0.8, 0.9), (10, 4, 0.3, 0.3)):
        tasks, tries, a, b = at
        name = f"difference, {tasks} x {tries}, {a} and {b}"
        line(name, 0.94, difference_row(tasks, tries, a, b, draws, seed))
    print("\n| returns, tasks | cover, width | t over tasks | + 2 s.e. |\n|---|---|---|---|")
    for name, (draw, truth) in RETURNS.items():
        for tasks in (10, 25, 100):
            bar = 0.90 if tasks == 25 else 0.0
            line(f"{name}, {tasks}", bar, *return_row(draw, truth, tasks, draws, seed))
    print("\n| several agents, plays | cover, width | + 2 s.e. |\n|---|---|---|")
    for agents, plays in ((8, 10), (8, 25), (8, 100), (64, 25)):
        for name, tally in crowd_rows(agents, plays, draws, seed).items():
            # so few yes or no: Wilson's interval holds .92 to .97, by how near a step the rate is
            bar = 0.92 if name == "won" else 0.90 if plays == 25 else 0.0
            line(f"{name} of {agents}, {plays}", bar, tally)
    print(f"\nbelow its bar: {', '.join(short) or 'none'}")
    sys.exit(bool(short))


if __name__ == "__main__":
    main()
