"""Estimators at equal sampled turns: by episode, by turn, by forks of one state. Paired over seeds,
on softmax tables.

    python benchmarks/grouping.py [--seeds 5] [--first 1000] [--worlds hanoi,guess]
        [--arms "grpo; c3, forks"]

What is compared is the mean return of an agent in the last tenth of the turns, with that of the
first arm. Every turn that is sampled counts, those of forks too. `forks`: eight rests of a play that
go on from one of its turns, of sixteen
plays a step; else eight plays of one start.
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

FORKS = ("train.group_size=1", "train.episodes=16", "train.fork={width: 8, at: random}")
ARMS: dict[str, tuple[str, ...]] = {
    "grpo": ("train.estimator={name: grpo}",),
    "rloo": ("train.estimator={name: rloo}",),
    "rebn": ("train.estimator={name: rebn}",),
    "turn_grpo": ("train.estimator={name: turn_grpo}",),
    "turn_grpo, forks": ("train.estimator={name: turn_grpo}", *FORKS),
    "rloo, forks": ("train.estimator={name: rloo}", *FORKS),
    "magrpo, forks": ("train.estimator={name: magrpo}", *FORKS),
    "c3, forks": ("train.estimator={name: c3}", *FORKS),
}
PLAYS = ("train.group_size=8", "train.episodes=64")
WORLDS: dict[str, tuple[str, int, tuple[str, ...]]] = {  # config, sampled turns, what else it says
    "hanoi": ("hanoi_team", 25_000, ()),
    "guess": ("guess_number_forks", 25_000, ("train.fork=null", *PLAYS)),
    "commons": (
        "commons_shared",
        50_000,
        ("scenario={id: commons, agents: 3, stock: 18, end: known}", *PLAYS),
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
    parser.add_argument("--arms", default="; ".join(ARMS), help="by semicolons")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    arms = given.arms.split("; ")
    print(f"| world | estimator | mean return | by seed | less {arms[0]}, paired |")
    print("| --- | --- | ---: | --- | ---: |", flush=True)
    for world in given.worlds.split(","):
        base: list[float] = []
        for arm in arms:
            found = [trained(world, ARMS[arm], seed) for seed in seeds]
            base = base or found
            less = paired(base, found, list(seeds)) if arm != arms[0] else None
            apart = f"{less.difference:+.3f} [{less.low:.3f}, {less.high:.3f}]" if less else ""
            print(
                f"| {world} | {arm} | {mean_interval(found).mean:.3f} |"
                f" {' '.join(f'{value:.3f}' for value in found)} | {apart} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
