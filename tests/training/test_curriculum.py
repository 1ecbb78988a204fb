"""A curriculum over tasks: what is drawn and why, against a slow loop over the record; resumes; and
what it buys where most tasks teach nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import Ask, Reward, Scenario, config
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import RunFolder, read_episodes
from gem_ma.runs.worlds import Worlds
from gem_ma.training.schedule.checks import checked
from gem_ma.training.train import run_training, train
from tests.broken_runs import broken_and_whole, steps_of, trained


class Locks(Scenario):
    """Doors with four keys each. Of ten doors one has a key that fits, two stand open, the others
    have none."""

    agents = ("player",)
    keys = ("iron", "brass", "wood", "glass")

    def __init__(self, doors: int = 40) -> None:
        self.doors = doors

    def tasks(self, split: str) -> Any:
        return range(self.doors)

    def play(self, rng: Any, task: Any) -> Any:
        said = yield Ask({"player": f"door {task}: which key?"}, legal=self.keys)
        key = said["player"].parsed
        fits = task % 5 == 0 or (task % 10 == 3 and key == self.keys[task % 4])
        yield Reward({"player": float(fits and key is not None)})

    def success(self, episode: Any) -> bool:
        return bool(episode.returns()["player"] > 0)


LOCKS = f"{__file__}:Locks"


def locks(worlds: Any = None, *, seed: int = 0, **train: Any) -> Config:
    """A training at the doors; `worlds`: blocks of `scenarios:` instead of one scenario."""
    return Config.model_validate(
        {
            **({"scenario": {"id": LOCKS}} if worlds is None else {"scenarios": worlds}),
            "agents": {"player": {"policy": "main"}},
            "policies": {"main": {"model": "table/softmax", "optimizer": "sgd"}},
            "run": {"seed": seed, "baselines": False},
            "train": {
                "policies": ["main"],
                "steps": 6,
                "episodes": 16,
                "group_size": 2,
                "lr": 20.0,
                "estimator": {"name": "dr_grpo"},
                "on_collapse": "off",
                "save_every": 1,
                "curriculum": {},
                **train,
            },
            "evaluate": {"episodes": 2, "every": None},
        }
    )


# -- what is drawn -------------------------------------------------------------------------------


class SlowLoop:
    """Counts plays by hand, and lists the tasks of the next starts with their reasons."""

    def __init__(self, low: float, high: float, explore: float, decay: float) -> None:
        self.low, self.high, self.explore, self.decay = low, high, explore, decay
        self.plays: list[tuple[int, str, bool]] = []  # step, task, success

    def estimate(self, task: str, step: int) -> float:
        ages = [(step - 1 - when, won) for when, name, won in self.plays if name == task]
        plays = sum(self.decay**age for age, _ in ages)
        return (sum(self.decay**age * won for age, won in ages) + 0.5) / (plays + 1)

    def start(self, world: str, known: int, number: int, step: int) -> tuple[str, str, float]:
        names = [f"{world}/train/{n}" if world else f"train/{n}" for n in range(known)]
        task, why = number % known, "turn"
        if stable_seed(0, "curriculum", "explore", world, number) / 2**63 >= self.explore:
            chances = [self.estimate(name, step) for name in names]
            weights = [p * (1 - p) if self.low <= p <= self.high else 0.0 for p in chances]
            met = {name for when, name, _ in self.plays if when < step}
            # those that were met, then the others
            order = sorted(range(known), key=lambda n: (names[n] not in met, n))
            left = sum(weights) * stable_seed(0, "curriculum", "task", world, number) / 2**63
            for n in order if sum(weights) else ():
                left -= weights[n]
                if left < 0:
                    task, why = n, "band"
                    break
        return names[task], why, self.estimate(names[task], step)


@pytest.mark.long
@pytest.mark.parametrize("ahead", [0, 2])
def test_tasks_are_those_of_a_slow_loop_over_the_record(tmp_path: Path, ahead: int) -> None:
    how = {"explore": 0.25}
    settings = locks(curriculum=how, steps=8, episodes=16, overlap=ahead)
    trained(tmp_path / "run", settings)
    episodes, slow = list(read_episodes(tmp_path / "run")), SlowLoop(0.1, 0.9, 0.25, 0.98)
    reasons = set()
    for step, line in enumerate(steps_of(tmp_path / "run")):
        # a step that is played ahead is drawn while an earlier one is learned from
        counted = 0 if not step else max(1, step - ahead + 1) if ahead else step
        slow.plays = [
            (n // 16, e.task, e.returns()["player"] > 0)
            for n, e in enumerate(episodes[: 16 * counted])
        ]
        wanted = [slow.start("", 40, 8 * step + n, counted) for n in range(8)]
        told = line["curriculum"]
        assert [(task, why) for task, why, _ in told["starts"]] == [w[:2] for w in wanted]
        assert [p for *_, p in told["starts"]] == pytest.approx([w[2] for w in wanted], abs=1e-4)
        mine = episodes[16 * step : 16 * step + 16]
        assert [e.task for e in mine[::2]] == [e.task for e in mine[1::2]] == [w[0] for w in wanted]
        assert told["band"] == sum(why == "band" for _, why, _ in wanted) == 8 - told["turn"]
        assert told["met"] == len({task for _, task, _ in slow.plays})
        reasons |= {why for _, why, _ in wanted}
    assert reasons == {"band", "turn"}


SEVERAL = {"one": {"id": LOCKS, "doors": 9, "weight": 2}, "other": {"id": LOCKS, "doors": 30}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("worlds", "more"),
    [(SEVERAL, {"overlap": 2, "episodes": 24}), (None, {"refill": 2})],
    ids=["worlds", "refill"],
)
def test_a_killed_run_ends_as_an_unbroken_one(tmp_path: Path, worlds: Any, more: Any) -> None:
    settings = locks(worlds, **more)
    broken_and_whole(tmp_path, settings)
    rows = [line["curriculum"] for line in steps_of(tmp_path / "whole")]
    assert any(row["band"] for row in rows)
    # every start that was played is in it, those of a refill too
    starts = {(e.task, e.group, e.world) for e in read_episodes(tmp_path / "whole")}
    assert sum(len(row["starts"]) for row in rows) == len(starts)


@pytest.mark.long
def test_a_run_goes_on_with_a_curriculum_that_it_began_without(tmp_path: Path) -> None:
    """As a run of an older version does, whose checkpoints hold no estimates."""
    trained(tmp_path / "run", locks(curriculum=None, steps=2))
    with RunFolder.open(
        tmp_path / "run",
        config_text="",
        resolved=locks(curriculum=None, steps=2).model_dump(mode="json"),
    ) as folder:
        run_training(locks(), folder)
    held = ["curriculum" in line for line in steps_of(tmp_path / "run")]
    assert held == [False] * 2 + [True] * 4


# -- what it buys --------------------------------------------------------------------------------


def right(seed: int, curriculum: Any) -> float:
    """How likely the fitting key is at the 12 of 120 doors that have one, after the training."""
    table = Table(policy="main")
    settings = locks(seed=seed, steps=30, episodes=64, group_size=8, curriculum=curriculum)
    asyncio.run(train(settings, Locks(120), {"main": Policy("main", table)}, None))
    # each door is a view; where no key fits, or any, none is preferred
    chances = [np.exp(row - row.max()) for row in table.logits.values()]
    return float(sum(sorted((row / row.sum()).max() for row in chances)[-12:]) / 12)


@pytest.mark.learning
def test_where_most_tasks_teach_nothing_it_learns_faster() -> None:
    for seed in range(3):
        plain, chosen = right(seed, None), right(seed, {})
        print(f"seed {seed}: the right key with {plain:.2f} in turn, {chosen:.2f} by curriculum")
        assert chosen > plain + 0.1, seed


# -- refusals ------------------------------------------------------------------------------------


def test_a_value_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="explore"):
        config.load("guess_number_table", ["train.curriculum={explore: 1}"])


class Silent(Locks):
    """Whose plays nobody judges."""

    success = Scenario.success  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("scenario", "line"),
    [(Silent(), "does not say which plays succeed"), (Locks(1), "has one task in the split")],
)
def test_a_scenario_without_what_it_goes_by_is_one_line(scenario: Scenario, line: str) -> None:
    settings = locks()
    with pytest.raises(ConfigError, match=f"train.curriculum: .* {line}") as refused:
        checked(settings, settings.policies, Worlds.of(settings, scenario))
    assert "\n" not in str(refused.value)
