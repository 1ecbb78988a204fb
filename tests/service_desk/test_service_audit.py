"""How two talked, as numbers: counted by hand on one talk, and moved by each preset of the
scripted customer in its own direction."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from statistics import mean
from typing import Any, ClassVar

import pytest
from gem_ma.scenarios.service_desk.agents.retail_user import RetailUser
from gem_ma.scenarios.service_desk.desk.talk import retell
from gem_ma.scenarios.service_desk.retail.domain.domain import RETAIL
from gem_ma.scenarios.service_desk.watching.audit import manner

from gem_ma import Action, Plan, Seat, ToolCall, make, play
from gem_ma.engines.base import Policy
from gem_ma.engines.small.scripted import Scripted
from gem_ma.scores.columns import Columns, tally_of

TALK = (
    ("user", "Hello, I want to cancel order #W1000001."),
    ("assistant", "What is your e-mail address?"),
    ("user", "Why do you need that?"),
    ("assistant", "Please tell me your e-mail address and your zip code."),
    ("user", "Sorry, I made a typo before."),
    (
        "assistant",
        "I will cancel order #W1000001 because it is no longer needed. Shall I go ahead (yes/no)?",
    ),
    ("user", "What exactly would you change?"),
    (
        "assistant",
        "I will cancel order #W1000001 because it is no longer needed. Shall I go ahead (yes/no)?",
    ),
    ("user", "Yes, please do."),
    ("assistant", "One moment."),
)


SHOP: Any = make("retail", data="own")


def test_a_talk_is_counted_as_by_hand() -> None:
    desk = SHOP.desk(SHOP.tasks("test")[0])
    end = Action("", (ToolCall("call_0", "end_conversation", {"reason": "gave_up"}),))
    retell(desk, [*({agent: Action(text)} for agent, text in TALK), {"user": end}])
    found = manner(desk, RETAIL.book)
    assert found["words per user message"] == pytest.approx((7 + 5 + 6 + 5 + 3) / 5)
    assert (found["user corrections"], found["user queries"], found["user gave up"]) == (1, 1, 1)
    assert (found["questions"], found["questions again"]) == (3, 1)  # e-mail, e-mail, zip code
    unread = manner(desk, None)
    assert (
        unread["questions"] is None
        and unread["user queries"] is None
        and unread["user corrections"] == 1
    )


def test_a_talk_without_a_word_has_no_words_per_message() -> None:
    desk = SHOP.desk(SHOP.tasks("test")[0])
    desk.end("cut")
    found = manner(desk, RETAIL.book)
    assert (
        found["words per user message"] is None
        and found["user gave up"] == 0
        and found["questions"] == 0
    )


@lru_cache(maxsize=64)
def level(preset: str, measure: str, assistant: str = "retail_scripted") -> float:
    cast = {"assistant": Seat(assistant), "user": Seat("retail_user", None, {"preset": preset})}
    plays = [asyncio.run(play(Plan(SHOP, cast, f"test/{index}"))) for index in range(10)]
    return mean(
        found
        for found in (SHOP.measures(episode)[measure] for episode in plays)
        if found is not None
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("preset", "measure", "assistant", "sign"),
    [
        ("terse", "words per user message", "retail_scripted", -1),
        ("chatty", "words per user message", "retail_scripted", 1),
        ("impatient", "user turns", "retail_nothing", -1),
        ("forgetful", "user corrections", "retail_scripted", 1),
        ("sceptical", "user queries", "retail_scripted", 1),
        ("erratic", "user queries", "retail_scripted", 1),
        ("erratic", "user corrections", "retail_scripted", 1),
        ("uncooperative", "questions again", "retail_scripted", 1),
    ],
)
def test_each_preset_moves_its_own_measure(
    preset: str, measure: str, assistant: str, sign: int
) -> None:
    assert sign * (level(preset, measure, assistant) - level("faithful", measure, assistant)) > 0


class Noted(RetailUser):
    """Keeps the turns that it was shown."""

    shown: ClassVar[list[Any]] = []

    async def act(self, asked: Any) -> Action:
        self.shown.append(list(asked.turns))
        return await super().act(asked)


def test_only_who_is_given_the_task_sees_the_turns_of_all() -> None:
    Noted.shown.clear()
    seats = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
    plan = Plan(SHOP, seats, "test/0", 0)
    episode = asyncio.run(play(plan, behaviours={"user": Noted}))
    steps = [turn.step for turn in episode.turns if turn.agent == "user"]
    assert [len(turns) for turns in Noted.shown] == steps
    assert Noted.shown[-1] == list(episode.turns[: steps[-1]])


def test_a_mark_beside_a_text_that_ends_nothing_is_counted_once_a_play() -> None:
    said = iter(range(100))

    def model(request: Any) -> str:
        number = next(said)
        return f"Hello {number}." if number < 3 else f"Thanks {number}. ###STOP###"

    for marks, counted in (("alone", {"user": 1}), ("anywhere", None)):
        seats = {
            "assistant": Seat("retail_nothing"),
            "user": Seat("user_llm", "m", options={"marks": marks}),
        }
        episode = asyncio.run(
            play(Plan(SHOP, seats, "test/0", 0), {"m": Policy("m", Scripted.of(model))})
        )
        columns = Columns()
        columns.add(tally_of(episode), episode.cast, episode.end)
        assert columns.values(()).get("marked") == counted
