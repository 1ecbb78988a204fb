"""Verdicts of the retail desk: pure functions of (task, end state, state after the solution,
outcome). They look at copies and change nothing.

`tau1` is tau-bench's own rule with its faults, for comparable numbers. `canonical`, the default,
is the grader of `service.grading.grader` over retail's facts (`retail.domain`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gem_ma.scenarios.service_desk.desk import facts as records
from gem_ma.scenarios.service_desk.desk.facts import Fact, cents
from gem_ma.scenarios.service_desk.desk.log import Outcome
from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.grading.goals import founded_by, goals_of, results_of
from gem_ma.scenarios.service_desk.grading.grader import Verdict
from gem_ma.scenarios.service_desk.grading.grader import canonical as judged
from gem_ma.scenarios.service_desk.retail.domain.domain import RETAIL, facts
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore

__all__ = [
    "GRADERS",
    "Gold",
    "Grader",
    "Verdict",
    "canonical",
    "cents",
    "changes",
    "facts",
    "gold_of",
    "gold_state",
    "tau1",
]

# (task, end state, state after the solution, outcome)
Grader = Callable[[Task, Overlay, Overlay, Outcome], Verdict]


@dataclass(frozen=True, slots=True)
class Gold:
    """What a task's solution comes to: the state after it, all acceptable sets of changes, and
    the outputs that its results found."""

    state: Overlay
    goals: tuple[Counter[Fact], ...]
    founded: frozenset[str]


def gold_of(base: Base, semantics: str, task: Task) -> Gold:
    """Works a task's solution out with the real tools."""

    def opened() -> tuple[RetailStore, None]:
        return RetailStore(base, semantics), None

    # Outputs alone need the results: running the reads too costs more than the writes do.
    founded = founded_by(task, results_of(task, opened)) if task.outputs else frozenset[str]()
    return Gold(gold_state(base, semantics, task), goals_of(task, opened, RETAIL), founded)


def gold_state(base: Base, semantics: str, task: Task) -> Overlay:
    """The database after the task's solution; what only reads is not repeated."""
    store = RetailStore(base, semantics)
    # Reads cannot change the state, and one task's gold may hold dozens of them.
    for call in task.actions:
        if store.mutates(call.name):
            store.call(call.name, dict(call.arguments))
    return store.overlay


def changes(data: Overlay) -> Counter[Fact]:
    """What changed since the start, as a signed multiset of facts."""
    return records.changes(data, facts)


def tau1(task: Task, end: Overlay, gold: Overlay, outcome: Outcome) -> Verdict:
    """Equal databases, and each output a substring of some text without its commas; nothing
    where the talk ran into its limit."""
    # Without commas, so that `1,234.50` holds `1234.50`; the output itself keeps its own, as there.
    texts = [text.lower().replace(",", "") for text in outcome.texts]
    parts = {
        # tau-bench works a reward out when a talk is done; one that ran into its bound has none.
        "ended": outcome.by != "limit",
        "database": end.equals(gold),
        "outputs": all(any(output.lower() in text for text in texts) for output in task.outputs),
    }
    return Verdict(float(all(parts.values())), parts)


def canonical(
    task: Task,
    end: Overlay,
    gold: Overlay | Sequence[Counter[Fact]],
    outcome: Outcome,
    founded: frozenset[str] | None = None,
) -> Verdict:
    """The same changes as one of the goals makes, every wanted fact told, and the goal's own
    outcome. `gold`: the goals, or the only good end."""
    return judged(
        task,
        changes(end),
        # One end is a single goal; several are ties, of which any will do.
        (changes(gold),) if isinstance(gold, Overlay) else gold,
        outcome,
        RETAIL,
        founded,
    )


GRADERS: dict[str, Grader] = {"canonical": canonical, "tau1": tau1}
