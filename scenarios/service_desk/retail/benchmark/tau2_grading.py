"""The reward of tau2-bench for a retail talk: `service.grading.tau2` over the end state that the
log's own writes give on a fresh database."""

from __future__ import annotations

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, EMPTY, USER_EMPTY, Outcome
from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.grading import tau2 as rules
from gem_ma.scenarios.service_desk.retail.domain.grading import Verdict
from gem_ma.scenarios.service_desk.retail.domain.texts import GREETING
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore

SEMANTICS = "tau2"
EMPTY_MESSAGE = "an empty message"


def tau2(task: Task, end: Overlay, gold: Overlay, outcome: Outcome) -> Verdict:
    """The product over the task's reward basis. A task that needs a judge is not scored, its other
    parts are told.

    Nor is a talk with an empty message: the benchmark takes it for an error of the
    infrastructure, plays it again and leaves it out of n. Text beside a call is heard by nobody
    and counts as told. An outcome without a log is judged by its end state.
    """
    if outcome.by == "fault" and any(
        event.kind == "bounced" and event.text in (EMPTY, USER_EMPTY) for event in outcome.events
    ):
        return Verdict(0.0, {"stopped": False}, False, unscored=EMPTY_MESSAGE)
    texts = [
        event.text
        for event in outcome.events
        if event.kind in ("said", "aside") and event.agent == ASSISTANT
    ] or outcome.texts
    calls = [
        (event.call.name, event.call.arguments)
        for event in outcome.events
        if event.call is not None
    ]
    if outcome.events:
        end = rules.replayed(RetailStore(end.base, SEMANTICS), outcome.events).overlay
    stopped = outcome.by in ("user", "transfer")
    score = rules.grade(
        rules.criteria_of(task), stopped, end.equals(gold), (GREETING, *texts), calls
    )
    return Verdict(score.reward, score.parts, not score.unscored, unscored=score.unscored)


def unscored(verdict: Verdict) -> str:
    """Why a verdict of these rules is none, with what the database alone says, for the ledger."""
    alone = f"; {rules.DB} {int(verdict.parts[rules.DB])}" if rules.DB in verdict.parts else ""
    return f"unscored: {verdict.unscored}{alone}"


def database_only(verdict: Verdict) -> float | None:
    """Whether the talk was ended with the right database, whatever else counts; None where the
    database does not count."""
    if not verdict.parts.get("stopped"):
        return 0.0
    return float(verdict.parts[rules.DB]) if rules.DB in verdict.parts else None
