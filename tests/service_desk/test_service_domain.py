"""The machinery of service talks in a second domain: a phone desk with tools on both sides, of
which the machinery knows nothing but its data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.facts import plain, state
from gem_ma.scenarios.service_desk.desk.log import Desk, Outcome
from gem_ma.scenarios.service_desk.desk.talk import retell
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task
from gem_ma.scenarios.service_desk.domain import Domain
from gem_ma.scenarios.service_desk.grading import grader
from gem_ma.scenarios.service_desk.grading.goals import founded_by, goals_of, results_of
from gem_ma.scenarios.service_desk.grading.grader import Verdict
from gem_ma.scenarios.service_desk.rewards.scene import Judge, Scene, Shadow
from gem_ma.scenarios.service_desk.rewards.terms import read_settings
from gem_ma.scenarios.service_desk.rewards.watchers import watchers
from gem_ma.scenarios.service_desk.watching.blame import Course, blame
from gem_ma.scenarios.service_desk.watching.monitor import Monitor

from gem_ma import Action, ToolCall
from tests.phone_desk import EVERY_TERM, PHONE, desk, plan_task, refusal_task, stores

Said = tuple[str, "str | tuple[str, dict[str, Any]]"]  # (agent, a text or a call)


def calls(name: str, /, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return name, arguments


IDA = ("user", "I am Ida, pin 4711. Please move line L-10 to plan P-large. What does it cost?")
FIND = ("assistant", calls("find_client", name="Ida", pin="4711"))
READ = ("assistant", calls("read_line", line_id="L-10"))
PLANS = ("assistant", calls("list_plans"))
ASKED = (
    "assistant",
    (
        "I would move line L-10 to plan P-large for 24.25. Is that everything, and do you confirm"
        " this (yes or no)?"
    ),
)
YES = ("user", "Yes, please.")
SET = ("assistant", calls("set_plan", line_id="L-10", plan_id="P-large"))
DONE = ("assistant", "Line L-10 has been moved to plan P-large. Please switch roaming on.")
ROAM = ("user", calls("set_roaming", line_id="L-10", on=True))
ENDS = ("user", calls("end_conversation", reason="settled"))
GOOD: list[Said] = [IDA, FIND, READ, PLANS, ASKED, YES, SET, DONE, ROAM, ENDS]


def actions(said: Iterable[Said]) -> list[dict[str, Action]]:
    return [
        {
            agent: (
                Action(what)
                if isinstance(what, str)
                else Action("", (ToolCall("c", what[0], what[1]),))
            )
        }
        for agent, what in said
    ]


def grade(task: Task, talk: Desk, outcome: Outcome) -> Verdict:
    founded = founded_by(task, results_of(task, stores))
    return grader.canonical(
        task,
        state((talk.store, talk.user_store), PHONE.facts),
        goals_of(task, stores, PHONE),
        outcome,
        PHONE,
        founded,
    )


class Played:
    """A talk told to its end with everybody watching."""

    def __init__(self, said: list[Said], task: Task | None = None) -> None:
        self.task = task or plan_task()
        goals, founded = (
            goals_of(self.task, stores, PHONE),
            founded_by(self.task, results_of(self.task, stores)),
        )
        self.monitor, self.shadow, self.course = (
            Monitor(PHONE),
            Shadow(self.task, PHONE),
            Course(PHONE, goals),
        )
        scene = Scene(
            self.task,
            PHONE,
            goals,
            founded,
            Judge(lambda talk, outcome: grade(self.task, talk, outcome)),
            self.monitor,
            self.shadow,
        )
        self.paid: list[Any] = []
        talk = desk(
            self.task,
            [self.monitor, self.shadow, self.course, *watchers(read_settings(EVERY_TERM), scene)],
        )
        self.desk = retell(talk, actions(said))
        assert self.desk.outcome is not None
        self.verdict = grade(self.task, self.desk, self.desk.outcome)

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding in self.monitor.findings]

    @property
    def side(self) -> str | None:
        known = (self.monitor.findings, self.shadow.faults, self.verdict, self.desk.outcome)
        found = blame(*known, strays=self.course.strays, undone=self.monitor.undone(self.task))
        return found.side if found is not None else None


def test_a_good_talk_is_paid_with_both_sides_writes_and_breaks_no_rule() -> None:
    played = Played(GOOD)
    assert (played.verdict.reward, played.codes, played.shadow.faults, played.side) == (
        1.0,
        [],
        [],
        None,
    )


def test_without_the_users_own_write_the_goal_is_missed() -> None:
    played = Played([step for step in GOOD if step is not ROAM])
    assert played.verdict.parts == {"database": False, "facts": True, "outcome": True}
    assert played.verdict.distance == 2  # roaming is not True, and still False


def test_a_fact_told_before_it_was_looked_up_is_unfounded() -> None:
    early = [IDA, FIND, READ, ("assistant", "It costs 24.25."), ("user", "Fine, do it."), PLANS]
    played = Played(
        [
            *early,
            (
                "assistant",
                "I would move line L-10 to plan P-large. Is that everything, and do you confirm?",
            ),
            YES,
            SET,
            DONE,
            ROAM,
            ENDS,
        ]
    )
    assert played.verdict.unfounded == ("24.25",)
    assert "UNFOUNDED" in played.codes


BREACHES: list[tuple[str, list[Said]]] = [
    ("AUTH", [IDA, READ, FIND, PLANS, ASKED, YES, SET, DONE, ROAM, ENDS]),
    (
        "SUBJECT",
        [
            IDA,
            FIND,
            ("assistant", calls("set_plan", line_id="L-20", plan_id="P-large")),
            ("assistant", "Hm."),
            ENDS,
        ],
    ),
    ("CONSENT", [IDA, FIND, READ, PLANS, SET, DONE, ROAM, ENDS]),
    (
        "FABRICATED",
        [IDA, FIND, ("assistant", calls("read_line", line_id="L-99")), ("assistant", "Hm."), ENDS],
    ),
    ("TWICE", [*GOOD[:7], SET, DONE, ROAM, ENDS]),
    ("UNREAD", [IDA, FIND, PLANS, ASKED, YES, SET, DONE, ROAM, ENDS]),
    ("UNFOUNDED", [IDA, FIND, READ, ("assistant", "That costs 77.77."), ENDS]),
    ("TRANSFER", [IDA, FIND, ("assistant", calls("hand_over", summary="x"))]),
]


@pytest.mark.parametrize(("code", "said"), BREACHES)
def test_each_code_fires_on_its_own_breach(code: str, said: list[Said]) -> None:
    assert code in Played(said).codes


def test_hidden_calls_of_the_user_found_nothing_that_the_assistant_may_tell() -> None:
    looked = ("user", calls("look_at_phone", line_id="L-10"))
    assert (
        "UNFOUNDED"
        not in Played(
            [looked, ("user", "My phone says 88.5."), FIND, ("assistant", "You said 88.5."), ENDS]
        ).codes
    )
    assert "UNFOUNDED" in Played([IDA, FIND, ("assistant", "Your phone says 88.5."), ENDS]).codes


def test_a_refusal_needs_its_reason_and_silence_is_none() -> None:
    asks = ("user", "I am Ida, pin 4711. Please move line L-11 to plan P-small.")
    look: list[Said] = [asks, FIND, ("assistant", calls("read_line", line_id="L-11"))]
    accepts = ("user", calls("end_conversation", reason="refused"))
    assert (
        Played(
            [
                *look,
                ("assistant", "I am sorry, that is not possible: the line is suspended."),
                accepts,
            ],
            refusal_task(),
        ).verdict.reward
        == 1
    )
    assert (
        Played(
            [*look, ("assistant", "I am sorry, that is not possible."), accepts], refusal_task()
        ).verdict.reward
        == 0
    )
    silent = Played([*look, ("assistant", "Thank you."), accepts], refusal_task())
    assert silent.verdict.reward == 0


def test_choices_and_other_ends_are_as_good_as_the_solution() -> None:
    free = plan_task(
        wishes=(
            plan_task()
            .wishes[0]
            .__class__(
                "set_plan", plan_task().actions[3].arguments, choices=({"plan_id": "P-small"},)
            ),
        )
    )
    assert len(goals_of(free, stores, PHONE)) == 2
    other = plan_task(ends=((GoldCall("add_data", {"line_id": "L-10", "price": 5.0}),),))
    topped = [
        *GOOD[:6],
        ("assistant", calls("add_data", line_id="L-10", price=5)),
        ("assistant", "The data costs 24.25."),
        ROAM,
        ENDS,
    ]
    assert Played(topped, other).verdict.parts["database"]
    assert not Played(topped).verdict.parts["database"]


def test_blame_names_the_side_that_broke_the_talk() -> None:
    assert Played([IDA, FIND, READ, PLANS, ASKED, YES, DONE, ENDS]).side == "assistant"
    assert Played([IDA, FIND, READ, ("assistant", "Let me see."), ENDS]).side == "user"


def test_a_domain_without_a_phrasebook_is_judged_by_all_that_needs_no_words() -> None:
    task = plan_task()
    mute = Domain(
        **{name: getattr(PHONE, name) for name in PHONE.__dataclass_fields__ if name != "book"}
    )
    monitor = Monitor(mute)
    retell(
        desk(task, [monitor, Shadow(task, mute)]),
        actions([("user", "Line L-10, please."), READ, SET, DONE, ENDS]),
    )
    assert {finding.code for finding in monitor.findings} == {"AUTH", "UNREAD", "FABRICATED"}


def test_any_json_record_is_a_multiset_of_facts() -> None:
    one, other = (
        {"a": [{"x": 1}, {"y": 2.0}], "b": None, "c": " T e "},
        {
            "c": "t E",
            "a": [{"y": 2}, {"x": 1.0, "z": None}],
        },
    )
    assert plain("t", "k", one) == plain("t", "k", other)
    assert plain("t", "k", {"a": True}) != plain("t", "k", {"a": 1})
    assert plain("t", "k", {"a": 1.004}) == plain("t", "k", {"a": 1})
