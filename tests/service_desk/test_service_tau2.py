"""Grading by tau2-bench's criteria: every part by hand, and all combinations beside a second
slow implementation."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.log import Event
from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task
from gem_ma.scenarios.service_desk.grading.tau2 import (
    BASES,
    NEEDS_JUDGE,
    Assertion,
    Criteria,
    Expected,
    Score,
    criteria_of,
    grade,
    replayed,
)

from gem_ma import ToolCall

CANCEL = Expected("cancel", {"id": "#1", "reason": "late"})
CALL = ("cancel", {"id": "#1", "reason": "late"})


def score(
    criteria: Criteria | None,
    stopped: bool = True,
    same: bool = True,
    said: tuple[str, ...] = (),
    calls: Any = (),
    **options: Any,
) -> Score:
    return grade(criteria, stopped, same, said, calls, **options)


def test_nothing_is_paid_unless_somebody_ended_the_talk_and_no_criteria_pay_all() -> None:
    assert score(None).reward == 1
    assert score(None, stopped=False).reward == 0
    assert score(Criteria(actions=()), stopped=False) == Score(0.0, {"stopped": False})
    assert score(Criteria(actions=())) == Score(
        1.0, {"stopped": True, "DB": True, "COMMUNICATE": True}
    )


def test_the_database_counts_only_in_the_basis_and_only_where_something_is_expected_of_it() -> None:
    assert score(Criteria(actions=()), same=False).reward == 0
    assert score(Criteria(actions=(), basis=("COMMUNICATE",)), same=False).reward == 1
    assert score(Criteria(assertions=()), same=False).reward == 0
    # neither actions nor assertions in the file: the benchmark looks at no state
    assert score(Criteria(), same=False).reward == 1


@pytest.mark.parametrize(
    ("wanted", "text", "there"),
    [
        ("54.04", "That is $54.04.", True),
        ("1000", "It is 1,000 in all", True),
        ("1,000", "It is 1,000 in all", False),  # the wanted text keeps its comma
        ("Polyester", "it is POLYESTER", True),
        ("10", "order #W1002345", True),  # by substring
        ("625.60", "625.6", False),
    ],
)
def test_what_is_to_be_told_is_a_substring_of_one_text(wanted: str, text: str, there: bool) -> None:
    criteria = Criteria(actions=(), communicate=(wanted,))
    assert score(criteria, said=("hello", text)).reward == there
    assert score(replace(criteria, basis=("DB",)), said=()).reward == 1


def test_two_texts_do_not_join_and_each_wanted_one_counts() -> None:
    criteria = Criteria(actions=(), communicate=("ab", "cd"))
    assert score(criteria, said=("a", "b", "cd")).reward == 0
    assert score(criteria, said=("AB", "xcdx")).reward == 1


@pytest.mark.parametrize(
    ("expected", "call", "met"),
    [
        (CANCEL, CALL, True),
        (CANCEL, ("cancel", {"id": "#1", "reason": "lost"}), False),
        (CANCEL, ("cancel", {"id": "#1"}), True),  # only what the call has is compared
        (CANCEL, ("cancel", {}), True),  # so a call without arguments matches anything
        (CANCEL, ("cancel", {"id": "#1", "reason": "late", "more": 1}), False),
        (CANCEL, ("refund", {"id": "#1", "reason": "late"}), False),
        (replace(CANCEL, compare=()), ("cancel", {"id": "#2"}), True),  # the name only
        (replace(CANCEL, compare=("id",)), ("cancel", {"id": "#1", "reason": "lost"}), True),
        (replace(CANCEL, compare=("id",)), ("cancel", {"id": "#2", "reason": "late"}), False),
        (replace(CANCEL, compare=("id",)), ("cancel", {"reason": "late"}), False),
        (replace(CANCEL, compare=("nowhere",)), ("cancel", {}), True),
        (replace(CANCEL, arguments={"id": 5}), ("cancel", {"id": 5.0}), True),
        (replace(CANCEL, arguments={"ids": ["a", "b"]}), ("cancel", {"ids": ["b", "a"]}), False),
    ],
)
def test_a_call_meets_an_expected_one_in_the_arguments_that_count(
    expected: Expected, call: Any, met: bool
) -> None:
    assert expected.met_by(*call) is met
    assert (
        score(Criteria(actions=(expected,), basis=("ACTION",)), calls=[("other", {}), call]).reward
        == met
    )


def test_every_expected_action_needs_a_call_and_none_expected_need_none() -> None:
    two = Criteria(actions=(CANCEL, Expected("look", {"id": "#2"})), basis=("ACTION",))
    assert score(two, calls=[CALL]).reward == 0
    assert score(two, calls=[CALL, ("look", {"id": "#2"})]).reward == 1
    assert score(Criteria(basis=("ACTION",))).reward == 1


def test_assertions_hold_on_the_end_state_and_without_a_function_none_does() -> None:
    two = Criteria(
        assertions=(Assertion("is_on", {"x": 1}), Assertion("is_off", value=False)),
        basis=("ENV_ASSERTION",),
    )
    assert score(two, holds=lambda assertion: True).reward == 1
    assert score(two, holds=lambda assertion: assertion.function == "is_on").reward == 0
    assert score(two).reward == 0
    assert score(replace(two, assertions=())).reward == 1


def test_a_task_that_needs_a_judge_is_never_scored_and_shows_its_other_parts() -> None:
    judged = Criteria(actions=(), judged=("was kind",), basis=("DB", "NL_ASSERTION"))
    assert score(judged) == Score(0.0, {"stopped": True, "DB": True}, NEEDS_JUDGE)
    assert score(judged, same=False) == Score(0.0, {"stopped": True, "DB": False}, NEEDS_JUDGE)
    assert score(judged, stopped=False).unscored == NEEDS_JUDGE
    assert score(replace(judged, judged=())) == Score(
        1.0, {"stopped": True, "DB": True, "NL_ASSERTION": True}
    )
    assert score(replace(judged, basis=("DB",))).reward == 1


def slow(criteria: Criteria, same: bool, said: tuple[str, ...], calls: Any, holds: Any) -> float:
    """The product, part after part."""
    reward = 1.0
    for part in criteria.basis:
        if (
            part == "DB"
            and not same
            and not (criteria.actions is None and criteria.assertions is None)
        ):
            reward *= 0
        if part == "COMMUNICATE":
            for wanted in criteria.communicate:
                found = False
                for text in said:
                    found = found or text.lower().replace(",", "").find(wanted.lower()) >= 0
                reward *= found
        if part == "ACTION":
            for expected in criteria.actions or ():
                found = False
                for name, arguments in calls:
                    keys = list(arguments) if expected.compare is None else list(expected.compare)
                    equal = all(
                        (key in arguments) == (key in expected.arguments)
                        and arguments.get(key) == expected.arguments.get(key)
                        for key in keys
                    )
                    found = found or (name == expected.name and equal)
                reward *= found
        if part == "ENV_ASSERTION":
            for assertion in criteria.assertions or ():
                reward *= holds(assertion)
    return reward


def test_random_criteria_agree_with_the_slow_product() -> None:
    rng, seen = random.Random(3), set()
    bases = [basis for size in range(6) for basis in itertools.combinations(BASES, size)]
    values = ({}, {"id": 1}, {"id": 2}, {"id": 1, "x": "a"}, {"x": "a"})
    for _ in range(1500):
        some = [
            Expected(
                rng.choice("fg"),
                rng.choice(values),
                rng.choice((None, None, (), ("id",), ("id", "x"))),
            )
            for _ in range(rng.randint(0, 2))
        ]
        criteria = Criteria(
            rng.choice((None, tuple(some))),
            rng.choice((None, (), (Assertion("on"),), (Assertion("on"), Assertion("off")))),
            tuple(rng.sample(("a", "B,", "10"), rng.randint(0, 2))),
            (),
            rng.choice(bases),
        )
        said = tuple(rng.choice(("a b,", "10", "Ab", "1,0")) for _ in range(rng.randint(0, 3)))
        calls = [(rng.choice("fg"), rng.choice(values)) for _ in range(rng.randint(0, 3))]
        same, on = rng.random() < 0.6, rng.random() < 0.6

        def holds(assertion: Assertion, on: bool = on) -> bool:
            return on or assertion.function == "off"

        ours = grade(criteria, True, same, said, calls, holds).reward
        assert ours == slow(criteria, same, said, calls, holds)
        seen.add(ours)
    assert seen == {0.0, 1.0}


def test_a_task_of_another_form_is_graded_by_its_solution_and_outputs() -> None:
    task = Task("t", "own", "u", "", (GoldCall("cancel", {"id": "#1"}),), ("10",))
    assert criteria_of(task) == Criteria(
        (Expected("cancel", {"id": "#1"}),), None, ("10",), (), ("DB", "COMMUNICATE")
    )
    assert criteria_of(replace(task, raw={"evaluation_criteria": None})) is None


class Switches:
    """A desk of another domain: switches that can be flipped, and looked at."""

    def __init__(self) -> None:
        self.overlay = Overlay(Base({"switches": {"a": {"on": False}, "b": {"on": False}}}))

    def call(self, tool: str, kwargs: Any) -> str:
        name = kwargs.get("name")
        if not self.overlay.has("switches", name):
            return "Error: no such switch"
        record = self.overlay.draft("switches", name)
        if tool == "flip":
            record["on"] = not record["on"]
            return self.overlay.commit({("switches", name): record})
        return self.overlay.text("switches", name)

    def mutates(self, tool: str) -> bool:
        return tool == "flip"

    def terminates(self, tool: str) -> bool:
        return False


def test_a_log_is_replayed_by_the_calls_of_one_side_that_can_change_something() -> None:
    def called(name: str, switch: str, agent: str = "assistant") -> Event:
        return Event(0, "called", agent, call=ToolCall("c", name, {"name": switch}))

    log = [
        called("flip", "a"),
        called("look", "b"),
        called("flip", "z"),
        called("flip", "b", "user"),
        Event(0, "said", "assistant", "flip b"),
    ]
    state = replayed(Switches(), log).overlay
    assert [state.record("switches", name)["on"] for name in "ab"] == [True, False]
    assert replayed(Switches(), log, "user").overlay.record("switches", "b")["on"] is True
    assert not replayed(Switches(), []).overlay.touched()
    on = Assertion("is_on", {"name": "a"})
    criteria = Criteria(
        None, (on, Assertion("is_on", {"name": "b"}, False)), basis=("ENV_ASSERTION",)
    )

    def holds(assertion: Assertion) -> bool:
        return (
            state.record("switches", assertion.arguments["name"])["on"] is True
        ) == assertion.value

    assert grade(criteria, True, False, (), (), holds).reward == 1
    assert (
        grade(
            replace(criteria, assertions=(replace(on, value=False),)), True, True, (), (), holds
        ).reward
        == 0
    )
