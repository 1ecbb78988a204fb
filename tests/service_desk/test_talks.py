"""The labelled talks: what is found is right, and whoever lost a talk is blamed for it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from gem_ma.scenarios.service_desk.watching.findings import CODES, HARD, SOFT
from gem_ma.scenarios.service_desk.watching.ledger import FAULTS

from tests.talks.injected import injected
from tests.talks.measure import Score, audited, by_injection, found, scores
from tests.talks.script import Labelled, talks


@lru_cache(maxsize=1)
def _sure() -> dict[str, Score]:
    """The labelled talks and those with a breach put in, together."""
    both = [scores(talks()), by_injection()]
    rows = {name: [part[name] for part in both if name in part] for name in both[0]}
    return {
        name: Score(
            sum(one.right for one in row),
            sum(one.wrong for one in row),
            sum(one.missed for one in row),
        )
        for name, row in rows.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("name", [*CODES, *FAULTS])
def test_what_is_sure_is_right_in_95_of_100_cases_and_was_seen_20_times(name: str) -> None:
    score = _sure()[name]
    if name in ("confirm_wrong", "off_task"):  # a call or a record shows them, seldom here
        assert score.wrong == 0
        return
    assert score.right >= 20
    assert score.precision is not None and score.precision >= 0.95


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
    assert len(wrong) <= 0.07 * len(talks()), wrong
    assert not any(
        blamed[talk.name] for talk in talks() if not talk.lost and audited(talk).verdict.reward
    )


def test_no_clean_talk_has_a_certain_finding() -> None:
    assert {talk.name: found(talk) for talk in talks() if not talk.marks and found(talk)} == {}


def test_nothing_is_due_to_a_customer_who_cannot_be_found() -> None:
    unknown = audited(_talk("due transfer of somebody who cannot be found"))
    assert unknown.monitor.findings == []
    assert unknown.blame is not None and unknown.blame.side == "user"


def test_a_talk_that_was_cut_may_still_have_come_to_a_due_transfer() -> None:
    whole = _talk("due transfer forgotten")
    assert [one.code for one in audited(whole).monitor.findings] == ["TRANSFER"]
    cut = audited(replace(whole, name="cut", acts=whole.acts[:-1]))
    assert cut.monitor.findings == []
    assert cut.blame is not None and cut.blame.side == "assistant"


def _talk(name: str) -> Labelled:
    return next(talk for talk in talks() if talk.name == name)


def test_a_finding_has_the_grade_of_its_code() -> None:
    clean = [talk for talk in talks() if not talk.marks]
    broken = [edited for talk in clean for _, edited in injected(talk)]
    for talk in (*talks(), *broken):
        for one in audited(talk).monitor.findings:
            assert one.code in (HARD if one.hard else SOFT), (talk.name, one)
