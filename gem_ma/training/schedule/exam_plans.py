"""What the exams of a training play. Their seeds lie below 2^62, all others above, so no exam can
ask what was trained on."""

from __future__ import annotations

from dataclasses import replace

from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.plans import cast_of
from gem_ma.training.schedule.plans import plan_of
from gem_ma.training.selfplay.seats import casts


def exam_plans(config: Config, scenario: Scenario) -> list[Plan]:
    """`evaluate.episodes` plays of the tasks that `scenario:` names, on seeds `evaluate.seed`
    and following, from each side under `swap`."""
    split = config.only.split
    chosen = config.only.tasks
    known = len(scenario.tasks(split))
    tasks = chosen if isinstance(chosen, list) else range(min(chosen or known, known))
    sides = seatings(config)
    # rounded up; the last start may lack a side, so that an exam has exactly `episodes` plays
    starts = range(-(-config.evaluate.episodes // len(sides)))
    plans = [
        plan_of(
            config,
            scenario,
            cast_of(config),
            f"{split}/{tasks[n % len(tasks)]}",
            config.evaluate.seed + n,
        )
        for n in starts
    ]
    return [
        replace(plan, cast=cast, repeat=side) for plan in plans for side, cast in enumerate(sides)
    ][: config.evaluate.episodes]


def tried(config: Config, plans: list[Plan]) -> list[Plan]:
    """These plans `evaluate.tries` times over, told apart by `repeat`; luck alone differs, since
    seeds stay."""
    sides = len(seatings(config))
    return [
        replace(plan, repeat=plan.repeat + number * sides)
        for number in range(config.evaluate.tries)
        for plan in plans
    ]


def seatings(config: Config) -> list[dict[str, Seat]]:
    """The casts of an exam: each rotation of the players where they exchange sides and are not
    all the same, else the one of the config."""
    cast = cast_of(config)
    swapped = (
        config.train is not None
        and config.train.seats == "swap"
        and len(set(map(str, cast.values()))) > 1  # among equals each rotation is the same play
    )
    return casts(cast, "swap" if swapped else "fixed", 0, 0)
