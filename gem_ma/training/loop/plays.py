"""The plays of a step: which plans, against whom, with which branches; and which steps may be
played ahead. Knows what a training is made of; knows no learning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.training.loop.forking import Grown, grow
from gem_ma.training.loop.local import check_some
from gem_ma.training.loop.parts import Parts
from gem_ma.training.loop.played import Played
from gem_ma.training.loop.refill import Refilled, refill
from gem_ma.training.loop.roles import Players
from gem_ma.training.loop.step import Step
from gem_ma.training.schedule.alternation import learning
from gem_ma.training.schedule.curriculum import in_turn
from gem_ma.training.schedule.plans import training_plans

NOT_MIXED = (
    "train.admission: continuous plays on beside a publish, which this engine or number of"
    " processes does not allow; remove it"
)


def plays(parts: Parts, index: int, players: Players) -> Callable[[], Coroutine[Any, Any, Played]]:
    """A function that plays a step (counted from 0) and its branches.

    Plans and opponents are drawn now, so nothing depends on when the function is called.
    """
    settings = parts.settings
    opponents = parts.league.opponents(index, learning(settings, index))
    choices = parts.curriculum.choices() if parts.curriculum is not None else None
    tasks = choices or in_turn
    plans = training_plans(parts.worlds, settings, index, opponents, tasks)

    async def play() -> Played:
        episodes = await players.play(plans, learning=True)
        full = Refilled(tuple(plans), tuple(episodes))
        grown = Grown((), None)
        if settings.refill:
            full = await refill(parts.worlds, settings, index, plans, episodes, players, tasks)
        # after the refill: what is set aside is not played on from
        if settings.fork is not None:
            trunks = (full.plans, full.episodes)
            grown = await grow(parts.config, settings, index, *trunks, players)
        played = Played(
            index,
            tuple(episodes),
            grown.episodes,
            grown.metrics,
            full.refills,
            full.aside,
            full.metrics,
            choices.record() if choices is not None else None,
        )
        check_some(played.episodes)  # of the whole step: a level of it may be few plays
        return played

    return play


async def played(parts: Parts, step: Step) -> Played:
    """What was played for a step. Where plays are admitted continuously, the steps that may be
    played ahead begin first, and take the places that its last plays leave."""
    if step.ahead.admission is not None:
        _play_ahead(parts, step, step.index)
    ahead = await step.ahead.take(step.index)
    return ahead or await plays(parts, step.index, parts.players)()


async def beside(parts: Parts, step: Step, teach: Callable[[], None]) -> None:
    """Runs the update of a step; under `train.overlap` in a thread, while steps to come are
    played."""
    if not parts.settings.overlap:
        teach()
        return
    stays = _play_ahead(parts, step, step.number)
    await asyncio.to_thread(teach)
    # else the publish that comes would change the weights that they are played with
    if not stays:
        await step.ahead.settled()


def _play_ahead(parts: Parts, step: Step, first: int) -> bool:
    """Begins the steps, from `first` (counted from 0) on, that may be played with the weights that
    are published now. Gives whether they keep these weights when others are published."""
    count = int(parts.settings.overlap)
    mixed = step.ahead.admission is not None
    coming = range(first, min(step.number + count, parts.settings.steps))
    missing = step.ahead.missing(coming)
    # a single step ahead ends before the next update, so a copy of the weights would win nothing;
    # under `continuous` its plays go on beside those of the next step
    pinned = parts.players.pinned() if missing and (count > 1 or mixed) else None
    if mixed and missing and pinned is None:
        raise ConfigError(NOT_MIXED)
    for index in missing:
        step.ahead.begin(index, plays(parts, index, pinned or parts.players))
    return pinned is not None or not missing
