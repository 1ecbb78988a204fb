"""What a scenario says about a finished play: four functions of the record, and what kind of
numbers they give.

A run folder keeps what was said as rows (`gem_ma.scores.rows`), and `heads`, world -> `{hooks,
rates, more, less, fixed}`. A judge repeats them for readers that may not ask the scenario, or find
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ScenarioError
from gem_ma.kernel.parsing.legal import parse_action
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.types import Message, Request, ToolCall
from gem_ma.scores.groups import Id, Kinds, Labels, Measures, Success, lost_ids, verdict_of
from gem_ma.scores.metrics import summary_of
from gem_ma.scores.rows import Grouping, PlayRow, Rows
from gem_ma.scores.together import groups_of
from gem_ma.wrappers.around import rules_of

if TYPE_CHECKING:
    from gem_ma.engines.base import Policy

Faults = Callable[[Episode], tuple[int | None, str, str] | None]


class Fault(NamedTuple):
    """`step` is None, and `agent` "", where no turn and no agent is to blame."""

    step: int | None
    agent: str
    why: str


def fault_of(episode: Episode, faults: Faults | None) -> Fault | None:
    """What lost the play; None where nobody can say. Raises ScenarioError where the hook raises,
    or names what the record does not hold."""
    if faults is None or not episode.end.scored:
        return None
    try:
        said: Any = faults(episode)
    except Exception as error:
        # an author's code may raise anything; which episode it was is worth more than a traceback
        raise ScenarioError(
            f"{_of_play(episode)} raised {type(error).__name__}: {error}"
        ) from error
    if said is None:
        return None
    fault = Fault(*said) if isinstance(said, tuple) and len(said) == 3 else None
    if (
        fault is None
        or fault.agent not in ("", *episode.cast)
        or fault.step not in {None, *(turn.step for turn in episode.turns)}
        or not isinstance(fault.why, str)
    ):
        raise ScenarioError(
            f"{_of_play(episode)} returned {said!r}; wanted is (step of a turn or None, agent or"
            " '', sentence)"
        )
    return fault


def _of_play(episode: Episode) -> str:
    return f"{episode.scenario}: fault() of task {episode.id[0]}, seed {episode.seed}"


class Said(NamedTuple):
    """What a reader is shown of one act."""

    step: int
    agent: str
    text: str


def said_in(episode: Episode) -> list[Said]:
    """Every act of a play, its tool calls as `name {arguments}` behind its text."""
    acts = []
    for turn in episode.turns:
        calls = [
            f"{call.name} {call.arguments}" if isinstance(call, ToolCall) else call.text
            for call in turn.action.tool_calls
        ]
        acts.append(Said(turn.step, turn.agent, " ".join([turn.action.text, *calls]).strip()))
    return acts


async def read_fault(
    reader: Policy, acts: Sequence[Said], about: str = "", *, most: int = 400
) -> Fault | None:
    """The fault that a policy finds as it reads a lost play: one call of it.

    It is shown what the play was `about` and at most so many characters of each act, and names one
    of them; `why` is what it said. None where its answer names none. An engine that draws among
    legal strings always names one. Raises what the engine raises. A reader's opinion: verdicts
    and rewards never rest on it.
    """
    # late: whoever judges by rules asks no engine, and these import asyncio
    from gem_ma.engines.base import stable_seed

    names = {f"step {act.step}: {act.agent}": act for act in acts}
    if not names:
        return None
    shown = "\n".join(f"step {act.step}: {act.agent}: {act.text[:most]}" for act in acts)
    question = (
        f"{about[:most]}\n{shown}\n\nThese agents did not reach what they should. Which act was the"
        " first mistake that lost it? Answer with its step and its agent, for example"
        f" `{next(iter(names))}`."
    )
    request = Request(
        "reader",
        (Message(question.strip(), "user"),),
        legal=tuple(names),
        sampling=reader.sampling,
        seed=stable_seed("reader", question),
        policy=reader.name,
    )
    text = (await reader.engine.sample(request)).text
    named = parse_action(text, request.legal).parsed
    return None if named is None else Fault(names[named].step, names[named].agent, text)


@dataclass(frozen=True, slots=True)
class Judge:
    """Each function is None where the scenario has no such notion; `groups` where it has neither
    teams nor roles, and groups are those of players alone."""

    success: Success | None = None
    measures: Measures | None = None
    labels: Labels | None = None
    kinds: Kinds = Kinds()
    worlds: Mapping[str, Judge] = field(default_factory=dict)  # of a run of several scenarios
    groups: Grouping | None = None
    faults: Faults | None = None  # what lost a play; no record repeats it

    @classmethod
    def of(cls, scenario: Scenario) -> Judge:
        """The hooks that the scenario's class overrides."""
        # asked of the class: the base's own answers say nothing
        rules = rules_of(scenario)
        kind = type(rules)
        team = scenario.team if kind.team is not Scenario.team or rules.teams else None
        role = scenario.role if kind.role is not Scenario.role else None
        fixed = scenario.zero_sum or scenario.cooperative
        return cls(
            partial(verdict_of, scenario.success) if kind.success is not Scenario.success else None,
            scenario.measures if kind.measures is not Scenario.measures else None,
            scenario.labels if kind.labels is not Scenario.labels else None,
            Kinds(scenario.rates, scenario.more_is_better, scenario.less_is_better, fixed),
            groups=partial(groups_of, team=team, role=role) if team or role else None,
            faults=scenario.fault if kind.fault is not Scenario.fault else None,
        )

    @classmethod
    def among(cls, judges: Mapping[str, Judge]) -> Judge:
        """The judge of a run of several worlds, by their names: each play is judged by its own."""

        def asking(hook: str, other: Callable[[Episode], Any]) -> Any:
            asked = {name: getattr(judge, hook) for name, judge in judges.items()}
            if not any(asked.values()):
                return None
            # a world that the config no longer has is not judged
            return lambda episode: (asked.get(episode.world) or other)(episode)

        hooks = (
            asking("success", lambda _: None),
            asking("measures", lambda _: {}),
            asking("labels", lambda _: {}),
        )
        groups = asking("groups", groups_of)
        faults = asking("faults", lambda _: None)
        kinds = Kinds(worlds={name: judge.kinds for name, judge in judges.items()})
        return cls(*hooks, kinds, dict(judges), groups=groups, faults=faults)

    @classmethod
    def recorded(cls, summary: Mapping[str, Any], episodes: int) -> Judge:
        """What a run's summary says of its plays, for callers that may not ask the scenario; empty
        where they were not judged.

        `episodes`: how many the record holds. A play without a row among the lost ones counts as
        won only where the summary judged all plays and lists every lost one. Raises KeyError and
        TypeError where the summary is damaged.
        """
        success = summary.get("success")
        lost = summary.get("lost")
        if not success or not lost:
            return cls()
        # rows of lost plays hold their measures and labels
        rows = {(row["task"], row["seed"], row["repeat"]): row for row in lost["episodes"]}
        # with fewer judged than played, a play without a row may never have been judged
        judged_all = success["n"] == summary["ok"] and summary["episodes"] == episodes
        ids, named_all = lost_ids(summary)
        otherwise = True if judged_all and named_all else None

        def named(episode: Episode, key: str) -> dict[str, Any]:
            return dict(rows[episode.id][key]) if episode.id in rows else {}

        return cls(
            lambda episode: False if episode.id in ids else otherwise,
            lambda episode: named(episode, "measures"),
            lambda episode: named(episode, "labels"),
        )

    def rows(self, *, strict: bool = False, compares: bool = True) -> Rows:
        """What makes the rows of plays that it judges."""
        hooks = self.success, self.measures, self.labels
        return Rows(*hooks, groups=self.groups, strict=strict, compares=compares)

    def summarise(self, episodes: Iterable[Episode]) -> dict[str, Any]:
        """The summary of these episodes."""
        made = self.rows(strict=True)
        return self.summary([made.of(episode) for episode in episodes])

    def summary(
        self, rows: Sequence[PlayRow], episodes: Callable[[], Iterable[Episode]] = list
    ) -> dict[str, Any]:
        """The summary of plays by their rows, which it has made; `episodes` as in `summary_of`."""
        return summary_of(rows, self.kinds, is_judged=self.success is not None, episodes=episodes)


# -- rows ------------------------------------------------------------------------------------------


HOOKS = ("success", "measures", "labels", "groups")


def heads_of(judge: Judge) -> dict[str, Any]:
    """What a judge judges, for the manifest."""
    return {name: _head(one) for name, one in (judge.worlds or {"": judge}).items()}


def repeating(known: Mapping[Id, PlayRow], heads: Mapping[str, Any]) -> Judge:
    """The judge that says what these rows say, and nothing of other plays. Raises KeyError and
    TypeError where the heads are damaged."""
    worlds = {name: _judge(known, head) for name, head in heads.items()}
    if set(worlds) == {""}:
        return worlds[""]
    hooks = {hook for head in heads.values() for hook in head["hooks"]}
    kinds = Kinds(worlds={name: judge.kinds for name, judge in worlds.items()})
    return replace(_judge(known, {"hooks": hooks}), kinds=kinds, worlds=worlds)


def _judge(known: Mapping[Id, PlayRow], head: Mapping[str, Any]) -> Judge:
    def repeated(hook: str, none: Any) -> Any:
        if hook not in head["hooks"]:
            return None
        return lambda episode: getattr(known.get(episode.id), hook, none)

    rates, more, less = (tuple(head.get(key, ())) for key in ("rates", "more", "less"))
    kinds = Kinds(rates, more, less, bool(head.get("fixed")))
    hooks = (repeated("success", None), repeated("measures", {}), repeated("labels", {}))
    return Judge(*hooks, kinds, groups=repeated("groups", {}))


def _head(judge: Judge) -> dict[str, Any]:
    kinds = judge.kinds
    return {
        "hooks": [hook for hook in HOOKS if getattr(judge, hook) is not None],
        "rates": list(kinds.rates),
        "more": list(kinds.more),
        "less": list(kinds.less),
        "fixed": kinds.fixed,
    }
