"""Real talks of a tau-bench checkout, where there is one: what is called certain of them is
true. `benchmarks/few_shot_talks.py` prints all."""

from __future__ import annotations

from functools import lru_cache

import pytest
from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.watching.blame import CRITICAL

from tests.few_shot import CHECKOUT, Talk, needs_few_shot, talks

# by reading: line of the file, and the rule that is broken
BREAKS = {13: "TRANSFER", 19: "MISMATCH", 63: "CONSENT", 64: "CONSENT", 67: "MISMATCH"}


@lru_cache(maxsize=1)
def played() -> tuple[Talk, ...]:
    return tuple(talks(Retail(data=str(CHECKOUT), scoring="tau1")))


@needs_few_shot
def test_the_talks_are_rebuilt_as_they_were_paid() -> None:
    assert len(played()) == 67
    assert sum(talk.audit.verdict.reward for talk in played()) == 62
    assert not any(talk.episode.error for talk in played())


@needs_few_shot
def test_strict_success_keeps_the_paid_talks_that_break_no_rule() -> None:
    paid = [talk for talk in played() if talk.audit.verdict.reward]
    guilty = {talk.line for talk in paid if any(one.hard for one in talk.audit.monitor.findings)}
    clean = {talk.line for talk in paid} - set(BREAKS)
    assert len(clean - guilty) >= 0.95 * len(clean)


@needs_few_shot
@pytest.mark.parametrize("line", sorted(BREAKS))
def test_what_breaks_a_rule_by_its_facts_is_found_in_a_real_talk(line: int) -> None:
    talk = next(talk for talk in played() if talk.line == line)
    assert BREAKS[line] in {one.code for one in talk.audit.monitor.findings if one.hard}


@needs_few_shot
def test_a_paid_talk_has_no_critical_fault_of_the_user_and_no_blame() -> None:
    paid = [talk.audit for talk in played() if talk.audit.verdict.reward]
    assert sum(
        any(fault.kind in CRITICAL for fault in audit.faults) for audit in paid
    ) <= 0.05 * len(paid)
    assert [audit.blame for audit in paid if audit.blame is not None] == []
