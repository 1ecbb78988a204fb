"""The ladder of scripted assistants: each weaker one is the careful one less one care, and shows
it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from gem_ma.agents import CATALOG
from gem_ma.scenarios.service_desk.retail import Retail

from gem_ma import Plan, play
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import load

SHOP = Retail(data="own")
SHOP.id = "retail"


def run(assistant: str, index: int, **options: float) -> Episode:
    cast = {"assistant": Seat(assistant, None, options), "user": Seat("retail_user")}
    return asyncio.run(play(Plan(SHOP, cast, f"test/{index}")))


WEAKER = tuple(
    name
    for name in CATALOG
    if load("agents", name).__module__ == "gem_ma.scenarios.service_desk.agents.retail_weaker"
)


def test_there_is_a_ladder() -> None:
    assert len(WEAKER) >= 7


@pytest.mark.parametrize("name", WEAKER)
def test_a_weaker_assistant_at_rate_0_is_the_careful_one(name: str) -> None:
    for index in range(6):
        weaker, careful = (
            run(bot, index, **options)
            for bot, options in ((name, {"rate": 0.0}), ("retail_scripted", {}))
        )
        assert [turn.action for turn in weaker.turns] == [turn.action for turn in careful.turns]


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [name for name in WEAKER if name not in ("retail_forgets_requests", "retail_trusts_the_user")],
)
def test_a_weaker_assistant_serves_fewer_the_more_it_slips(name: str) -> None:
    def served(name: str, **options: float) -> int:
        return sum(bool(SHOP.success(run(name, index, **options))) for index in range(30))

    assert 30 == served("retail_scripted") > served(name, rate=0.6) > served(name, rate=1.0)


def test_an_assistant_that_trusts_the_user_asks_nobody_who_it_is() -> None:
    def found(name: str) -> int:
        """How often it looked for the account in ten talks."""
        turns = [turn for index in range(10) for turn in run(name, index).turns]
        calls = [call for turn in turns for call in turn.action.tool_calls]
        return sum(call.name.startswith("find_user") for call in calls)

    assert found("retail_trusts_the_user") < found("retail_scripted") == 10


@pytest.mark.parametrize("rate", [-0.1, 1.5, True, "often"])
def test_a_rate_that_is_no_share_is_refused(rate: Any) -> None:
    with pytest.raises(ConfigError, match="rate is a share from 0 to 1"):
        load("agents", "retail_wrong_item")("assistant", None, random.Random(0), rate=rate)
