"""The parser of dialogue acts: what it understands of free English, what it never takes for a
yes, and that it looks at the text alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.agents.retail_talk import change, proposal
from gem_ma.scenarios.service_desk.reading.acts import READ, SURE, read
from gem_ma.scenarios.service_desk.reading.answers import answer, changes_mind, corrects
from gem_ma.scenarios.service_desk.reading.proposals import judge
from gem_ma.scenarios.service_desk.reading.values import tells
from gem_ma.scenarios.service_desk.retail import Item, Wish
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.act_scores import scores, verdict
from tests.assistant_messages import MESSAGES, UNSEEN, WISHES
from tests.talks.answers import listed


@pytest.mark.long
def test_the_labelled_messages_are_read_with_the_published_coverage_and_precision() -> None:
    found = scores()
    assert found["messages"] >= 200 and found["judged"] >= 80
    assert found["coverage"] >= 0.97 and found["precision"] >= 0.96 and found["recall"] >= 0.96
    assert found["decisive_precision"] >= 0.97 and found["decisive_recall"] >= 0.97
    assert found["verdicts_right"] >= 0.95


def test_no_labelled_proposal_with_a_fault_or_a_gap_is_taken_for_right() -> None:
    assert [
        text
        for text, _, wish, due in (*MESSAGES, *UNSEEN)
        if wish and due != "yes" and verdict(text, wish) == "yes"
    ] == []


# -- judging -------------------------------------------------------------------------------------

OTHER = {
    "order_id": "#W9999999",
    "reason": "ordered by mistake",
    "payment_method_id": "paypal_0000001",
    "item_ids": ["9999999999"],
    "new_item_ids": ["8888888888"],
    "address1": "13 Mill Bank",
    "address2": "Flat 8",
    "city": "Saltmarsh",
    "state": "ME",
    "country": "Canada",
    "zip": "97302",
}


def asked_for(wish: Wish, arguments: Mapping[str, Any]) -> str:
    return proposal([change(wish.kind, arguments)])


def answered(wish: Wish, text: str) -> str:
    found = [
        judge(act, wish, RETAIL)
        for act in read(text, RETAIL)
        if act.kind == "propose" and act.confidence >= SURE
    ]
    if not found or any(judgement is None for judgement in found):
        return "ask"
    return (
        "no"
        if any(j.wrong for j in found if j)
        else "yes"
        if all(j.right for j in found if j)
        else "ask"
    )


@pytest.mark.parametrize("name", list(WISHES))
def test_a_proposal_with_ids_is_right_as_it_is_and_wrong_with_any_one_argument_changed(
    name: str,
) -> None:
    wish = WISHES[name]
    assert answered(wish, asked_for(wish, wish.arguments)) == "yes"
    for argument in wish.arguments:
        if argument == "user_id":
            continue
        other = (
            OTHER[argument] * len(wish.arguments[argument])
            if isinstance(wish.arguments[argument], list)
            else OTHER[argument]
        )
        assert answered(wish, asked_for(wish, {**wish.arguments, argument: other})) == "no", (
            argument
        )


def test_two_items_of_one_product_with_their_new_ones_swapped_are_wrong_in_ids_and_in_words() -> (
    None
):
    wish = WISHES["two"]
    swapped = {**wish.arguments, "new_item_ids": wish.arguments["new_item_ids"][::-1]}
    assert answered(wish, asked_for(wish, swapped)) == "no"
    turned = {
        **wish.arguments,
        "item_ids": wish.arguments["item_ids"][::-1],
        "new_item_ids": swapped["new_item_ids"],
    }
    assert answered(wish, asked_for(wish, turned)) == "yes"  # both turned: the same pairs
    text = (
        "Shall I change in order #W3456790 the {0} Kite for a {2} one and the {1} Kite for a {3}"
        " one, with your gift card?"
    )
    first, second, third, fourth = (
        "delta 30 m amber",
        "delta 60 m violet",
        "box 30 m amber",
        "diamond 60 m violet",
    )
    assert answered(wish, text.format(first, second, fourth, third)) != "yes"


TWISTED = [(wish, text) for wish, texts in listed("twisted").items() for text in texts]
STRAIGHT = [(wish, text) for wish, texts in listed("straight").items() for text in texts]


@pytest.mark.parametrize(("name", "text"), TWISTED)
def test_a_proposal_that_is_almost_the_wish_or_its_opposite_gets_no_yes(
    name: str, text: str
) -> None:
    assert answered(WISHES[name], text) != "yes"


@pytest.mark.parametrize(("name", "text"), STRAIGHT)
def test_a_proposal_of_the_wish_gets_its_yes_however_it_is_put(name: str, text: str) -> None:
    assert answered(WISHES[name], text) == "yes"


def test_letters_of_a_state_are_no_words_of_the_sentence() -> None:
    wish = replace(WISHES["home"], arguments={**WISHES["home"].arguments, "state": "ME"})
    text = (
        "You want me to change your default address to 12 Mill Bank, Flat 7, Fernhollow, {} 97301,"
        " USA. Is that correct?"
    )
    assert answered(wish, text.format("ME")) == "yes" and answered(wish, text.format("TX")) != "yes"


def test_an_item_that_is_meant_twice_is_named_twice_or_counted() -> None:
    wish = replace(
        WISHES["return"],
        arguments={**WISHES["return"].arguments, "item_ids": ["1111111111", "1111111111"]},
        words={},
    )
    text = "Shall I return from order #W2345678 {}, refunded to paypal_7654321?"
    assert answered(wish, text.format("1111111111, 1111111111")) == "yes"
    assert answered(wish, text.format("both of 1111111111")) == "yes"
    assert answered(wish, text.format("1111111111")) == "ask"


def test_a_number_with_a_point_does_not_end_what_is_said_of_an_item() -> None:
    two = (
        Item("Juicer", {"drive": "fast", "jug": "0.8 l"}),
        Item("Juicer", {"drive": "fast", "jug": "0.5 l"}),
    )
    wish = replace(WISHES["return"], words={"items": two, "method": "my PayPal account"})
    text = (
        "Shall I return the Juicer (drive: fast, jug: {}) and the Juicer (drive: fast, jug: {})"
        " from order #W2345678 and refund it to PayPal?"
    )
    assert (
        answered(wish, text.format("0.8 l", "0.5 l"))
        == answered(wish, text.format("0.5 l", "0.8 l"))
        == "yes"
    )
    assert answered(wish, text.format("0.8 l", "0.8 l")) != "yes"


def test_any_of_the_choices_of_a_wish_serves_it() -> None:
    wish = replace(WISHES["cancel"], choices=({"reason": "ordered by mistake"},))
    for reason in ("no longer needed", "ordered by mistake"):
        assert answered(wish, asked_for(wish, {**wish.arguments, "reason": reason})) == "yes"
    assert answered(wish, asked_for(wish, {**wish.arguments, "order_id": "#W7"})) == "no"


def test_a_proposal_that_names_two_payment_methods_is_asked_about() -> None:
    text = (
        "Shall I return the Kite and the Lantern of order #W2345678, with the refund to PayPal and"
        " to your gift card?"
    )
    assert answered(WISHES["return"], text) == "ask"


def test_what_is_proposed_beside_a_report_is_judged_without_it() -> None:
    text = (
        "Order #W9999999 has been cancelled as ordered by mistake. Shall I also cancel order"
        " #W1234567, which is no longer needed?"
    )
    assert answered(WISHES["cancel"], text) == "yes"


@pytest.mark.parametrize(
    "text",
    [
        "Shall I go ahead?",
        "Do you confirm?",
        "Is that correct?",
        "OK?",
        "Should I proceed with your request (yes/no)?",
    ],
)
def test_a_bare_question_is_a_proposal_that_nobody_can_be_sure_of(text: str) -> None:
    assert [
        act.kind for act in read(text, RETAIL) if act.kind == "propose" and act.confidence >= SURE
    ] == []


# -- a customer's words --------------------------------------------------------------------------


def test_a_change_of_mind_and_a_correction_are_told_from_plain_requests() -> None:
    assert changes_mind("Actually, I have changed my mind. Please cancel it.")
    assert changes_mind("On second thought, no.")
    assert corrects("Sorry, I mistyped: it is 97301.")
    assert not corrects("Please cancel order #W1.")
    assert not changes_mind("Please cancel order #W1.")


@pytest.mark.parametrize(
    ("text", "output", "holds"),
    [
        ("It costs $1,625.60 in all.", "1625.60", True),
        ("It costs 1625.6.", "1625.60", True),
        ("It costs $1,625.61.", "1625.60", False),
        ("1) one kite 2) two kites", "2", True),
        ("Order #W10 has 100 items for 10.99.", "10", False),
        ("There are Ten of them", "10", True),
        ("often", "10", False),
        ("Tracking 746342064230, thanks", "746342064230", True),
        ("It is made of Polyester.", "polyester", True),
        ("12 Mill Bank, Ash", "12 mill bank", True),
        ("112 Mill Bank, Ash", "12 mill bank", False),
    ],
)
def test_a_fact_is_told_by_its_value(text: str, output: str, holds: bool) -> None:
    assert tells(output, [text]) is holds


# -- what holds for every text -------------------------------------------------------------------

PIECES = some.sampled_from(
    [
        *(text for text, *_ in MESSAGES[::9]),
        "#W1",
        "yes",
        "?",
        "\n",
        "- ",
        "###STOP###",
        "credit_card_1",
        "97301",
        "—",
        "“x”",
        "İ",
        "ß",
        "1.",
        ":",
        "or",
    ]
)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(some.one_of(some.text(max_size=80), some.lists(PIECES, max_size=6).map(" ".join)))
def test_any_text_is_read_without_a_fault_and_acts_lie_inside_it(text: str) -> None:
    acts = read(text, RETAIL)
    assert acts and acts == read.__wrapped__(text, RETAIL)
    for act in acts:
        assert 0 <= act.start <= act.end <= len(text) and 0 <= act.confidence <= 1
    for wish in WISHES.values():
        assert set(RETAIL.judge(wish, text).values()) <= {"right", "wrong", "doubtful", "missing"}
    assert answer(text) in ("yes", "no", "") and isinstance(RETAIL.mentions(text), tuple)


def test_of_an_endless_message_its_beginning_and_its_end_are_read() -> None:
    text = "I cannot cancel order #W1. " + "x" * (2 * READ) + "\nShall I cancel order #W2? "
    found = read(text, RETAIL)
    assert {act.kind for act in found} == {"refuse", "propose"}
    assert found[-1].text.endswith("#W2?") and text[: found[-1].end].endswith("#W2?")
