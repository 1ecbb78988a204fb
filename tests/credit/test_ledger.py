"""The goal ledger beside a user: every detector fires on an injected fault, none on a clean run,
and all of it is a function of the events."""

from __future__ import annotations

import asyncio

import pytest
from gem_ma.scenarios.service_desk.agents.customer_traits import PRESETS
from gem_ma.scenarios.service_desk.agents.retail_talk import change, proposal
from gem_ma.scenarios.service_desk.desk.log import Event
from gem_ma.scenarios.service_desk.retail import Retail, Slot, Task
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL
from gem_ma.scenarios.service_desk.watching.ledger import FAULTS, Ledger

from gem_ma import Plan, ToolCall, play, task_of
from gem_ma.kernel.episode import Episode, Seat
from tests.assistant_messages import WISHES

SHOP = Retail(data="own")
SHOP.id = "retail"
CANCEL, RETURN = WISHES["cancel"], WISHES["return"]
WHO = (
    Slot("first_name", "Ann"),
    Slot("last_name", "Lee"),
    Slot("email", "ann@example.com"),
    Slot("zip", "97301", known=False),
)
TASK = Task(
    id="test/0",
    source="by hand",
    user_id="ann_lee_1",
    instruction=(
        "You are Ann Lee and your mail is ann@example.com. You would like to get rid of order"
        " #W1234567 since you do not need it any more."
    ),
    actions=(),
    knowledge=WHO,
    wishes=(CANCEL,),
)
RIGHT = proposal([change(CANCEL.kind, CANCEL.arguments)])
WRONG = proposal([change(CANCEL.kind, {**CANCEL.arguments, "order_id": "#W7654321"})])
WHO_ASKED, DONE_SAID = (
    "Could you give me your name and e-mail address?",
    "Order #W1234567 has been cancelled. Anything else?",
)
IDENTITY = "My name is Ann Lee. My e-mail address is ann@example.com."
REQUEST = "Please cancel order #W1234567, it is no longer needed."
Lines = list[tuple[str, str]]


def told(lines: Lines, task: Task = TASK, end: str = "settled", by: str = "user") -> Ledger:
    """The ledger of a talk; `u` and `a` begin the lines of user and assistant, `x` what was none
    of the user's."""
    ledger, step = Ledger(task, RETAIL), -1
    for step, (who, text) in enumerate(lines):
        kind = "bounced" if who == "x" else "said"
        ledger.see(Event(step, kind, {"a": "assistant"}.get(who, "user"), text))
    if end:
        ledger.see(Event(step + 1, "ended", by, reason=end))
    return ledger


def kinds(ledger: Ledger) -> list[str]:
    return [fault.kind for fault in ledger.faults]


CLEAN: Lines = [
    ("u", REQUEST),
    ("a", WHO_ASKED),
    ("u", IDENTITY),
    ("a", RIGHT),
    ("u", "Yes, please go ahead."),
    ("a", DONE_SAID),
]


def test_a_clean_talk_has_no_fault() -> None:
    assert told(CLEAN).faults == []


# -- one injected fault each ---------------------------------------------------------------------


def at(place: int, *lines: tuple[str, str]) -> Lines:
    """The clean talk with one line replaced."""
    return [*CLEAN[:place], *lines, *CLEAN[place + 1 :]]


INJECTED: dict[str, tuple[Lines, str, Task]] = {
    "hallucinated_slot": (
        at(
            2,
            (
                "u",
                (
                    "My name is Ann Lee, my e-mail address is ann@example.com and my zip code is"
                    " 55555."
                ),
            ),
        ),
        "settled",
        TASK,
    ),
    "copy": (
        at(
            0,
            ("u", "I would like to get rid of order #W1234567 since you do not need it any more."),
        ),
        "settled",
        TASK,
    ),
    "confirm_wrong": (at(3, ("a", WRONG)), "settled", TASK),
    "token_leak": (at(4, ("u", "Yes, please go ahead. ###STOP###")), "settled", TASK),
    "loop": ([("u", REQUEST), ("a", "Hm?"), ("u", REQUEST), ("a", "Hm?"), *CLEAN], "settled", TASK),
    "silent": ([*[("x", "")] * 5, *CLEAN], "settled", TASK),
}


def test_every_kind_of_fault_is_injected_once() -> None:
    assert {*INJECTED, "off_task"} == set(FAULTS)


@pytest.mark.parametrize("kind", INJECTED)
def test_a_detector_fires_on_its_injected_fault_with_step_and_evidence(kind: str) -> None:
    lines, end, task = INJECTED[kind]
    ledger = told(lines, task, end)
    found = [fault for fault in ledger.faults if fault.kind == kind]
    assert len(found) == 1
    assert found[0].evidence and 0 <= found[0].step <= len(lines)
    assert set(kinds(ledger)) == {kind}


# -- what is not a fault -------------------------------------------------------------------------


def test_a_slip_that_the_user_puts_right_is_no_fault() -> None:
    lines = at(
        2,
        ("u", "My name is Ann Lee. My e-mail address is anne@example.com."),
        ("a", "I cannot find that account. Is the e-mail right?"),
    )
    ledger = told(
        [
            *lines[:4],
            ("u", "Sorry, I made a typo. My e-mail address is ann@example.com."),
            *lines[4:],
        ]
    )
    assert ledger.faults == []


def test_a_slip_that_is_never_put_right_is_a_fault_at_the_step_where_it_was_made() -> None:
    ledger = told(at(2, ("u", "My name is Ann Lee. My e-mail address is anne@example.com.")))
    assert [(fault.kind, fault.step) for fault in ledger.faults] == [("hallucinated_slot", 2)]


def test_values_that_the_assistant_said_may_be_said_back() -> None:
    ledger = told(
        [
            *CLEAN[:3],
            ("a", "Is it order #W1234567 or #W7654321?"),
            ("u", "Not #W7654321, it is #W1234567."),
            *CLEAN[3:],
        ]
    )
    assert ledger.faults == []


def test_a_change_of_mind_takes_a_statement_back() -> None:
    lines = [
        *CLEAN[:3],
        ("a", "And your e-mail?"),
        ("u", "Sorry, I got that wrong: my e-mail address is ann@example.com."),
        *CLEAN[3:],
    ]
    assert told(lines).faults == []


def test_a_no_to_a_wrong_proposal_and_a_yes_to_the_right_one_are_fine() -> None:
    assert (
        told([*CLEAN[:3], ("a", WRONG), ("u", "No, it is order #W1234567."), *CLEAN[3:]]).faults
        == []
    )


def test_the_same_events_give_the_same_ledger_and_reading_twice_changes_nothing() -> None:
    lines, end, task = INJECTED["loop"]
    assert told(lines, task, end).faults == told(lines, task, end).faults


# -- clean runs ----------------------------------------------------------------------------------


def run(assistant: str, index: int, split: str, preset: str) -> Episode:
    cast = {"assistant": Seat(assistant), "user": Seat("retail_user", options={"preset": preset})}
    return asyncio.run(play(Plan(SHOP, cast, f"{split}/{index}", 0)))


def audit(episode: Episode) -> Ledger:
    ledger = Ledger(task_of(SHOP, episode.task), RETAIL)
    for event in SHOP.retold(episode).events:
        ledger.see(event)
    return ledger


@pytest.mark.longest
@pytest.mark.parametrize("assistant", ["retail_oracle", "retail_scripted"])
def test_no_scripted_customer_has_a_fault(assistant: str) -> None:
    for number, preset in enumerate(PRESETS):
        for index in range(number, 200, 16):
            found = audit(run(assistant, index, "val", preset)).faults
            assert found == [], (preset, index)


@pytest.mark.long
@pytest.mark.parametrize(
    "assistant",
    [
        "retail_nothing",
        "retail_echo",
        "retail_refuse",
        "retail_wrong_item",
        "retail_forgets_to_confirm",
    ],
)
def test_a_bad_assistant_is_not_the_customers_fault(assistant: str) -> None:
    for number, preset in enumerate(PRESETS):
        for index in range(number, 200, 40):
            found = audit(run(assistant, index, "val", preset)).faults
            assert found == [], (preset, index)


def test_a_request_that_is_not_of_the_task_is_certain_once_it_is_made() -> None:
    request = "Please return the Kite of order #W1234567."
    call = ToolCall("c", "return_delivered_order_items", {"order_id": "#W1234567"})
    for asked_first, texts in (("user", [request]), ("", ["Shall I return the Kite?", request])):
        ledger = Ledger(TASK, RETAIL)
        for step, text in enumerate(texts):
            who = "assistant" if text.startswith("Shall") else "user"
            ledger.see(Event(step, "said", who, text))
        ledger.see(Event(5, "called", "assistant", call=call, result="Error: no"))
        sure = [fault for fault in ledger.faults if fault.kind == "off_task"]
        assert [fault.step for fault in sure] == ([0] if asked_first else [])


@pytest.mark.parametrize("said", ["Please don't return it.", "How much if I returned the Kite?"])
def test_what_a_customer_denies_or_supposes_is_not_asked_for(said: str) -> None:
    ledger = Ledger(TASK, RETAIL)
    call = ToolCall("c", "return_delivered_order_items", {"order_id": "#W1234567"})
    ledger.see(Event(0, "said", "user", said))
    assert ledger.see(Event(1, "called", "assistant", call=call, result="Error: no")) == ()


def test_who_repeats_an_answer_to_a_right_proposal_is_in_no_loop() -> None:
    again = ("u", "I have no objection whatsoever, knock yourself out.")
    lines = [*CLEAN[:3], *[("a", RIGHT), again] * 4]
    assert "loop" not in kinds(told(lines, end="gave_up"))
    assert "loop" in kinds(told([*CLEAN[:3], *[("a", "Which order?"), again] * 4], end="gave_up"))
