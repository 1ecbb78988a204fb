"""Who a lost talk is lost by: a pure function of what the monitor, the ledger and the grader found.
No model, no second opinion.

A talk that was won is nobody's fault. In a lost one the first event decides that could lose it;
at one step, the user's. Where nothing certain happened, it is what the assistant left undone, as
far as texts can be read: a feasible request refused, a yes that waits for its write. Else the
task if its own flags say that it is not a fair test, the driver's limit if that cut the talk, the
user if all was right but the reason it gave for leaving, if it left and never asked for a fact
that only its briefing knows of, or if it was content before anything was done, else the
assistant, whose part it was to serve. What is read from free text is blamed as unsure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gem_ma.scenarios.service_desk.desk.facts import folded, state
from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Desk, Event, Outcome, Pay, said
from gem_ma.scenarios.service_desk.domain import Domain, spoken
from gem_ma.scenarios.service_desk.grading.goals import Goals, nearness
from gem_ma.scenarios.service_desk.grading.grader import Verdict
from gem_ma.scenarios.service_desk.reading.values import like
from gem_ma.scenarios.service_desk.watching.findings import Violation
from gem_ma.scenarios.service_desk.watching.ledger import Fault

from gem_ma.kernel.episode import End
from gem_ma.system.options import flat

ENVIRONMENT, INFRASTRUCTURE = "environment", "infrastructure"
# faults that can lose a talk; an invented value where a call used it
CRITICAL = frozenset(("confirm_wrong", "loop", "off_task", "silent"))
UNFAIR = frozenset(("gold_write_error", "order_sensitive", "needs_judge"))
# breaches that lose no task by themselves: they are named where nothing else is
_FREE = frozenset(("UNFOUNDED",))

_ASKS = re.compile(
    r"\?|\b(?:how (?:much|many)|what|which|when|where|who|tell me|let me know|(?:want|like|need) to"
    r" (?:know|find out)|wonder(?:ing)?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Blame:
    """The side, the step and name of its first critical event, and what shows it. `step` is -1
    without such an event.

    `sure`: it rests on typed facts, and not on what a message is taken to mean.
    """

    side: str
    cause: str
    step: int = -1
    evidence: str = ""
    sure: bool = True


@dataclass(slots=True)
class Course:
    """Notes the writes that led away from every goal. A watcher that pays nothing."""

    domain: Domain
    goals: Goals
    strays: list[Violation] = field(default_factory=list)
    far: int | None = None

    def see(self, event: Event, desk: Desk) -> Iterable[Pay]:
        if event.call is None or event.failed:
            return ()
        # The distance of the untouched world.
        if self.far is None:
            self.far = nearness(Counter(), self.goals)
        store = (
            desk.store if event.agent == ASSISTANT or desk.user_store is None else desk.user_store
        )
        if store.mutates(event.call.name):
            now = nearness(state((desk.store, desk.user_store), self.domain.facts), self.goals)
            # A user's own tools may lead away too, but only the assistant is graded by writes here.
            if now > self.far and event.agent == ASSISTANT:
                self.strays.append(Violation(event.step, "wrong_write", True, spoken(event.call)))
            self.far = now
        return ()


def upheld(faults: Iterable[Fault], won: bool) -> tuple[Fault, ...]:
    """The faults that the end does not contradict: who got what it came for has not agreed to
    something wrong."""
    return tuple(fault for fault in faults if not (won and fault.kind == "confirm_wrong"))


@dataclass(frozen=True, slots=True)
class Terms:
    """What blame knows of a talk beside its findings: the task's `flags`, the facts that it wants
    and that none of its wishes asks for (`loose`)."""

    flags: Sequence[str] = ()
    loose: Iterable[str] = ()
    wrote: bool = False  # the assistant made a write
    refused: bool = False  # a refusal was due, and the assistant refused


@flat
def blame(
    findings: Sequence[Violation],
    faults: Sequence[Fault],
    verdict: Verdict | None,
    outcome: Outcome | None,
    end: End = End.TERMINATED,
    *,
    strays: Sequence[Violation] = (),
    undone: Sequence[Violation] = (),
    terms: Terms = Terms(),
) -> Blame | None:
    """Whom a talk is lost by; None where it was won, or cannot be scored.

    `findings` of the monitor and what it thinks was left `undone`, `faults` of the ledger,
    `strays` of `Course`. The fields of `terms` may be named one by one.
    `verdict` and `outcome` may be None only where the talk failed outside the agents (`end`).
    """
    if not end.scored:
        return Blame(INFRASTRUCTURE, end.value)
    if verdict is None or outcome is None:
        return Blame(ENVIRONMENT, end.value)
    if not verdict.scored or verdict.reward:
        return None
    hard = [finding for finding in findings if finding.hard]
    used = _used(outcome)
    # An invented value that no call used has lost nothing.
    events = [
        _by_user(fault)
        for fault in faults
        if fault.kind in CRITICAL or (fault.kind == "hallucinated_slot" and _value(fault) in used)
    ]
    events += [_by_assistant(finding) for finding in hard if finding.code not in _FREE]
    events += map(_by_assistant, strays)
    # a fact made up, in place of the one that was wanted
    if not events and (verdict.missing or verdict.unfounded):
        events = [_by_assistant(finding) for finding in hard if finding.code == "UNFOUNDED"]
    if events:
        # The earliest one, at one step the user's.
        step, _, side, cause, evidence, sure = min(events)
        return Blame(side, cause, step, evidence, sure)
    if undone:
        # It is read from words, so it is never sure.
        return Blame(ASSISTANT, undone[0].code, undone[0].step, undone[0].evidence, sure=False)
    return _without_event(hard, verdict, outcome, end, terms)


# step, side (0 sorts the user before the assistant), its name, cause, evidence, sure
_Event = tuple[int, int, str, str, str, bool]


def _by_user(fault: Fault) -> _Event:
    return fault.step, 0, USER, fault.kind, fault.evidence, True


def _by_assistant(finding: Violation) -> _Event:
    return finding.step, 1, ASSISTANT, finding.code, finding.evidence, True


def _without_event(
    hard: Sequence[Violation],
    verdict: Verdict,
    outcome: Outcome,
    end: End,
    terms: Terms,
) -> Blame:
    last = outcome.events[-1].step if outcome.events else -1
    parts = verdict.parts
    # First of all: an unfair task proves nothing about either side.
    if unfair := sorted(UNFAIR & set(terms.flags)):
        return Blame(ENVIRONMENT, unfair[0])
    if end.bootstraps:
        return Blame(INFRASTRUCTURE if end is End.TIMEOUT else ENVIRONMENT, end.value, last)
    if outcome.by == "fault":
        return Blame(
            USER if outcome.events and outcome.events[-1].agent == USER else ASSISTANT,
            "fault",
            last,
        )
    # All was done: only the typed reason can be wrong then, or how the assistant refused.
    if parts.get("database") and parts.get("facts", True) and outcome.by == "user":
        if terms.refused and outcome.reason in ("refused", "settled"):
            return Blame(ASSISTANT, "bad_refusal", last, sure=False)
        return Blame(
            USER, "wrong_end", last, f"all was right, and the user left with {outcome.reason}"
        )
    if hard:
        return Blame(ASSISTANT, hard[0].code, hard[0].step, hard[0].evidence)
    # Facts of the briefing alone: an assistant cannot tell what nobody asks for.
    if (
        (set(verdict.missing) & set(terms.loose))
        and outcome.by == "user"
        and not _questioned(outcome)
    ):
        return Blame(USER, "not_asked", last, ", ".join(verdict.missing))
    if _left_early(verdict, outcome) and not terms.wrote:
        what = "content, and nothing was done"
        return Blame(USER, "early_stop", last, what, sure=False)
    if verdict.missing or verdict.unfounded:
        return Blame(
            ASSISTANT, "missing_fact", last, ", ".join((*verdict.missing, *verdict.unfounded))
        )
    return Blame(ASSISTANT, "limit" if outcome.by == "limit" else "not_served", last)


def _left_early(verdict: Verdict, outcome: Outcome) -> bool:
    """Whether the user was content though the assistant's last text told no value of the kind that
    it wanted to know."""
    told = said(outcome.events, ASSISTANT)
    return (
        outcome.by == USER
        and outcome.reason == "settled"
        and bool(told)
        and not any(like(fact, told[-1]) for fact in verdict.missing)
    )


def _questioned(outcome: Outcome) -> bool:
    """Whether the user wanted to know anything; a talk without a log counts as if."""
    texts = said(outcome.events, USER)
    return not texts or any(_ASKS.search(text) for text in texts)


def _value(fault: Fault) -> str:
    """The value that a user made up; the evidence is `slot: value`."""
    return folded(fault.evidence.partition(": ")[2])


def _used(outcome: Outcome) -> set[str]:
    """Every value that stood in a call, folded."""
    used = set()
    for event in outcome.events:
        if event.call and event.agent == ASSISTANT and isinstance(event.call.arguments, dict):
            for value in event.call.arguments.values():
                used |= {folded(part) for part in (value if isinstance(value, list) else [value])}
    return used
