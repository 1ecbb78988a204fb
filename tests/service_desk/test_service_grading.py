"""The canonical grader on a shop so small that every verdict can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.facts import distance
from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Event, Outcome
from gem_ma.scenarios.service_desk.desk.log import said as told
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Wish
from gem_ma.scenarios.service_desk.grading.goals import goals_of
from gem_ma.scenarios.service_desk.grading.refusals import refused, undue
from gem_ma.scenarios.service_desk.reading.acts import SURE, read
from gem_ma.scenarios.service_desk.reading.founded import Basis, worked_out
from gem_ma.scenarios.service_desk.reading.values import kind_of, tells
from gem_ma.scenarios.service_desk.retail import RetailStore, Task
from gem_ma.scenarios.service_desk.retail.domain.domain import RETAIL, facts
from gem_ma.scenarios.service_desk.retail.domain.grading import (
    Gold,
    Verdict,
    canonical,
    changes,
    gold_of,
)
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL as BOOK

from gem_ma import ToolCall
from tests.retail_data import ADDRESS, USER_MOVE, ask, swap, tiny, tiny_tables
from tests.retail_hacks import PLAIN, SHOTGUN
from tests.small_task import task_of
from tests.talks.answers import listed

# by the reason that is due; each scattered one names three or more, of which no two are due
NATURAL = listed("refusals")
SCATTERED = NATURAL.pop("scattered")
SETTLED = Outcome("user", "settled", ("Done.",))
CANCEL = {"order_id": "#W3", "reason": "no longer needed"}
CANCELLED = ("cancel_pending_order", CANCEL)
HANDED = ("transfer_to_human_agents", {"summary": "x"})


def judged(
    task: Task,
    *done: tuple[str, dict[str, Any]],
    outcome: Outcome = SETTLED,
    semantics: str = "tau1",
) -> Verdict:
    store = tiny(semantics)
    for name, arguments in done:
        assert not store.call(name, arguments).startswith("Error"), name
    gold: Gold = gold_of(tiny(semantics).overlay.base, semantics, task)
    return canonical(task, store.overlay, gold.goals, outcome, gold.founded)


def log(*said: Any, by: str = "user", reason: str = "settled") -> Outcome:
    """An outcome with the log of a talk: a text of the assistant, `("user", text)`, or `(tool,
    arguments, result)`."""
    events: list[Event] = []
    for step, entry in enumerate(said):
        if isinstance(entry, str):
            events.append(Event(step, "said", ASSISTANT, entry))
        elif len(entry) == 2:
            events.append(Event(step, "said", USER, entry[1]))
        else:
            events.append(
                Event(
                    step,
                    "called",
                    ASSISTANT,
                    call=ToolCall("c", entry[0], entry[1]),
                    result=entry[2],
                )
            )
    shown = tuple(
        event.text if event.kind == "said" else event.result
        for event in events
        if event.agent == USER or event.kind == "called"
    )
    events.append(Event(len(said), "ended", USER, reason=reason))
    return Outcome(by, reason, told(events, ASSISTANT), shown, tuple(events))


# -- changes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["tau1", "fixed"])
def test_an_exchange_is_its_pairs_though_the_record_may_lose_them(semantics: str) -> None:
    right = swap("#W2", ["I1", "I7"], ["I3", "I8"])
    task = task_of(("exchange_delivered_order_items", right), semantics=semantics)
    turned = {**right, "item_ids": ["I7", "I1"], "new_item_ids": ["I8", "I3"]}
    assert (
        judged(task, ("exchange_delivered_order_items", turned), semantics=semantics).reward == 1.0
    )
    same_kind = swap("#W1", ["I1", "I2"], ["I3", "I4"])
    tables = tiny_tables()
    tables["orders"]["#W1"]["status"] = "delivered"
    straight, crossed = (
        RetailStore(type(tiny().overlay.base)(tables), semantics) for _ in range(2)
    )
    assert not straight.call("exchange_delivered_order_items", same_kind).startswith("Error")
    assert not crossed.call(
        "exchange_delivered_order_items", {**same_kind, "new_item_ids": ["I4", "I3"]}
    ).startswith("Error")
    assert (
        straight.overlay.record("orders", "#W1")["exchange_items"]
        == crossed.overlay.record("orders", "#W1")["exchange_items"]
    )
    assert changes(straight.overlay) != changes(crossed.overlay)
    assert straight.copy().overlay.notes == straight.overlay.notes
    straight.reset()
    assert not changes(straight.overlay)


def test_the_distance_is_the_number_of_facts_in_one_and_not_the_other() -> None:
    task = task_of(CANCELLED)
    # Cancelled: status pending goes, cancelled comes; a reason comes; what was paid is refunded, so
    # its net goes; the balance 5000 becomes 5500.
    assert judged(task).distance == 6
    other = judged(task, ("cancel_pending_order", {**CANCEL, "reason": "ordered by mistake"}))
    assert (other.distance, other.parts) == (2, {"database": False, "facts": True, "outcome": True})
    exact = judged(task, CANCELLED)
    assert (exact.distance, exact.reward) == (0, 1.0)
    done, wanted = changes(tiny().overlay), gold_of(tiny().overlay.base, "tau1", task).goals[0]
    assert (
        distance(done, wanted)
        == distance(wanted, done)
        == sum(abs(count) for count in wanted.values())
    )


def test_null_is_absent_and_an_integer_is_a_float() -> None:
    order = dict(tiny_tables()["orders"]["#W1"])
    full = {**order, "cancel_reason": None, "exchange_items": None, "return_items": None}
    assert facts("orders", "#W1", order) == facts("orders", "#W1", full)
    user = tiny_tables()["users"]["ann_lee_1"]
    methods = {
        **user["payment_methods"],
        "gift_card_1": {"source": "gift_card", "balance": 50.0, "id": "gift_card_1"},
    }
    assert facts("users", "ann_lee_1", user) == facts(
        "users", "ann_lee_1", {**user, "payment_methods": methods}
    )


def test_odd_values_of_a_model_are_facts_and_never_a_crash() -> None:
    for odd in (None, 5, 5.5, True, [], ["x", {"y": None}], {"deep": {"er": []}}, "", "é\ud800"):
        store = tiny()
        ask(store, USER_MOVE, "ann_lee_1", **{**ADDRESS, "address1": odd})
        task = task_of(CANCELLED)
        assert (
            canonical(
                task, store.overlay, gold_of(store.overlay.base, "tau1", task).goals, SETTLED
            ).reward
            == 0.0
        )


def test_any_choice_of_a_wish_and_any_end_of_the_task_is_right() -> None:
    task = task_of(CANCELLED)
    free = replace(
        task,
        wishes=(replace(task.wishes[0], choices=({**CANCEL, "reason": "ordered by mistake"},)),),
    )
    for reason in ("no longer needed", "ordered by mistake"):
        assert judged(free, ("cancel_pending_order", {**CANCEL, "reason": reason})).reward == 1.0
    assert (
        judged(
            free, ("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
        ).reward
        == 0.0
    )
    pay = (
        "modify_pending_order_payment",
        {"order_id": "#W1", "payment_method_id": "credit_card_1"},
    )
    other = replace(task, ends=((GoldCall(*pay),),))
    assert [judged(other, done).reward for done in (pay, CANCELLED)] == [
        1.0,
        1.0,
    ]
    assert judged(other, pay, CANCELLED).reward == 0.0
    assert judged(other, pay).goal == 1


def test_choices_of_several_wishes_combine_and_equal_goals_are_one() -> None:
    returned = {"order_id": "#W2", "item_ids": ["I7"], "payment_method_id": "paypal_1"}
    task = task_of(CANCELLED, ("return_delivered_order_items", returned))
    cancel, back = task.wishes
    free = replace(
        task,
        wishes=(
            replace(cancel, choices=({"reason": "ordered by mistake"},)),
            replace(back, choices=({"payment_method_id": "gift_card_1"}, {})),
        ),
    )
    goals = goals_of(free, lambda: (tiny(), None), RETAIL)
    assert len(goals) == 4
    done = [
        ("cancel_pending_order", {**CANCEL, "reason": "ordered by mistake"}),
        ("return_delivered_order_items", {**returned, "payment_method_id": "gift_card_1"}),
    ]
    assert judged(free, *done).reward == judged(free, *reversed(done)).reward == 1.0


def test_a_solution_that_fails_on_a_write_is_left_out_unless_an_end_is_supplied() -> None:
    broken = task_of(("cancel_pending_order", {"order_id": "#W4", "reason": "no longer needed"}))
    assert not judged(broken).scored
    repaired = replace(broken, ends=((GoldCall(*CANCELLED),),))
    assert judged(repaired, CANCELLED).reward == 1.0
    # inaction, which the broken solution comes to, is no goal
    assert (judged(repaired).scored, judged(repaired).reward) == (True, 0.0)


def test_a_failed_probe_of_the_solution_is_no_goal_and_nothing_to_go_by_is_said() -> None:
    probe = task_of(("find_user_id_by_email", {"email": "nobody@example.com"}), CANCELLED)
    assert "gold_read_error" in probe.flags
    assert judged(probe, CANCELLED).reward == 1.0
    idle = task_of(("get_order_details", {"order_id": "#W1"}))
    assert (judged(idle).scored, judged(idle).reward) == (False, 0.0)


# -- outcomes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "reason", "fits"),
    [
        ("user", "settled", True),
        ("user", "refused", False),
        ("user", "gave_up", False),
        ("user", "transferred", False),
        ("user", "out_of_scope", False),
        ("transfer", "", False),
        ("limit", "", False),
        ("fault", "errors", False),
        ("cut", "", False),
    ],
)
def test_a_served_task_is_one_that_the_user_settled(by: str, reason: str, fits: bool) -> None:
    task = task_of(CANCELLED)
    verdict = judged(task, CANCELLED, outcome=Outcome(by, reason, ("Done.",)))
    assert (verdict.parts["outcome"], verdict.reward) == (fits, float(fits))


def test_a_task_with_a_refused_and_a_served_wish_may_be_left_either_way() -> None:
    task = task_of(CANCELLED)
    mixed = replace(task, wishes=(*task.wishes, Wish("impossible", reason="order_status")))
    for reason, fits in (("settled", True), ("refused", True), ("gave_up", False)):
        assert (
            judged(mixed, CANCELLED, outcome=Outcome("user", reason, ("x",))).parts["outcome"]
            is fits
        )


LATE = Wish(
    "impossible",
    {"order_id": "#W4"},
    intent="cancel",
    reason="order_status",
    text="Please cancel order #W4.",
)


@pytest.mark.parametrize(
    ("texts", "fits"),
    [
        (("I am sorry, this cannot be cancelled, its status is processed.",), True),
        (("Unfortunately I am unable to do that because it has already been processed.",), True),
        (("I can’t cancel it: it is no longer pending.",), True),
        (("I am sorry, that is not possible.",), False),  # no reason
        (("The status is processed.",), False),  # no refusal
        (("All done.",), False),
        ((), False),
        (("I cannot cancel it.", "It isn't possible, since the order has been shipped."), True),
    ],
)
def test_a_due_refusal_is_said_with_its_reason(texts: Sequence[str], fits: bool) -> None:
    task = task_of(("get_order_details", {"order_id": "#W4"}), goal="refused", wishes=(LATE,))
    look = ("get_order_details", {"order_id": "#W4"}, "{}")
    assert refused(task, texts, RETAIL) is fits
    # the user's wrong word for it
    assert judged(task, outcome=log(look, *texts, reason="settled")).reward == float(fits)
    assert judged(task, outcome=log(look, *texts, reason="refused")).reward == float(
        fits or texts == ("The status is processed.",)
    )
    for blind in (
        (),
        (("get_order_details", {"order_id": "#W1"}, "{}"),),
        (("get_order_details", {"order_id": "#W4"}, "Error: x"),),
    ):
        assert judged(task, outcome=log(*blind, *texts, reason="refused")).reward == 0.0
    assert judged(task, outcome=log(look, *texts, reason="gave_up")).reward == 0.0


def test_what_is_offered_in_place_of_a_refused_change_is_no_reason() -> None:
    text = "I can't cancel it, it was delivered. You may return it to your original payment method."
    assert not undue({"order_status"}, [text.lower()], RETAIL)
    told = text.replace("You may return it to", "I can see that it isn't").lower()
    assert undue({"order_status"}, [told], RETAIL) == {"payment_method"}


@pytest.mark.parametrize("reason", NATURAL)
def test_a_refusal_in_natural_words_is_read_and_names_no_other_reason(reason: str) -> None:
    task = task_of(
        goal="refused",
        wishes=(Wish("impossible", {"order_id": "#W4"}, intent="cancel", reason=reason),),
    )
    looks = (
        ("get_user_details", {"user_id": "u"}, "{}"),
        ("get_order_details", {"order_id": "#W4"}, "{}"),
        ("get_product_details", {}, "{}"),
    )
    for text in NATURAL[reason]:
        assert refused(task, (text,), RETAIL), text
        for end in ("refused", "settled"):
            assert judged(task, outcome=log(*looks, text, reason=end)).reward == 1.0, text
        assert judged(task, outcome=log(text, reason="refused")).reward == 0.0, text
    for text in (*SCATTERED, SHOTGUN, PLAIN):
        assert judged(task, outcome=log(*looks, text, reason="refused")).reward == 0.0, text


def test_the_customer_takes_most_natural_refusals_for_one() -> None:
    texts = [text for group in NATURAL.values() for text in group]
    taken = [
        any(act.kind == "refuse" and act.confidence >= SURE for act in read(text, BOOK))
        for text in texts
    ]
    assert sum(taken) >= 0.95 * len(texts)


def test_a_due_transfer_counts_by_its_call_whether_or_not_it_ends_the_talk() -> None:
    task = task_of(HANDED)
    handed = (*HANDED, "Transfer successful")
    assert judged(task, outcome=log(handed)).reward == 1.0
    assert judged(task, outcome=Outcome("transfer")).reward == 1.0
    assert judged(task, outcome=log("I will transfer you to a human.")).reward == 0.0
    assert (
        judged(
            task, outcome=log(("transfer_to_human_agents", {}, "Error: summary is missing"))
        ).reward
        == 0.0
    )
    assert (
        judged(
            task_of(CANCELLED),
            CANCELLED,
            outcome=log(handed, "Done."),
        ).reward
        == 0.0
    )


# -- facts ---------------------------------------------------------------------------------------

ORDER = (
    '{"order_id": "#W2", "items": [{"item_id": "I1", "price": 10.1}, {"item_id": "I1", "price":'
    ' 10.1}, {"item_id": "I7", "price": 5.0}], "n": 40}'
)
LOOK = ("get_order_details", {"order_id": "#W2"}, ORDER)


@pytest.mark.parametrize(
    ("output", "said", "told_well"),
    [
        ("10.1", (LOOK, "An item costs $10.10."), True),
        ("10.1", ("An item costs $10.10.", LOOK), False),  # before it was looked up
        ("10.1", ("An item costs $10.10.", LOOK, "As I said, 10.10."), True),
        ("20.20", (LOOK, "Together $20.20."), True),  # a product, or a sum of two
        ("25.20", (LOOK, "In total $25.20."), True),  # the total of a field
        ("5.1", (LOOK, "The difference is 5.10."), True),
        ("3", (LOOK, "There are three items."), True),  # a count
        ("2", (LOOK, "Two of them are I1."), True),
        ("77.77", (LOOK, "It costs 77.77."), False),
        (
            "77.77",
            (LOOK, ("calculate", {"expression": "7 * 11.11"}, "77.77"), "It costs 77.77."),
            True,
        ),
        # the customer's word is no result
        ("77.77", (("user", "Is it 77.77?"), LOOK, "Yes, 77.77."), False),
        # an error founds nothing
        ("10.1", (("get_order_details", {}, "Error: 10.1"), "It costs 10.10."), False),
    ],
)
def test_a_fact_counts_when_told_after_what_founds_it(
    output: str, said: Sequence[Any], told_well: bool
) -> None:
    task = task_of(CANCELLED, outputs=(output,))
    store = tiny()
    store.call(*CANCELLED)
    verdict = canonical(
        task, store.overlay, gold_of(tiny().overlay.base, "tau1", task).goals, log(*said)
    )
    assert (verdict.reward, verdict.parts["facts"]) == (float(told_well), told_well)
    assert (verdict.missing, verdict.unfounded) == ((), () if told_well else (output,))


def test_no_provenance_is_asked_of_what_the_solution_itself_does_not_find() -> None:
    task = task_of(("get_order_details", {"order_id": "#W2"}), outputs=("777", "25.2"))
    gold = gold_of(tiny().overlay.base, "tau1", task)
    assert gold.founded == {"25.2"}
    assert (
        canonical(
            task, tiny().overlay, gold.goals, log("It is 777.", LOOK, "It is 25.20."), gold.founded
        ).reward
        == 1.0
    )
    assert (
        canonical(
            task, tiny().overlay, gold.goals, log("It is 777 and 25.20.", LOOK), gold.founded
        ).reward
        == 0.0
    )


def test_more_than_three_numbers_out_of_nowhere_void_all_facts_in_whatever_message() -> None:
    task = task_of(CANCELLED, outputs=("25.2",))
    three = log(LOOK, "Maybe 71.5.", "Maybe 72.5, 73.5.", "It is 25.20.")
    four = log(LOOK, "Maybe 71.5.", "Maybe 72.5, 73.5 or 74.5.", "It is 25.20.")
    assert [judged(task, CANCELLED, outcome=outcome).guesses for outcome in (three, four)] == [3, 4]
    assert [judged(task, CANCELLED, outcome=outcome).reward for outcome in (three, four)] == [
        1.0,
        0.0,
    ]
    known = log(
        ("user", "71.5, 72.5, 73.5 or 74.5?"),
        LOOK,
        "Not 71.5, 72.5.",
        "Nor 73.5 or 74.5.",
        "It is 25.20.",
    )
    assert judged(task, CANCELLED, outcome=known).reward == 1.0


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("54.04", "fraction"),
        ("$8,276.23", "fraction"),
        ("10", "whole"),
        ("10.00", "whole"),
        ("746342064230", "id"),
        ("#W1234567", "id"),
        ("20 hours", "phrase"),
    ],
)
def test_values_are_typed(value: str, kind: str) -> None:
    assert kind_of(value) == kind


def test_the_difference_of_several_swaps_is_one_expression_of_a_calculator() -> None:
    order = (
        '{"order_id": "#W1", "items": [{"product_id": "P1", "price": 10.1}, {"product_id": "P2",'
        ' "price": 5.0}, {"product_id": "P3", "price": 1.0}]}'
    )
    kites = '{"product_id": "P1", "variants": {"I3": {"price": 40.45}, "I4": {"price": 999.0}}}'
    lamps = '{"product_id": "P2", "variants": {"I8": {"price": 6.3}, "I9": {"price": 2.2}}}'
    shown = Basis([order, kites, lamps])
    assert shown.founds("31.65")  # 40.45 - 10.10 + 6.30 - 5.00
    assert shown.founds("27.55")  # 40.45 - 10.10 + 2.20 - 5.00
    assert not shown.founds("31.66")
    assert not Basis([order, kites]).founds("31.65")  # the second price was not looked up
    # nothing to do with the entry
    assert not Basis([order, lamps.replace("P2", "P7"), kites]).founds("31.65")


def test_an_empty_output_is_always_told_and_huge_numbers_are_none() -> None:
    assert tells("", ())
    assert not tells("5", ("9" * 10_000,))
    assert Basis(["9" * 10_000, "[" * 5000]).founds("17") is False


# -- tau-bench -----------------------------------------------------------------------------------


def test_a_sum_is_read_in_full_whatever_stands_around_it() -> None:
    long = "+".join(["1"] * 50)
    said = ["3 = 5 + 2 = 7", "$1,000.50 - 1 = 999.5, 2+2 = 5", f"{long} = 41", f"{long} = 50"]
    # the last 41 terms count
    assert worked_out(said, set()) == {Decimal(7), Decimal("999.5"), Decimal(41)}
