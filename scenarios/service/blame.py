"""Who a lost talk is lost by: a pure function of what the monitor, the ledger and the grader found. No model, no second opinion.

The first critical event wins, in the order of the talk; at the same step the user's fault comes first, since an end that the user forces leaves
the assistant no turn. Where nothing critical happened: the task if its own flags say that it is no fair test, the driver's limit if that cut
the talk, the user if all was right but the reason it gave for leaving, or if it left and never asked for a fact that only its briefing knows of, else
the assistant, whose part it was to serve.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gem_ma.scenarios.service.domain import Domain, spoken
from gem_ma.scenarios.service.facts import folded, state
from gem_ma.scenarios.service.grading import Goals, Verdict, nearness
from gem_ma.scenarios.service.ledger import Fault
from gem_ma.scenarios.service.monitor import Finding
from gem_ma.scenarios.service.talk import ASSISTANT, USER, Desk, Event, Outcome, Pay

from gem_ma.types import End

ENVIRONMENT, INFRASTRUCTURE = "environment", "infrastructure"
SIDES = (ASSISTANT, USER, ENVIRONMENT, INFRASTRUCTURE)
CRITICAL = frozenset(("hallucinated_slot", "confirm_wrong", "early_stop", "missed_goal", "refuse_right", "inconsistent", "role_flip", "loop"))
UNFAIR = frozenset(("gold_write_error", "order_sensitive", "needs_judge"))
_FREE = frozenset(("UNFOUNDED", "REMINDER"))  # breaches that lose no task by themselves: they are named where nothing else is

_ASKS = re.compile(
    r"\?|\b(?:how (?:much|many)|what|which|when|where|who|tell me|let me know|(?:want|like|need) to (?:know|find out)|wonder(?:ing)?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Blame:
    """The side, the step and name of its first critical event, and what shows it. `step` is -1 where there is no such event."""

    side: str
    cause: str
    step: int = -1
    evidence: str = ""


@dataclass(slots=True)
class Course:
    """Notes the writes that led away from every goal. A watcher that pays nothing."""

    domain: Domain
    goals: Goals
    strays: list[Finding] = field(default_factory=list)
    far: int | None = None

    def see(self, event: Event, desk: Desk) -> Iterable[Pay]:
        if event.call is None or event.failed:
            return ()
        if self.far is None:
            self.far = nearness(Counter(), self.goals)
        store = desk.store if event.agent == ASSISTANT or desk.user_store is None else desk.user_store
        if store.mutates(event.call.name):
            now = nearness(state((desk.store, desk.user_store), self.domain.facts), self.goals)
            if now > self.far and event.agent == ASSISTANT:
                self.strays.append(Finding(event.step, "wrong_write", True, spoken(event.call)))
            self.far = now
        return ()


def blame(
    findings: Sequence[Finding],
    faults: Sequence[Fault],
    verdict: Verdict | None,
    outcome: Outcome | None,
    end: End = End.TERMINATED,
    *,
    strays: Sequence[Finding] = (),
    owed: bool = False,
    flags: Sequence[str] = (),
    loose: Iterable[str] = (),
) -> Blame | None:
    """Whom a talk is lost by; None where it was won without a hard violation, or cannot be scored.

    `findings` of the monitor, `faults` of the ledger, `strays` of `Course`; `owed`: a yes waited for its write at the end; `loose`: facts that
    the task wants and none of its wishes asks for. `verdict` and `outcome` may be None only where the talk failed outside the agents (`end`).
    """
    if not end.scored:
        return Blame(INFRASTRUCTURE, end.value)
    if verdict is None or outcome is None:
        return Blame(ENVIRONMENT, end.value)
    hard = [finding for finding in findings if finding.hard and finding.sure]
    if not verdict.scored or (verdict.reward and not hard):
        return None
    used = _used(outcome)
    theirs = [fault for fault in faults if fault.kind in CRITICAL and (fault.kind != "hallucinated_slot" or _value(fault) in used)]
    ours = [finding for finding in (*hard, *strays) if finding.code not in _FREE]
    events = [(fault.step, 0, USER, fault.kind, fault.evidence) for fault in theirs]
    events += [(finding.step, 1, ASSISTANT, finding.code, finding.evidence) for finding in ours]
    if events:
        step, _, side, cause, evidence = min(events)
        return Blame(side, cause, step, evidence)
    return _without_event(hard, verdict, outcome, end, owed, flags, loose)


def _without_event(
    hard: Sequence[Finding], verdict: Verdict, outcome: Outcome, end: End, owed: bool, flags: Sequence[str], loose: Iterable[str]
) -> Blame:
    last = outcome.events[-1].step if outcome.events else -1
    parts = verdict.parts
    if unfair := sorted(UNFAIR & set(flags)):
        return Blame(ENVIRONMENT, unfair[0])
    if end.bootstraps:
        return Blame(INFRASTRUCTURE if end is End.TIMEOUT else ENVIRONMENT, end.value, last)
    if outcome.by == "fault":
        return Blame(USER if outcome.events and outcome.events[-1].agent == USER else ASSISTANT, "fault", last)
    if parts.get("database") and parts.get("facts", True) and outcome.by == "user":
        return Blame(USER, "wrong_end", last, f"all was right, and the user left with {outcome.reason}")
    if owed:
        return Blame(ASSISTANT, "no_write_after_consent", last)
    if hard:
        return Blame(ASSISTANT, hard[0].code, hard[0].step, hard[0].evidence)
    if (set(verdict.missing) & set(loose)) and outcome.by == "user" and not _questioned(outcome):
        return Blame(USER, "not_asked", last, ", ".join(verdict.missing))
    if verdict.missing or verdict.unfounded:
        return Blame(ASSISTANT, "missing_fact", last, ", ".join((*verdict.missing, *verdict.unfounded)))
    return Blame(ASSISTANT, "limit" if outcome.by == "limit" else "not_served", last)


def _questioned(outcome: Outcome) -> bool:
    """Whether the user wanted to know anything; a talk without a log counts as if."""
    said = [event.text for event in outcome.events if event.kind == "said" and event.agent == USER]
    return not said or any(_ASKS.search(text) for text in said)


def _value(fault: Fault) -> str:
    """The value that a user made up; the evidence is `slot: value`."""
    return folded(fault.evidence.partition(": ")[2])


def _used(outcome: Outcome) -> set[str]:
    """Every value that stood in a call, folded."""
    used = set()
    for event in outcome.events:
        if event.kind == "called" and event.call is not None and event.agent == ASSISTANT and isinstance(event.call.arguments, dict):
            for value in event.call.arguments.values():
                used |= {folded(part) for part in (value if isinstance(value, list) else [value])}
    return used
