"""Pay for coming nearer to the due end: progress, information, communication, abstention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.service_desk.desk.facts import Fact, state
from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Desk, Event, Outcome, Pay
from gem_ma.scenarios.service_desk.desk.overlay import Slot
from gem_ma.scenarios.service_desk.domain import CATALOGUE, FIND, PERSONAL, WRITE
from gem_ma.scenarios.service_desk.grading.goals import nearness
from gem_ma.scenarios.service_desk.grading.grader import facts_told
from gem_ma.scenarios.service_desk.reading.founded import GUESSES, Basis, guessed
from gem_ma.scenarios.service_desk.rewards.scene import Scene, acted
from gem_ma.scenarios.service_desk.rewards.terms import (
    Progress,
)


@dataclass(slots=True)
class ProgressPay:
    term: Progress
    scene: Scene
    gamma: float
    potential: float | None = None
    began: bool = False

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if self.potential is None:
            self.potential = self._of(Counter())
        if event.kind == "ended":
            # A potential that is not 0 at the end would pay for where the talk was left: that is
            # what `dense` does.
            if self.term.mode == "invariant" and self.began and self.potential:
                yield self._pay(-self.gamma * self.potential, "the end")
            return
        now = self._now(desk) if event.kind == "called" and not event.failed else self.potential
        if acted(event):
            self.began = True
            # As potential-based shaping has it (Ng, Harada and Russell 1999): gamma times the new
            # less the old.
            moved = self.gamma * now - self.potential
        else:
            # the user moved the world on, within the assistant's last turn
            moved = self.gamma * (now - self.potential) if self.began else 0.0
        if moved:
            yield self._pay(
                moved,
                (
                    "nearer to the goal"
                    if now > self.potential
                    else "further from the goal"
                    if now < self.potential
                    else "time"
                ),
            )
        self.potential = now

    def _pay(self, moved: float, why: str) -> Pay:
        # a record says so where the best policy may have been changed
        kept = "" if self.term.mode == "invariant" else f" ({self.term.mode})"
        return Pay(ASSISTANT, self.term.weight * moved, f"progress: {why}{kept}")

    def _now(self, desk: Desk) -> float:
        return self._of(state((desk.store, desk.user_store), self.scene.domain.facts), desk)

    def _of(self, done: Counter[Fact], desk: Desk | None = None) -> float:
        """-d/d0: facts to the nearest goal, twice where their record can be changed no more, by
        the size of the smallest goal."""
        # The smallest goal, so that one unit is never more than the whole way.
        size = max(1, min(sum(map(abs, goal.values())) for goal in self.scene.goals))

        def weigh(table: str, key: str) -> int:
            if (
                desk is None
                or table not in desk.store.overlay.base.tables
                or not desk.store.overlay.has(table, key)
            ):
                return 1
            data = desk.store.overlay
            # Locked by the talk itself: what was locked before is nobody's fault here.
            was = self.scene.domain.locked(table, key, data.base.tables[table][key])
            return (
                2
                if self.scene.domain.locked(table, key, data.record(table, key)) and not was
                else 1
            )

        return -nearness(done, self.scene.goals, weigh) / size


@dataclass(slots=True)
class InformationPay:
    weight: float
    scene: Scene
    needed: set[Slot] = field(default_factory=set)
    got: set[Slot] = field(default_factory=set)
    basis: Basis = field(default_factory=Basis)

    def __post_init__(self) -> None:
        for call in self.scene.task.actions:
            if call.agent == ASSISTANT:
                self.needed.update(self._slots(call.name, call))

    def _slots(self, name: str, call: Any) -> list[Slot]:
        role = self.scene.domain.role(name)
        if role == FIND:
            return [("", self.scene.task.user_id)]
        return self.scene.domain.records(call) if role in (PERSONAL, CATALOGUE, WRITE) else []

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if event.call is not None and event.agent == ASSISTANT and not event.failed:
            role = self.scene.domain.role(event.call.name)
            if role == FIND:
                slots = [("", self.scene.domain.identified(event.call, event.result))]
                # By the customer's own data: an id that was guessed finds nobody worth paying for.
                if not self.scene.monitor.vouched:
                    slots = []
            else:
                slots = [
                    slot
                    for slot in self._slots(event.call.name, event.call)
                    # By ids that were shown: else reading every record there is would be paid.
                    if role != WRITE and self.basis.holds(slot[1])
                ]
            for slot in slots:
                if slot in self.needed and slot not in self.got:
                    self.got.add(slot)
                    yield Pay(
                        ASSISTANT,
                        self.weight / len(self.needed),
                        f"information: {'the customer' if role == FIND else 'a needed record'} was"
                        " found",
                    )
            # After the payment: a result cannot found the very call that it answers.
            self.basis.add(event.result)
        elif event.kind == "said" and event.agent == USER:
            self.basis.add(event.text)


@dataclass(slots=True)
class CommunicationPay:
    weight: float
    scene: Scene
    facts: set[str] = field(default_factory=set)
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        outputs = tuple(dict.fromkeys(self.scene.task.outputs))
        if event.kind == "said" and event.agent == ASSISTANT and len(self.facts) < len(outputs):
            # Judged anew at each text, since a fact is an answer only together with all that was
            # said before.
            so_far = Outcome("", events=tuple(desk.events))
            missing, unfounded = facts_told(
                self.scene.task, so_far, self.scene.domain, self.scene.founded
            )
            for output in outputs:
                if output not in self.facts and output not in missing and output not in unfounded:
                    self.facts.add(output)
                    self.paid += self.weight / len(outputs)
                    yield Pay(
                        ASSISTANT,
                        self.weight / len(outputs),
                        "communication: a required fact was told",
                    )
        elif event.kind == "ended" and self.paid:
            # Who sprays numbers loses what they won, at the end: before it a sum may still be
            # explained.
            ended = desk.outcome
            if ended and len(guessed(outputs, ended.texts, ended.sources)) > GUESSES:
                yield Pay(
                    ASSISTANT,
                    -self.paid,
                    "communication: taken back, too many numbers that nothing showed",
                )


@dataclass(slots=True)
class AbstentionPay:
    weight: float
    scene: Scene

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if event.kind == "ended" and self.scene.task.goal != "served":
            parts = self.scene.verdict(desk).parts
            if parts.get("outcome") and parts.get("database"):
                yield Pay(
                    ASSISTANT,
                    self.weight,
                    "abstention: the due"
                    f" {'transfer' if self.scene.task.goal == 'transferred' else 'refusal'}",
                )
