"""The labelled talks: what is called sure is right, what is read from words is right often
enough, and whoever lost a talk is blamed for it."""

from __future__ import annotations

from functools import lru_cache

import pytest
from gem_ma.scenarios.service.watching.findings import CODES
from gem_ma.scenarios.service.watching.ledger import SURE_FAULTS

from tests.talks.measure import Score, audited, by_injection, found, parts, scores
from tests.talks.script import talks

SURE = {
    "AUTH",
    "SUBJECT",
    "CONSENT",
    "MISMATCH",
    "FABRICATED",
    "ONE_CALL",
    "TWICE",
    "UNREAD",
    "SAME_ITEM",
    "UNFOUNDED",
    "TRANSFER",
    *SURE_FAULTS,
}


@lru_cache(maxsize=1)
def _sure() -> dict[str, Score]:
    """The labelled talks and those with a breach put in, together."""
    both = [scores(talks(), sure=True), by_injection()]
    rows = {name: [part[name] for part in both if name in part] for name in both[0]}
    return {
        name: Score(
            sum(one.right for one in row),
            sum(one.wrong for one in row),
            sum(one.missed for one in row),
        )
        for name, row in rows.items()
    }


def test_there_are_enough_talks_and_some_were_held_out() -> None:
    tuned, held = parts()
    assert len(tuned) + len(held) == len(talks()) >= 90 and len(held) >= len(talks()) / 3
    assert len({talk.name for talk in talks()}) == len(talks())


@pytest.mark.parametrize("name", sorted(SURE))
def test_what_is_sure_is_right_in_95_of_100_cases_and_was_seen_20_times(name: str) -> None:
    score = _sure()[name]
    assert score.right >= 20
    assert score.precision is not None and score.precision >= 0.95


def test_nothing_else_is_ever_sure() -> None:
    seen = {name for talk in talks() for _, name in found(talk, sure=True)}
    # a call shows these two, where they are sure; otherwise they are read from words
    typed = {"confirm_wrong", "off_task"}
    assert seen <= SURE | typed
    assert all(_sure()[name].wrong == 0 for name in typed)
    assert set(CODES) - SURE == {"REMINDER", "CLAIM"}


@pytest.mark.parametrize("half", [0, 1], ids=["tuned", "held out"])
def test_most_of_what_is_read_from_words_is_right_and_most_is_found(half: int) -> None:
    both = scores(parts()[half]).values()
    right, wrong, missed = (
        sum(getattr(one, what) for one in both) for what in ("right", "wrong", "missed")
    )
    assert right / (right + wrong) >= (0.85, 0.6)[half]
    assert right / (right + missed) >= (0.9, 0.7)[half]


def test_a_talk_is_won_or_lost_as_labelled_and_the_side_that_lost_it_is_blamed() -> None:
    blamed = {
        talk.name: whose.side if (whose := audited(talk).blame) is not None else ""
        for talk in talks()
    }
    wrong = {
        talk.name: (blamed[talk.name], talk.lost)
        for talk in talks()
        if blamed[talk.name] != talk.lost
    }
    assert len(wrong) <= 0.05 * len(talks()), wrong
    assert not any(
        blamed[talk.name] for talk in talks() if not talk.lost and audited(talk).verdict.reward
    )


def test_no_clean_talk_has_a_certain_finding() -> None:
    assert {
        talk.name: found(talk, sure=True)
        for talk in talks()
        if not talk.marks and found(talk, sure=True)
    } == {}
