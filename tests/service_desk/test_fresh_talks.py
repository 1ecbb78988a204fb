"""The held-out talks, and the classes of fault that they showed: parts of a yes, bare questions,
sums written out, spans of time, claims of both."""

from __future__ import annotations

from decimal import Decimal

import pytest
from gem_ma.scenarios.retail.domain import domain_of
from gem_ma.scenarios.service.reading.acts import read
from gem_ma.scenarios.service.reading.answers import answer
from gem_ma.scenarios.service.reading.founded import worked_out
from gem_ma.scenarios.service.reading.grants import narrowed, ordered, partly
from gem_ma.scenarios.service.watching.findings import HARD

from tests.talks.answers import meant
from tests.talks.measure import audited, found, scores
from tests.talks.script import Labelled, scenario, talks

PARTS = ("fresh", "later")
HELD_OUT = [*talks("fresh"), *talks("later")]
BOOK = domain_of(scenario().source.world(HELD_OUT[0].task)).book
assert BOOK is not None


def _of(name: str) -> Labelled:
    return next(talk for talk in HELD_OUT if talk.name == name)


@pytest.mark.parametrize("part", PARTS)
def test_held_out_findings_are_mostly_right_and_mostly_there(part: str) -> None:
    every = scores(talks(part)).values()
    right, wrong, missed = (
        sum(getattr(one, what) for one in every) for what in ("right", "wrong", "missed")
    )
    assert right / (right + wrong) >= 0.75
    assert right / (right + missed) >= 0.85


def test_a_talk_that_keeps_the_rules_is_paid_strictly() -> None:
    clean = [talk for talk in HELD_OUT if not talk.marks]
    assert len(clean) >= 30
    assert [talk.name for talk in clean if not audited(talk).verdict.reward] == []
    assert [
        talk.name
        for talk in clean
        if any(one.sure and one.code in HARD for one in audited(talk).monitor.findings)
    ] == []


def test_held_out_answers_are_read_and_none_wrongly_as_a_yes() -> None:
    wrong = {text: answer(text) for text, said in meant("fresh").items() if answer(text) != said}
    assert len(wrong) <= 3 and "yes" not in wrong.values()


@pytest.mark.parametrize(
    ("text", "allows"),
    [
        ("Only the kettle, please. We'll keep the other one.", True),
        ("Yes, cancel the first one. The other one I'd like to hold off on.", True),
        ("Yes. But wait, not yet.", False),
        ("Only the kettle? And what about the other one?", False),
        ("Maybe the first one. I don't know.", False),
    ],
)
def test_a_part_of_a_yes_is_a_yes_to_that_part(text: str, allows: bool) -> None:
    assert bool(partly(text)) is allows
    assert answer(text) != "yes" or not allows


def test_a_proposal_is_narrowed_to_the_entries_that_are_meant() -> None:
    kept, apart = narrowed(
        "I could do both:\n- the kettle, blue\n- the radio, blue\nMay I?", "only the radio"
    )
    assert "radio" in kept and "kettle" not in kept and "kettle" in apart
    assert narrowed("I could do both. May I?", "only the radio") == ("I could do both. May I?", "")


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        ("Please cancel it too.", True),
        ("Let's stick with the return.", True),
        ("I want to cancel something.", False),
        ("Can you cancel it?", False),
    ],
)
def test_an_order_in_so_many_words_names_its_write(text: str, orders: bool) -> None:
    assert bool(ordered(text, BOOK)) is orders  # type: ignore[arg-type]


def test_two_questions_in_a_sentence_are_two_acts() -> None:
    text = (
        "I'd exchange the Desk Lamp of order #W1000833 for the USB one. How would you like to pay,"
        " and may I go ahead?"
    )
    kinds = {act.kind for act in read(text, BOOK)}  # type: ignore[arg-type]
    assert {"ask", "propose"} <= kinds


@pytest.mark.parametrize(("total", "founded"), [("6.75", True), ("6.76", False)])
def test_a_sum_that_is_written_out_founds_its_result(total: str, founded: bool) -> None:
    wild = {Decimal(total)}
    assert worked_out([f"$1.50 + $2.25 + $3.00 = ${total}"], wild) == (wild if founded else set())
    assert worked_out([f"$1.51 + $2.25 + $3.00 = ${total}"], {Decimal("1.51"), *wild}) == set()


@pytest.mark.parametrize(
    ("name", "code", "there"),
    [
        # a span of time that nothing shown speaks of
        ("delivery in three days", "UNFOUNDED", True),
        ("first the chair, then the rest", "UNFOUNDED", False),
        ("half of the addresses", "CLAIM", True),  # both, where one was made
        ("both addresses with emojis", "CLAIM", False),
        ("the order is not known", "REMINDER", False),  # an order that holds nothing else
        ("nothing asked about the rest", "REMINDER", True),
        ("a price from nowhere", "early_stop", False),  # a wrong answer is an answer
        ("white headphones after a hedge", "role_flip", False),
        ("the customer plays the assistant", "role_flip", True),
        ("processed means too late", "late_stop", False),  # who is refused may ask why
        # one of two addresses, told as such
        ("the first address does not exist", "hallucinated_slot", False),
        ("two of three go back", "MISMATCH", False),  # what an order holds is no proposal
        ("glass was agreed", "MISMATCH", True),  # a product by the last word of its name
        ("agrees to the wrong bottle", "confirm_wrong", True),
        # what cannot be undone was not refused
        ("changed its mind after the yes", "TRANSFER", False),
        ("only the chair please", "CONSENT", True),
    ],
)
def test_each_class_that_the_held_out_talks_showed(name: str, code: str, there: bool) -> None:
    assert (code in {kind for _, kind in found(_of(name))}) is there
