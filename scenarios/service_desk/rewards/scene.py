"""What the terms of one talk are worked out from: its task, its judges, and the events that count
as a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, Desk, Event, Outcome, Pay
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.domain import Domain
from gem_ma.scenarios.service_desk.grading.goals import Goals
from gem_ma.scenarios.service_desk.grading.grader import Verdict
from gem_ma.scenarios.service_desk.watching.ledger import Fault, Ledger
from gem_ma.scenarios.service_desk.watching.monitor import Monitor

from gem_ma.kernel.errors import ScenarioError


class Shadow:
    """The ledger of the user's faults as a watcher that pays nothing; without a phrasebook it
    finds none."""

    def __init__(self, task: Task, domain: Domain) -> None:
        self.ledger = Ledger(task, domain.book) if domain.book is not None else None

    def see(self, event: Event, desk: Desk) -> tuple[Pay, ...]:
        if self.ledger is not None:
            self.ledger.see(event)
        return ()

    @property
    def faults(self) -> list[Fault]:
        """What was found so far."""
        return self.ledger.faults if self.ledger is not None else []


@dataclass(slots=True)
class Judge:
    """The verdict on a talk that is over, worked out once."""

    verdict: Callable[[Desk, Outcome], Verdict]
    known: Verdict | None = None

    def __call__(self, desk: Desk) -> Verdict:
        # Several terms ask for it, and a verdict replays nothing twice.
        if self.known is None:
            if desk.outcome is None:
                raise ScenarioError("a talk is judged when it is over")
            self.known = self.verdict(desk, desk.outcome)
        return self.known


@dataclass(frozen=True, slots=True)
class Scene:
    """What the terms of one talk are worked out from. `verdict` judges a talk that is over,
    `founded` as in the canonical grader."""

    task: Task
    domain: Domain
    goals: Goals
    founded: frozenset[str]
    verdict: Callable[[Desk], Verdict]
    monitor: Monitor
    ledger: Shadow


def acted(event: Event) -> bool:
    """Whether the event is what a turn of the assistant came to."""
    return event.agent == ASSISTANT and event.kind in ("said", "called", "bounced")
