"""Plays plans into an open run folder, for every command that plays: run, study, train's baselines.

Knows no command line and prints no score.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from gem_ma.driver.many import play_many
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Priced
from gem_ma.engines.small.human import asks_person
from gem_ma.engines.small.replay import Remembered
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import BudgetError
from gem_ma.runs.store import RunFolder
from gem_ma.runs.store.interrupted import forget_replies, keep_reply, read_replies, remove_replies

TICK_S = 1.0  # between two drawings of the progress line while no play ends


async def play_into(
    folder: RunFolder,
    plans: Iterable[Plan],
    policies: Mapping[str, Policy],
    concurrency: int,
    progress: Any,
) -> None:
    """Plays the plans and appends every episode as it ends.

    Raises EndpointError where a model cannot be reached. Once `limits:` are reached no plan is
    begun, what runs may end, and BudgetError follows. Replies of an endpoint are kept as they
    come (`interrupted.jsonl`) until their play has ended: whatever stops it, SIGKILL too,
    playing on buys none of them twice.
    """

    people = asks_person(policies)
    if people:
        # a progress line that is drawn anew would erase what they type, and two plays at once
        # would mix on one screen
        progress.hide()
        concurrency = 1
    paid = _paid(policies)
    players = {**policies, **_remembering(folder, paid)}
    # while one long play runs no play ends, and the line would look stuck
    ticking = asyncio.ensure_future(_tick(progress))
    try:
        refusal = await _record(folder, plans, players, concurrency, progress, people, bool(paid))
    finally:
        ticking.cancel()
    if refusal:
        raise BudgetError(refusal)
    # every play has ended, so nothing is left that a later command could buy twice
    remove_replies(folder.path)


def outcome(episode: Episode) -> str:
    """What the progress line counts an episode as: ok, failed or excluded."""
    if episode.end.value == "failed":
        return "failed"
    return "ok" if episode.end.scored else "excluded"


def _paid(policies: Mapping[str, Policy]) -> dict[str, Policy]:
    """The policies whose replies cost something: those at an endpoint."""

    return {name: policy for name, policy in policies.items() if isinstance(policy.engine, Priced)}


def _remembering(folder: RunFolder, paid: Mapping[str, Policy]) -> dict[str, Policy]:
    """The policies, with engines that write each reply down and answer from what is written."""

    if not paid:
        return {}
    bought = read_replies(folder.path)
    keep = partial(keep_reply, folder.path)
    return {
        name: replace(policy, engine=Remembered(policy.engine, bought, keep))
        for name, policy in paid.items()
    }


async def _record(
    folder: RunFolder,
    plans: Iterable[Plan],
    policies: Mapping[str, Policy],
    concurrency: int,
    progress: Any,
    people: Sequence[Any],
    is_paid: bool,
) -> str:
    """Appends the episodes as they end; gives why the budget refused one, or ""."""

    refusal = ""
    # asked before each plan is begun: after a refusal none is, and those that run may end
    allowed = takewhile(lambda _: not refusal, plans)
    # a person reads how a play ended before the next one asks
    batches = ([plan] for plan in allowed) if people else [allowed]
    play = partial(play_many, policies=policies, concurrency=concurrency, started=progress.start)
    async with aclosing(_one_after_another(play, batches)) as episodes:
        async for episode in episodes:
            if episode.end is End.INTERRUPTED:  # by the budget: it is played again
                refusal = refusal or str(episode.error).removeprefix("BudgetError: ")
                continue
            folder.append([episode])
            if is_paid:  # after the append: a kill between the two buys nothing twice
                forget_replies(folder.path, episode.id)
            for person in people:
                person.show_end(episode)
            progress.end(outcome(episode))
    return refusal


async def _one_after_another(
    play: Callable[[Iterable[Plan]], AsyncIterator[Episode]],
    batches: Iterable[Iterable[Plan]],
) -> Any:
    """The episodes of these batches of plans; a batch is begun when the episodes of the one before
    have been taken."""

    for plans in batches:
        # closed by hand: an abandoned async generator is closed by the loop, some time later
        async with aclosing(play(plans)) as episodes:  # type: ignore[type-var]
            async for episode in episodes:
                yield episode


async def _tick(progress: Any) -> None:

    while True:
        await asyncio.sleep(TICK_S)
        progress.tick()
