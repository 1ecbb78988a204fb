"""Values of turns of Kuhn poker beside the exact ones: how far off, how often inside their
intervals, and what common random numbers save.

    python benchmarks/attribution.py [--plays 200] [--pairs 64] [--first 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma import attribution
from tests.scores.test_attribution import KUHN, KUHN_PLAYERS, Repeated, exact, forks_of

REPEATS = 60


def beside_the_exact(given: attribution.Given, plays: int, pairs: int, first: int) -> str:
    """A row of the table."""
    scores = []
    inside = []
    turns = 0
    for seed in range(first, first + plays):
        forks = forks_of(KUHN, KUHN_PLAYERS, seed)
        values = asyncio.run(attribution.turn_values(forks, plays=pairs, given=given))
        turns += len(values)
        for step, _, value in values:
            if value.error and value.mean is not None:
                true = exact(forks.episode, step, given)
                scores.append((value.mean - true) / value.error)
                inside.append(value.low <= true <= value.high)
    near = sum(abs(score) < 3 for score in scores)
    return (
        f"| {given} | {turns} | {turns - len(scores)} | {near} of {len(scores)}"
        f" | {statistics.fmean(scores):+.3f} | {statistics.pstdev(scores):.3f}"
        f" | {statistics.fmean(inside):.3f} |"
    )


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
            for number in range(REPEATS):
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
    parser.add_argument("--plays", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--first", type=int, default=10_000)
    chosen = parser.parse_args()
    print("| given | turns | without spread | within 3 errors | mean z | sd z | in 95 % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for given in ("state", "view"):
        print(beside_the_exact(given, chosen.plays, chosen.pairs, chosen.first), flush=True)
    print(saved(max(1, chosen.plays // 20), chosen.first))


if __name__ == "__main__":
    main()
