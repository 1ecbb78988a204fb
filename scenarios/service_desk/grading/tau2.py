"""Tasks and grading of tau2-bench's form, for any domain: the shape of its task file, its criteria,
and the product over a reward basis.

The benchmark's documented behaviours are kept, for comparable numbers: nothing is paid unless
the user or the assistant ended the talk, what is not in the basis is not looked at, and an
action without `compare_args` is compared in the arguments that the *call* has, so that a call
without any matches. Assertions in natural language need a judge; without one such a task is
unscored, whatever its other parts say.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import Event, Store
from gem_ma.scenarios.service_desk.desk.shapes import (
    Optional,
    Shape,
    anything,
    flag,
    listed,
    mapping,
    one_of,
    record,
    text,
)
from gem_ma.scenarios.service_desk.desk.task import Task

DB, ENV_ASSERTION, COMMUNICATE, ACTION, NL_ASSERTION = (
    # The benchmark's own names, which stand in its task files.
    "DB",
    "ENV_ASSERTION",
    "COMMUNICATE",
    "ACTION",
    "NL_ASSERTION",
)
BASES = (DB, ENV_ASSERTION, COMMUNICATE, ACTION, NL_ASSERTION)
DEFAULT_BASIS = (DB, COMMUNICATE)
MAX_STEPS, MAX_ERRORS = 200, 10  # of a talk; a call and its result are two steps
NEEDS_JUDGE = "needs judge"


# -- the file ------------------------------------------------------------------------------------

_AGENT = Optional(one_of("assistant", "user"), "assistant")
_TEXTS = Optional(listed(text))
# Keys that nothing here reads may hold anything.
_UNREAD = Optional(anything)
_CALL: dict[str, Shape] = {
    "env_type": _AGENT,
    "func_name": text,
    "arguments": Optional(mapping, {}),
}
_SCENE = record(
    domain=Optional(text),
    reason_for_call=text,
    known_info=Optional(text),
    unknown_info=Optional(text),
    task_instructions=Optional(text),
)


def _instructions(at: str, value: Any) -> Any:
    # A plain text, or an object of four texts; both stand in its files.
    return value if isinstance(value, str) else _SCENE(at, value)


def _name(at: str, value: Any) -> str:
    # Some files number their tasks; True is not a number.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text(at, value)


CRITERIA = record(
    actions=Optional(
        listed(
            record(
                action_id=_UNREAD,
                requestor=_AGENT,
                name=text,
                arguments=Optional(mapping, {}),
                info=_UNREAD,
                compare_args=_TEXTS,
            )
        )
    ),
    env_assertions=Optional(
        listed(record(**_CALL, assert_value=Optional(flag, True), message=_UNREAD))
    ),
    communicate_info=_TEXTS,
    nl_assertions=_TEXTS,
    # Without a basis the benchmark takes these two.
    reward_basis=Optional(listed(one_of(*BASES)), list(DEFAULT_BASIS)),
)
TASK: Shape = record(
    id=_name,
    description=_UNREAD,
    user_scenario=record(persona=Optional(text), instructions=_instructions),
    ticket=_UNREAD,
    initial_state=Optional(
        record(
            initialization_data=Optional(
                record(agent_data=Optional(mapping), user_data=Optional(mapping))
            ),
            initialization_actions=Optional(listed(record(**_CALL))),
            message_history=Optional(listed(mapping)),
        )
    ),
    evaluation_criteria=Optional(CRITERIA),
)


def scene_text(scenario: Mapping[str, Any]) -> str:
    """What the user is told of its situation, laid out as in the benchmark."""
    situation = scenario["instructions"]
    if not isinstance(situation, str):
        # Its order and its words: this is what a user model is told, so numbers compare.
        parts = (
            ("Reason for call", situation["reason_for_call"]),
            ("Known info", situation["known_info"]),
            ("Unknown info", situation["unknown_info"]),
            ("Task instructions", situation["task_instructions"]),
        )
        lines = [f"Domain: {situation['domain']}"] if situation["domain"] is not None else []
        situation = "\n".join(
            lines
            + [
                f"{name}:\n{textwrap.indent(part, chr(9))}"
                for name, part in parts
                if part is not None
            ]
        )
    if scenario["persona"] is None:
        return f"Instructions:\n{textwrap.indent(situation, chr(9))}"
    persona = textwrap.indent(scenario["persona"], chr(9))
    return f"Persona:\n{persona}\nInstructions:\n{textwrap.indent(situation, chr(9))}"


# -- criteria ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expected:
    """A call that the solution makes. `compare`: the arguments that count for ACTION; None =
    those that the call itself has."""

    name: str
    arguments: Mapping[str, Any]
    compare: tuple[str, ...] | None = None

    def met_by(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this call counts as the expected one."""
        if name != self.name:
            return False
        # The benchmark's own fault: without `compare_args` the call's arguments decide, so a call
        # without any always matches.
        names = tuple(arguments) if self.compare is None else self.compare
        return {key: arguments[key] for key in names if key in arguments} == {
            key: self.arguments[key] for key in names if key in self.arguments
        }


@dataclass(frozen=True, slots=True)
class Assertion:
    """A function of the domain that must give `value` for the end state."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    value: bool = True
    agent: str = "assistant"


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a task is graded by. `actions` and `assertions` are None where the file has none,
    which is not the same as an empty list."""

    actions: tuple[Expected, ...] | None = None
    assertions: tuple[Assertion, ...] | None = None
    communicate: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    basis: tuple[str, ...] = DEFAULT_BASIS

    @property
    def needs_judge(self) -> bool:
        """Whether the reward hangs on assertions in natural language."""
        return NL_ASSERTION in self.basis and bool(self.judged)


def criteria_of(task: Task) -> Criteria | None:
    """The criteria of a task; None where its file says that it has none. A task of another form
    has its solution and its outputs."""
    if "evaluation_criteria" not in task.raw:
        return Criteria(
            tuple(Expected(call.name, call.arguments) for call in task.actions), None, task.outputs
        )
    # As it was read: criteria with null in their place are none, and worth 1 by its rule.
    criteria = task.raw["evaluation_criteria"]
    if criteria is None:
        return None
    actions, assertions = criteria["actions"], criteria["env_assertions"]
    return Criteria(
        actions=(
            None
            if actions is None
            else tuple(
                Expected(
                    row["name"],
                    row["arguments"],
                    None if row["compare_args"] is None else tuple(row["compare_args"]),
                )
                for row in actions
            )
        ),
        assertions=(
            None
            if assertions is None
            else tuple(
                Assertion(row["func_name"], row["arguments"], row["assert_value"], row["env_type"])
                for row in assertions
            )
        ),
        communicate=tuple(criteria["communicate_info"] or ()),
        judged=tuple(criteria["nl_assertions"] or ()),
        basis=tuple(criteria["reward_basis"]),
    )


# -- grading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """`reward` is the product of the parts that count, 0 or 1; `unscored` says why it is no
    reward, "" where it is one."""

    reward: float
    parts: Mapping[str, bool] = field(default_factory=dict)
    unscored: str = ""


def fails(assertion: Assertion) -> bool:
    """For a domain without assertion functions: none holds."""
    return False


def grade(
    criteria: Criteria | None,
    stopped: bool,
    same_state: bool,
    texts: Iterable[str],
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    holds: Callable[[Assertion], bool] = fails,
) -> Score:
    """The benchmark's reward.

    `stopped`: the user or the assistant ended the talk. `same_state`: the end state is the one
    that the solution gives. `texts`: those of the assistant. `calls`: name and arguments of all
    calls of both agents. `holds`: evaluates an assertion on the end state.
    """
    unscored = NEEDS_JUDGE if criteria is not None and criteria.needs_judge else ""
    # Nobody ended it: worth 0 there, whatever the state. Without criteria an end is enough.
    if not stopped or criteria is None:
        return Score(float(stopped), {"stopped": stopped}, unscored)
    # then the benchmark looks at no state
    nothing_expected = criteria.actions is None and criteria.assertions is None
    # Without thousands commas, as the wanted facts are written.
    folded = [text.lower().replace(",", "") for text in texts]
    checks: dict[str, Callable[[], bool]] = {
        DB: lambda: same_state or nothing_expected,
        ENV_ASSERTION: lambda: all(holds(assertion) for assertion in criteria.assertions or ()),
        COMMUNICATE: lambda: all(
            any(wanted.lower() in text for text in folded) for wanted in criteria.communicate
        ),
        ACTION: lambda: all(
            any(expected.met_by(*call) for call in calls) for expected in criteria.actions or ()
        ),
        NL_ASSERTION: lambda: True,  # reached only where there is nothing to judge
    }
    # In the order of `BASES`; only what is in the basis is worked out at all.
    parts = {"stopped": True} | {
        part: checks[part]()
        for part in BASES
        if part in criteria.basis and not (unscored and part == NL_ASSERTION)
    }
    return Score(0.0 if unscored else float(all(parts.values())), parts, unscored)


def replayed(store: Store, events: Iterable[Event], agent: str = "assistant") -> Store:
    """The fresh store after the calls of a log that can change it, failed ones included."""
    for event in events:
        if event.call and event.agent == agent and store.mutates(event.call.name):
            store.call(event.call.name, event.call.arguments)
    return store
