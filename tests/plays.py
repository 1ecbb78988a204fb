"""Plays, and records of plays that nobody played, for the tests of every room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Turn


def played_all(
    plans: Iterable[Plan], policies: Mapping[str, Policy] | None = None, **how: Any
) -> list[Episode]:
    """Plays them all; in the order of their seeds."""

    async def work() -> list[Episode]:
        return [episode async for episode in play_many(plans, policies or {}, **how)]

    return sorted(asyncio.run(work()), key=lambda episode: episode.seed)


def recorded(
    cast: Mapping[str, Seat],
    turns: tuple[Turn, ...] = (),
    ledger: tuple[Entry, ...] = (),
    **fields: Any,
) -> Episode:
    """A play that ended as its rules say, but for `fields`."""
    plain: dict[str, Any] = {"scenario": "toy", "version": 1, "seed": 0, "task": "train/0"}
    plain |= {"repeat": 0, "group": None, "calls": (), "forks": (), "final": {}}
    return Episode(
        cast=cast, turns=turns, ledger=ledger, **{**plain, "end": End.TERMINATED, **fields}
    )
