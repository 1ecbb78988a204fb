"""What a step of a training plays, and how fast it learns, as functions of the config alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gem_ma.config.plans import cast_of
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import stable_seed
from gem_ma.episode import Seat
from gem_ma.rollout import Plan
from gem_ma.scenario import Scenario
from gem_ma.training.selfplay.seats import casts, plays_per_start

# Seeds of exams lie below, all others above, so no exam can ask what was trained on. Below 2^63,
# since a seed fits into int64.
TRAINING_SEEDS = 1 << 62


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of a step (from 0): linear from lr to lr_final * lr, times a linear rise
    over the first lr_warmup steps."""
    share = 1 + (settings.lr_final - 1) * step / max(1, settings.steps - 1)
    # step + 1: a rate of 0 at step 0 would play that step for nothing
    return settings.lr * share * min(1.0, (step + 1) / max(1, settings.lr_warmup))


def training_plans(
    config: Config,
    settings: TrainSettings,
    scenario: Scenario,
    step: int,
    opponents: Callable[[int], Mapping[str, Seat]] | None = None,
) -> list[Plan]:
    """The episodes of a step (from 0): a fixed list, tasks of the split in turn, every start with
    each of its casts `group_size` times.

    Episodes of one start differ in what is sampled only, and in who sits where under
    `train.seats: swap`; `repeat` tells them apart. Those with one cast share a `group`.
    `opponents` gives the seats of a start by its number in the run; by default they are those of
    the config.
    """
    size = settings.group_size
    sides = plays_per_start(settings.seats, len(config.agents))
    starts = settings.episodes // (size * sides)
    known = len(scenario.tasks(settings.split))
    plans = []
    for index in range(starts):
        # a digest of the step, not the next of a generator: a resume need not draw what is past
        seed = TRAINING_SEEDS | stable_seed(config.run.seed, "train", step, index)
        start = step * starts + index  # counted over the run, so that no task is left out
        plan = plan_of(config, scenario, cast_of(config), f"{settings.split}/{start % known}", seed)
        seats = plan.cast if opponents is None else opponents(start)
        for side, cast in enumerate(casts(seats, settings.seats, config.run.seed, start)):
            # of one side: returns of a stronger and a weaker seat do not compare
            group = f"{plan.task}/{seed}" + (f"/{side}" if sides > 1 else "") if size > 1 else None
            plans += [
                replace(plan, cast=cast, repeat=side * size + n, group=group) for n in range(size)
            ]
    return plans


def plan_of(
    config: Config, scenario: Scenario, cast: Mapping[str, Seat], task: str, seed: int
) -> Plan:
    run, options = config.run, config.scenario.options
    return Plan(
        scenario,
        cast,
        task,
        seed,
        limits=run.limits,
        call_timeout_s=run.call_timeout_s,
        options=options,
    )
