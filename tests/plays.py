"""Plays, and records of plays that nobody played, for the tests of every room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from typing import Any

from gem_ma.config.learning import LossSettings
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Turn
from gem_ma.registry import make


def played_all(
    plans: Iterable[Plan], policies: Mapping[str, Policy] | None = None, **how: Any
) -> list[Episode]:
    """Plays them all; in the order of their seeds."""

    async def work() -> list[Episode]:
        return [episode async for episode in play_many(plans, policies or {}, **how)]

    return sorted(asyncio.run(work()), key=lambda episode: episode.seed)


def hands(*policies: Policy, count: int = 24, first: int = 0, **plan: Any) -> list[Episode]:
    """Hands of Kuhn poker between two policies, or of one with itself."""
    names = [policy.name for policy in policies]
    cast = {"player_0": Seat("direct", names[0]), "player_1": Seat("direct", names[-1])}
    plans = [Plan(make("kuhn_poker"), cast, seed=first + n, **plan) for n in range(count)]
    by_name = dict(zip(names, policies, strict=True))
    return played_all(plans, by_name, concurrency=count, deterministic=True)


def learn(
    learner: Any, table: Any, worth: Any, *, lr: float = 1.0, seed: int = 0, **loss: Any
) -> dict[str, float]:
    """One update of a learner by these advantages [N]; `loss`: keys of `train.loss`."""
    rng = random.Random(seed)
    done: dict[str, float] = learner.update(
        table, worth, lr=lr, settings=LossSettings(**loss), rng=rng
    )
    return done


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
