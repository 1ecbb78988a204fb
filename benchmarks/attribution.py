"""Values of turns beside the exact ones, in Kuhn poker, a referential game and a sum over a ring of
five: how far off, how often inside their intervals; and what common random numbers save.

    python benchmarks/attribution.py [--turns 500] [--pairs 64] [--first 10000] [--world network]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma import attribution
from tests.scores.exact_values import KUHN, KUHN_PLAYERS, WORLDS, Known, Repeated, forks_of

REPEATS = 200  # of one estimate
TURNS = 6  # that are repeated


def beside_the_exact(name: str, given: attribution.Given, most: int, pairs: int, first: int) -> str:
    """A row of the table."""
    world = WORLDS[name]
    scores = []
    inside = []
    short = turns = 0
    taken = 0.0
    for seed in itertools.count(first):
        if turns >= most:
            break
        forks = forks_of(world.scenario, world.players, seed)
        start = time.process_time()
        values = asyncio.run(attribution.turn_values(forks, plays=pairs, given=given))
        taken += time.process_time() - start
        turns += len(values)
        for place, (_, _, value) in enumerate(values):
            short += value.pairs < pairs
            if value.error and value.mean is not None:
                true = world.exact(forks.episode, place, given)
                scores.append((value.mean - true) / value.error)
                inside.append(value.low <= true <= value.high)
    near = sum(abs(score) < 3 for score in scores)
    return (
        f"| {name} | {given} | {turns} | {turns - len(scores)} | {short} | {near} of {len(scores)}"
        f" | {statistics.fmean(scores):+.3f} | {statistics.pstdev(scores):.3f}"
        f" | {statistics.fmean(inside):.3f} | {1e3 * taken / turns:.1f} |"
    )


def repeated(world: Known, given: attribution.Given, first: int, pairs: int = 8) -> float:
    """How far the mean of many estimates lies from the truth, in its standard errors: the farthest
    of some turns that are not certain."""
    found: list[float] = []
    for seed in itertools.count(first):
        base = forks_of(world.scenario, world.players, seed)
        forks = Repeated(world.scenario, base.episode, behaviours=world.players)
        values: list[list[float]] = [[] for _ in base.episode.turns]
        for number in range(REPEATS):
            Repeated.number = number
            made = asyncio.run(attribution.turn_values(forks, plays=pairs, given=given))
            for place, one in enumerate(made):
                values[place].append(one.value.mean or 0.0)
        for place, means in enumerate(values):
            if error := statistics.stdev(means) / math.sqrt(REPEATS):
                true = world.exact(base.episode, place, given)
                found.append(abs(statistics.fmean(means) - true) / error)
        if len(found) >= TURNS:
            return max(found)
    raise AssertionError


async def _of_turn(forks: Repeated, step: int, agent: str, pairs: int) -> tuple[float, float]:
    """One estimate on common random numbers, and one by plays that share none."""
    values = await attribution.turn_values(forks, plays=pairs, agent=agent)
    value = next(value for value in values if value.step == step).value
    apart = []
    for pair in range(pairs):
        kept = await forks.fork(step, forks.seed("x", pair), kept=[agent], behaviours={})
        drawn = await forks.fork(step, forks.seed("y", pair), kept=[], behaviours={})
        apart.append(kept.returns()[agent] - drawn.returns()[agent])
    return value.mean or 0.0, statistics.fmean(apart)


def saved(plays: int, first: int, pairs: int = 8) -> str:
    """The variance that common random numbers leave."""
    left = []
    whole = []
    for seed in range(first, first + plays):
        base = forks_of(KUHN, KUHN_PLAYERS, seed)
        forks = Repeated(KUHN, base.episode, behaviours=KUHN_PLAYERS)
        for turn in base.episode.turns:
            pairs_of = []
            for number in range(REPEATS // 3):
                Repeated.number = number
                pairs_of.append(asyncio.run(_of_turn(forks, turn.step, turn.agent, pairs)))
            together, apart = zip(*pairs_of, strict=True)
            left.append(statistics.variance(together))
            whole.append(statistics.variance(apart))
    ratios = [one / other for one, other in zip(left, whole, strict=True) if other]
    return (
        f"common random numbers leave {statistics.fmean(left) / statistics.fmean(whole):.3f} of the"
        f" variance ({len(left)} turns, median {statistics.median(ratios):.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--first", type=int, default=10_000)
    parser.add_argument("--world", choices=tuple(WORLDS))
    chosen = parser.parse_args()
    worlds = [chosen.world] if chosen.world else list(WORLDS)
    heads = "world | given | turns | without spread | short | within 3 errors | mean z | sd z"
    print(f"| {heads} | in 95 % | CPU ms a turn |")
    print("| --- | --- |" + " ---: |" * 8)
    cases = list(itertools.product(worlds, ("state", "view")))
    for name, given in cases:
        row = beside_the_exact(name, given, chosen.turns, chosen.pairs, chosen.first)
        print(row, flush=True)
    for name, given in cases:
        farthest = repeated(WORLDS[name], given, chosen.first)
        print(f"{name}, {given}: {REPEATS} repeats of 8 pairs, farthest {farthest:.2f} errors")
    if "kuhn_poker" in worlds:
        print(saved(max(1, chosen.turns // 50), chosen.first))


if __name__ == "__main__":
    main()
