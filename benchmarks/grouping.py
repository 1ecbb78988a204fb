"""Groups by (agent, turn) against groups by episode on long plans, at equal sampled turns: paired
over seeds, on softmax tables.

    python benchmarks/grouping.py [--seeds 5] [--first 1000] [--worlds hanoi,commons]

What is compared is the mean return of an agent in the last tenth of the turns. `episode`: every
turn is told how its play compares with the others of its start (`grpo`). `agent, turn`: what is
still paid after the k-th turn of an agent is compared with that of the other k-th turns
(`turn_grpo`). `one state`: the same of eight rests of a play that go on from one of its turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gem_ma
from gem_ma.scores.stats import mean_interval, paired

ARMS: dict[str, tuple[str, ...]] = {
    "episode": ("train.estimator={name: grpo}",),
    "agent, turn": ("train.estimator={name: turn_grpo}",),
    "one state": (
        "train.estimator={name: turn_grpo}",
        "train.group_size=1",
        "train.episodes=16",
        "train.fork={width: 8, at: random}",
    ),
}
WORLDS: dict[str, tuple[str, int, tuple[str, ...]]] = {  # config, sampled turns, what else it says
    "hanoi": ("hanoi_team", 25_000, ()),
    "commons": (
        "commons_shared",
        50_000,
        (
            "scenario={id: commons, agents: 3, stock: 18, end: known}",
            "train.group_size=8",
            "train.episodes=64",
        ),
    ),
}


class Enough(Exception):
    """So many turns were sampled."""


def trained(world: str, arm: tuple[str, ...], seed: int) -> float:
    """Mean return of an agent in the last tenth of the turns of one training."""
    config, budget, words = WORLDS[world]
    steps: list[tuple[float, float]] = []

    def count(_: int, metrics: dict[str, Any]) -> None:
        returns = metrics["return"].values()
        turns = sum(each["turns"] for each in metrics["policies"].values())
        steps.append((turns, sum(returns) / len(returns)))
        if sum(turns for turns, _ in steps) >= budget:
            raise Enough

    quiet = ("run.baselines=false", "evaluate.episodes=1", "evaluate.every=null")
    own = (*arm, "train.steps=100000", f"run.seed={seed}")
    with tempfile.TemporaryDirectory() as folder, suppress(Enough):
        gem_ma.train(config, [*words, *quiet, *own], out=Path(folder, "run"), on_step=count)
    left = budget / 10
    last: list[tuple[float, float]] = []
    while left > 0:
        last.append(steps.pop())
        left -= last[-1][0]
    return sum(turns * value for turns, value in last) / sum(turns for turns, _ in last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    print("| world | groups | mean return | by seed | less episode, paired |")
    print("| --- | --- | ---: | --- | ---: |", flush=True)
    for world in given.worlds.split(","):
        base: list[float] = []
        for arm, words in ARMS.items():
            found = [trained(world, words, seed) for seed in seeds]
            base = base or found
            less = paired(base, found, list(seeds)) if arm != "episode" else None
            apart = f"{less.difference:+.3f} [{less.low:.3f}, {less.high:.3f}]" if less else ""
            print(
                f"| {world} | {arm} | {mean_interval(found).mean:.3f} |"
                f" {' '.join(f'{value:.3f}' for value in found)} | {apart} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
