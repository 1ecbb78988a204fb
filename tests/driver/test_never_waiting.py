"""Behaviours that declare `waits = False` act in the play's own task; others side by side."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gem_ma
from gem_ma import Action, Asked, Plan
from gem_ma.driver import seats
from gem_ma.driver.behaviour import as_factory
from gem_ma.kernel.episode import End, Seat


def plan(*behaviours: str) -> Plan:
    scenario = gem_ma.make("dilemma", rounds=3)
    taken = dict(zip(scenario.agents, (Seat(behaviour=name) for name in behaviours), strict=True))
    return Plan(scenario, taken, seed=1)


def test_bots_of_one_step_take_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(acts: Any) -> Any:
        raise AssertionError("a task was made")

    monkeypatch.setattr(seats, "together", refused)
    episode = asyncio.run(gem_ma.play(plan("random_legal", "first_legal")))
    assert episode.end is End.TERMINATED and len(episode.turns) == 6


class Meets:
    """Answers once another one is here too."""

    def __init__(self, barrier: asyncio.Barrier) -> None:
        self.barrier = barrier

    async def act(self, asked: Asked) -> Action:
        await self.barrier.wait()
        return Action("cooperate")


def test_behaviours_that_may_wait_act_side_by_side() -> None:
    async def met() -> Any:
        player = Meets(asyncio.Barrier(2))
        one = plan("random_legal", "random_legal")
        return await gem_ma.play(
            one, behaviours={name: lambda *_, **__: player for name in one.cast}
        )

    episode = asyncio.run(asyncio.wait_for(met(), 30))
    assert episode.end is End.TERMINATED and len(episode.turns) == 6


def test_one_that_may_wait_beside_a_bot_has_its_turn() -> None:
    async def slow(messages: Any, legal: Any, rng: Any) -> str:
        await asyncio.sleep(0)
        return str(legal[0])

    one = plan("random_legal", "random_legal")
    episode = asyncio.run(gem_ma.play(one, behaviours={"player_1": as_factory(slow)}))
    assert episode.end is End.TERMINATED
    assert [turn.agent for turn in episode.turns] == ["player_0", "player_1"] * 3
