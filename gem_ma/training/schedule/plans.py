"""What a step of a training plays, as a function of the config alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Seat, placed
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.plans import cast_of
from gem_ma.runs.worlds import World, Worlds, due
from gem_ma.training.schedule.curriculum import Tasks, in_turn
from gem_ma.training.selfplay.opponents import casts, plays_per_start

# Seeds of exams lie below, all others above, so no exam can ask what was trained on. Below 2^63,
# since a seed fits into int64.
TRAINING_SEEDS = 1 << 62


class Opponents(Protocol):
    """Who sits where at a start, by its number in the run and its world."""

    def __call__(self, start: int, world: str = "", /) -> Mapping[str, Seat]: ...


def training_plans(
    worlds: Worlds,
    settings: TrainSettings,
    step: int,
    opponents: Opponents | None = None,
    tasks: Tasks = in_turn,
) -> list[Plan]:
    """The episodes of a step (from 0): a fixed list, the worlds in turn by their weights, tasks of
    the split in turn, every start with each of its casts `group_size` times.

    Episodes of one start differ in what is sampled only, and in who sits where under
    `train.seats: swap`; `repeat` tells them apart. Those with one cast share a `group`.
    `opponents` gives the seats of a start; by default they are those of the config. `tasks` may
    choose others than those in turn.
    """
    by_name = {world.name: world for world in worlds.played}
    weights = {world.name: world.weight for world in worlds.played}
    each = plays_of_a_turn(worlds, settings)
    turns = settings.episodes // each
    plans: list[Plan] = []
    # counted over the run, so that no task is left out and every world gets its share
    for number in range(step * turns, (step + 1) * turns):
        name, count = due(weights, number)
        world = by_name[name]
        starts = each // _plays_of_a_start(world, settings)
        for index in range(starts):
            start = count * starts + index
            # digests, not draws of a generator: a resume need not draw what is past
            parts = (step, (number - step * turns) * starts + index) if not name else (name, start)
            seed = TRAINING_SEEDS | stable_seed(world.config.run.seed, "train", *parts)
            plans += world.placing(_plans_of(world, settings, start, seed, opponents, tasks))
    return plans


def plays_of_a_turn(worlds: Worlds, settings: TrainSettings) -> int:
    """How many plays a world has when its turn comes: alike for all, so that weights are shares of
    plays, and whole starts of each."""
    # worlds differ in how many agents change seats
    return math.lcm(*(_plays_of_a_start(world, settings) for world in worlds.played))


def _plays_of_a_start(world: World, settings: TrainSettings) -> int:
    return settings.group_size * plays_per_start(settings.seats, len(world.config.agents))


def _plans_of(
    world: World,
    settings: TrainSettings,
    start: int,
    seed: int,
    opponents: Opponents | None,
    tasks: Tasks,
) -> Iterator[Plan]:
    """The plays of one start."""
    config = world.config
    size = settings.group_size
    known = len(world.scenario.tasks(settings.split))
    task = f"{settings.split}/{tasks(world.name, known, start % known, start)}"
    plan = plan_of(config, world.scenario, cast_of(config), task, seed)
    seats = plan.cast if opponents is None else opponents(start, world.name)
    sides = casts(seats, settings.seats, config.run.seed, start)
    for side, cast in enumerate(sides):
        # of one side: returns of a stronger and a weaker seat do not compare
        same = f"{placed(world.name, task)}/{seed}" + (f"/{side}" if len(sides) > 1 else "")
        group = same if size > 1 else None
        for n in range(size):
            yield replace(plan, cast=cast, repeat=side * size + n, group=group)


def plan_of(
    config: Config, scenario: Scenario, cast: Mapping[str, Seat], task: str, seed: int
) -> Plan:
    run = config.run
    options = config.only.options
    return Plan(
        scenario,
        cast,
        task,
        seed,
        limits=run.limits,
        call_timeout_s=run.call_timeout_s,
        options=options,
    )
