"""What lost a talk, in a sentence with its step and side."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gem_ma.scenarios.service_desk.watching.blame import CRITICAL, Blame
from gem_ma.scenarios.service_desk.watching.findings import HARD
from gem_ma.scenarios.service_desk.watching.sentences import DID, told

from gem_ma import Action, make
from gem_ma.kernel.types import Malformed, Message, Turn
from gem_ma.scores.judge import fault_of
from gem_ma.wrappers.around import Around
from gem_ma.wrappers.retry import UNREADABLE, Retry
from tests.service_desk.test_service_blame import SHOP, run

CASTS = ("retail_transfers_early", "retail_nothing", "retail_random_call", "retail_drops_write")


@pytest.mark.parametrize("assistant", CASTS)
def test_each_lost_talk_has_a_sentence_whose_step_is_the_blamed_side_s_own(assistant: str) -> None:
    lost = 0
    for index in range(3):
        episode = run(index, assistant)
        fault = fault_of(episode, SHOP.fault)
        if SHOP.success(episode):
            assert fault is None
            continue
        lost += 1
        assert fault is not None and fault.step is not None
        blame = SHOP.audit(episode).blame
        assert blame is not None and fault.agent == blame.side and fault.step <= blame.step
        assert fault.agent in [turn.agent for turn in episode.turns if turn.step == fault.step]
        assert fault.why.startswith(f"{blame.side} {DID.get(blame.cause, '')}"[:30])
        # no code word where there is a sentence
        assert blame.cause not in fault.why and ("unsure" in fault.why) is not blame.sure
    assert lost


def test_a_talk_that_is_handed_over_early_says_so() -> None:
    episode = run(0, "retail_transfers_early")
    fault = SHOP.fault(episode)
    step = next(turn.step for turn in episode.turns if "transfer" in str(turn.action.tool_calls))
    assert fault == (
        step,
        "assistant",
        "assistant handed over, but the task can be served",
    )


def test_every_cause_of_a_side_has_words() -> None:
    causes = {*HARD, *CRITICAL, "hallucinated_slot"} - {"TRANSFER"}
    assert causes <= DID.keys()


def test_what_neither_side_did_names_none() -> None:
    episode = run(0, "retail_transfers_early")
    unfair = told(Blame("environment", "needs_judge"), episode)
    assert unfair == (None, "", "the task is no fair test (needs_judge)")
    cut = told(Blame("environment", "max_steps", 2), episode)
    assert cut == (episode.turns[2].step, "", "a limit cut the talk (max_steps)")


def test_behind_a_wrapper_the_step_is_that_of_the_record() -> None:
    """An answer that was taken back comes before the hand-over: the rules never saw it."""
    outer = Retry(make("retail", data="own"), 1)
    inner = run(0, "retail_transfers_early")
    fault = SHOP.fault(inner)
    assert fault is not None
    step = fault[0]
    first = next(turn for turn in inner.turns if turn.agent == "assistant")
    broken = Action("", (Malformed("{", "no JSON"),))
    tried = replace(first, action=broken)
    again = Message.system(UNREADABLE.format(why="no JSON"))
    later = [replace(turn, step=turn.step + 1) for turn in inner.turns if turn.step >= first.step]
    later[0] = replace(later[0], observed=(again,))
    turns = tuple(turn for turn in inner.turns if turn.step < first.step)
    record = replace(inner, turns=(*turns, tried, *later))
    assert len(outer.as_ruled(record).turns) == len(inner.turns)
    assert outer.fault(record) == (step + 1, *fault[1:])


def test_of_an_agent_that_a_wrapper_made_others_of_no_step_is_named() -> None:
    class Renamed(Around):
        pass

    outer = Renamed(SHOP)
    inner = run(0, "retail_transfers_early")
    names = {"assistant": "team", "user": "user"}

    def renamed(turn: Turn) -> Turn:
        return replace(turn, agent=names[turn.agent])

    record = replace(
        inner,
        cast={names[agent]: seat for agent, seat in inner.cast.items()},
        turns=tuple(map(renamed, inner.turns)),
    )
    outer.as_ruled = lambda episode: inner  # type: ignore[method-assign]
    found = outer.fault(record)
    assert found is not None and found[:2] == (None, "")
    assert fault_of(record, outer.fault) == found
