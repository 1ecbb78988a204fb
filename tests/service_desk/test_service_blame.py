"""Blame: whichever side a fault is injected into is named, and what neither side did is put on
the task or on the machinery."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.agents.retail_scripted import RetailScripted
from gem_ma.scenarios.service_desk.agents.retail_user import RetailUser
from gem_ma.scenarios.service_desk.desk.log import Event, Outcome
from gem_ma.scenarios.service_desk.grading.grader import Verdict
from gem_ma.scenarios.service_desk.watching.blame import Blame, blame
from gem_ma.scenarios.service_desk.watching.findings import Violation
from gem_ma.scenarios.service_desk.watching.ledger import Fault

from gem_ma import Action, Plan, Seat, ToolCall, make, play
from gem_ma.kernel.episode import End, Episode, Limits

LEAST = 0.95


SHOP: Any = make("retail", data="own")


def run(
    index: int, assistant: str = "retail_scripted", behaviours: Any = None, **plan: Any
) -> Episode:
    cast = {"assistant": Seat(assistant), "user": Seat("retail_user")}
    return asyncio.run(play(Plan(SHOP, cast, f"train/{index}", **plan), behaviours=behaviours))


# -- injected users ------------------------------------------------------------------------------


class Leaver(RetailUser):
    """Leaves after the first answer, content with nothing."""

    turns = 0

    async def act(self, asked: Any) -> Action:
        self.turns += 1
        honest = await super().act(asked)
        return (
            honest
            if self.turns < 2
            else Action("", (ToolCall("u", "end_conversation", {"reason": "settled"}),))
        )


class Dreamer(RetailUser):
    """Makes up who it is and what its orders are called."""

    async def act(self, asked: Any) -> Action:
        honest = await super().act(asked)
        text = re.sub(r"(?<=#W)\d", lambda digit: str((int(digit.group()) + 3) % 10), honest.text)
        text = re.sub(
            r"(?<=zip code is )\d", lambda digit: str((int(digit.group()) + 3) % 10), text
        )
        return replace(honest, text=text.replace("@example.com", "@example.org"))


class WrongProposal(RetailScripted):
    """Proposes another item than was asked for, and writes what it proposed."""

    def propose(self, form: Any, plan: Any) -> Any:
        arguments = dict(plan.arguments)
        for name in ("address1", "order_id"):
            if name in arguments:
                arguments[name] = "77 Nowhere Road" if name == "address1" else arguments[name]
        if "payment_method_id" in arguments:
            others = [key for key in self.account.methods if key != arguments["payment_method_id"]]
            arguments["payment_method_id"] = others[0] if others else arguments["payment_method_id"]
        if "reason" in arguments:
            arguments["reason"] = (
                "ordered by mistake" if arguments["reason"].startswith("no") else "no longer needed"
            )
        yield from super().propose(form, replace(plan, arguments=arguments))


def sides(
    first: int, count: int, lost_only: bool = True, **injected: Any
) -> tuple[Counter[str], Counter[str]]:
    """Whom `count` talks that the injection spoiled are blamed on, and for what."""
    found: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for index in (at % 1000 for at in range(first, first + 1000)):
        episode = run(index, **injected)
        assert episode.error is None, episode.error
        whose = SHOP.audit(episode).blame
        if whose is None or (lost_only and SHOP.success(episode)):
            continue
        found[whose.side] += 1
        causes[f"{whose.side}: {whose.cause}"] += 1
        assert whose.step >= 0
        if found.total() == count:
            return found, causes
    raise AssertionError(f"only {found.total()} talks of 1000 were spoiled")


INJECTED = pytest.mark.parametrize(
    ("side", "injected", "lost_only"),
    [
        ("user", {"behaviours": {"user": Leaver}}, True),
        ("user", {"behaviours": {"user": Dreamer}}, True),
        ("assistant", {"assistant": "retail_drops_write"}, True),
        ("assistant", {"assistant": "retail_wrong_item"}, True),
        ("assistant", {"assistant": "retail_forgets_to_confirm"}, True),
        ("assistant", {"assistant": "retail_transfers_early"}, True),
        ("assistant", {"assistant": "retail_refuses_more"}, True),
    ],
    ids=[
        "leaves early",
        "hallucinates",
        "drops a write",
        "wrong item",
        "no consent",
        "early transfer",
        "refuses more",
    ],
)


@pytest.mark.long
@INJECTED
def test_the_injected_side_is_named(side: str, injected: dict[str, Any], lost_only: bool) -> None:
    found, causes = sides(500, 12, lost_only, **injected)
    assert found[side] >= 11, causes


@pytest.mark.long
def test_an_assistant_that_proposes_wrongly_to_an_honest_user_is_to_blame_itself() -> None:
    found, causes = sides(0, 15, behaviours={"assistant": WrongProposal})
    assert found["assistant"] >= LEAST * 15, causes


def test_labels_blame_lost_plays_only() -> None:
    won, lost = run(0), run(0, "retail_nothing")
    assert "blame" not in SHOP.labels(won)
    assert SHOP.labels(lost)["blame"] == "assistant"
    cut = run(0, limits=Limits(max_steps=2))
    assert cut.end is End.MAX_STEPS
    assert SHOP.success(cut) is False
    assert SHOP.labels(cut)["blame"] == "environment"
    broken = replace(won, end=End.FAILED, error="x", ledger=())
    assert SHOP.labels(broken)["blame"] == "infrastructure"
    assert SHOP.measures(broken) == {}


# -- by hand -------------------------------------------------------------------------------------

LOST = Verdict(0.0, {"database": False, "facts": True, "outcome": False}, distance=3)
HARD = Violation(5, "CONSENT", True, "no yes")
UNDONE = Violation(7, "undue_refusal", True, "x")


REFUSED = {
    "verdict": replace(LOST, parts={"database": True, "facts": True, "outcome": False}),
    "refused": True,
}


def left(said: str) -> Outcome:
    """A talk in which the user said this, and left content."""
    return Outcome(
        "user",
        "settled",
        events=(Event(0, "said", "user", text=said), Event(3, "ended", "user", reason="settled")),
    )


def ended(reason: str = "gave_up", by: str = "user", *events: Event) -> Outcome:
    return Outcome(by, reason, ("x",), (), (*events, Event(9, "ended", "user", reason=reason)))


def fault(kind: str, step: int, evidence: str = "x") -> Fault:
    return Fault(kind, step, evidence)


def used(value: str) -> Event:
    return Event(
        4,
        "called",
        "assistant",
        call=ToolCall("c", "get_order_details", {"order_id": value}),
        result="Error: order not found",
    )


MISSING = {"verdict": replace(LOST, missing=("5",))}
CONSENT = {"findings": [HARD]}
NUMBER = {"findings": [Violation(2, "UNFOUNDED", True, "7")]}


@pytest.mark.parametrize(
    ("given", "side", "cause"),
    [
        # the first event wins
        ({**CONSENT, "faults": [fault("loop", 9)]}, "assistant", "CONSENT"),
        ({**CONSENT, "faults": [fault("confirm_wrong", 4)]}, "user", "confirm_wrong"),
        # at one step it is the user's
        ({**CONSENT, "faults": [fault("off_task", 5)]}, "user", "off_task"),
        ({"undone": [UNDONE]}, "assistant", "undue_refusal"),
        # what is certain goes first
        ({**CONSENT, "undone": [UNDONE]}, "assistant", "CONSENT"),
        ({"findings": [replace(HARD, hard=False, code="UNREAD")]}, "assistant", "not_served"),
        ({"faults": [fault("copy", 0)]}, "assistant", "not_served"),
        # it left a question open
        (
            {"outcome": ended("settled", "user", Event(4, "said", "assistant", text="Who?"))},
            "user",
            "early_stop",
        ),
        # nobody used it
        ({"faults": [fault("hallucinated_slot", 0, "order_id: #W9")]}, "assistant", "not_served"),
        (
            {
                "faults": [fault("hallucinated_slot", 0, "order_id: #W9")],
                "outcome": ended("gave_up", "user", used("#W9")),
            },
            "user",
            "hallucinated_slot",
        ),
        ({"strays": [Violation(6, "wrong_write", True, "x")]}, "assistant", "wrong_write"),
        ({"flags": ("order_sensitive",)}, "environment", "order_sensitive"),
        ({"outcome": Outcome("limit")}, "assistant", "limit"),
        ({**MISSING}, "assistant", "missing_fact"),
        ({**MISSING, "outcome": left("I do not know."), "loose": ["5"]}, "user", "not_asked"),
        ({**MISSING, "outcome": left("Cancel it.")}, "assistant", "missing_fact"),
        (
            {**MISSING, "outcome": left("How much is it?"), "loose": ["5"]},
            "assistant",
            "missing_fact",
        ),
        (
            {"verdict": replace(LOST, parts={"database": True, "facts": True, "outcome": False})},
            "user",
            "wrong_end",
        ),
        ({**REFUSED, "outcome": ended("refused")}, "assistant", "bad_refusal"),
        ({**REFUSED, "outcome": ended("settled")}, "assistant", "bad_refusal"),
        ({**REFUSED}, "user", "wrong_end"),
        ({"end": End.FAILED, "verdict": None, "outcome": None}, "infrastructure", "failed"),
        ({"end": End.TIMEOUT}, "infrastructure", "timeout"),
        ({"end": End.MAX_TOKENS}, "environment", "max_tokens"),
        ({**CONSENT, "end": End.MAX_STEPS}, "assistant", "CONSENT"),
        # a number lost nothing
        ({**NUMBER, "faults": [fault("loop", 9)]}, "user", "loop"),
        ({**NUMBER}, "assistant", "UNFOUNDED"),
    ],
)
def test_the_first_critical_event_decides(given: dict[str, Any], side: str, cause: str) -> None:
    given = {"findings": [], "faults": [], "verdict": LOST, "outcome": ended(), **given}
    found = blame(
        given.pop("findings"),
        given.pop("faults"),
        given.pop("verdict"),
        given.pop("outcome"),
        given.pop("end", End.TERMINATED),
        **given,
    )
    assert isinstance(found, Blame)
    assert (found.side, found.cause) == (side, cause)
    unsure = cause in ("early_stop", "undue_refusal", "bad_refusal")
    assert found.sure is not unsure


def test_a_clean_success_and_an_unscored_talk_are_nobodys_fault() -> None:
    assert blame([], [], replace(LOST, reward=1.0), ended("settled")) is None
    assert (
        blame(
            [HARD],
            [fault("copy", 0), fault("loop", 9)],
            replace(LOST, reward=1.0),
            ended("settled"),
        )
        is None
    )
    assert blame([HARD], [], replace(LOST, scored=False), ended()) is None
