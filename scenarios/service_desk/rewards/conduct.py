"""Pay for how the two sides behave on the way: validity, policy, effort, role, game."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gem_ma.scenarios.service_desk.desk.facts import folded
from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Desk, Event, Pay
from gem_ma.scenarios.service_desk.domain import FIND, Domain
from gem_ma.scenarios.service_desk.reading.acts import SURE, read
from gem_ma.scenarios.service_desk.rewards.scene import Scene, acted
from gem_ma.scenarios.service_desk.rewards.terms import (
    Compliance,
    Contest,
    Effort,
    Role,
    Validity,
)
from gem_ma.scenarios.service_desk.watching.monitor import Monitor


@dataclass(slots=True)
class ValidityPay:
    term: Validity
    domain: Domain
    made: set[str] = field(default_factory=set)
    left: float = 0.0
    probed: bool = False
    customer_texts: list[str] = field(default_factory=list)  # the customer's texts, folded

    def __post_init__(self) -> None:
        self.left = self.term.cap

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if event.kind == "said" and event.agent == USER:
            self.customer_texts.append(folded(event.text))
        # What is said is never invalid here; other terms look at texts.
        if not acted(event) or event.kind == "said":
            return
        why = ""
        if event.kind == "bounced":
            why = "an action that is none"
        elif event.call is not None:
            arguments = event.call.arguments
            # By repr, since arguments may be of types that cannot be compared.
            if isinstance(arguments, Mapping):
                arguments = sorted(arguments.items(), key=repr)
            made = f"{event.call.name}{arguments}"
            if made in self.made:
                why = "the same call again"
            elif event.failed and self._excused(event):
                self.probed = True
            elif event.failed:
                why = "an error"
            if not event.failed and desk.store.mutates(event.call.name):
                self.made.clear()  # after a change the same question is a new one
            self.made.add(made)
        # Down to the cap: without one a long talk would be worth less than the worst short one.
        if why and self.left > 0:
            paid = min(self.term.weight, self.left)
            self.left -= paid
            yield Pay(ASSISTANT, -paid, f"validity: {why}")

    def _excused(self, event: Event) -> bool:
        """The first try to find the customer with what the customer said may fail."""
        if (
            self.probed
            or event.call is None
            or self.domain.role(event.call.name) != FIND
            or not isinstance(event.call.arguments, Mapping)
        ):
            return False
        return all(
            any(folded(value) in text for text in self.customer_texts)
            for value in event.call.arguments.values()
        )


@dataclass(slots=True)
class PolicyPay:
    term: Compliance
    monitor: Monitor
    seen: int = 0
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        for finding in self.monitor.findings[self.seen :]:
            cost = self.term.hard if finding.hard else self.term.soft
            cost = min(cost, self.term.cap - self.paid)
            if cost > 0:
                self.paid += cost
                yield Pay(ASSISTANT, -cost, f"policy: {finding.code}")
        self.seen = len(self.monitor.findings)


@dataclass(slots=True)
class EffortPay:
    term: Effort
    scene: Scene
    left: float = 0.0
    own_texts: set[str] = field(default_factory=set)
    customer_texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = self.term.cap

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if event.kind == "ended":
            verdict = self.scene.verdict(desk)
            # What is left of the cap: an assistant that stops early must not save its turns.
            if self.left > 0 and verdict.scored and verdict.reward < 1:
                yield Pay(
                    ASSISTANT, -self.left, "effort: nothing is saved by an end without success"
                )
            return
        if event.kind == "said" and event.agent == USER:
            self.customer_texts.append(folded(event.text))
        if not acted(event):
            return
        for cost, why in self._costs(event):
            paid = min(cost, self.left)
            if paid > 0:
                self.left -= paid
                yield Pay(ASSISTANT, -paid, f"effort: {why}")

    def _costs(self, event: Event) -> Iterator[tuple[float, str]]:
        yield self.term.weight, "a turn"
        if event.kind != "said":
            return
        text = folded(event.text)
        if text in self.own_texts:
            yield self.term.repeat, "a text said before"
        self.own_texts.add(text)
        book = self.scene.domain.book
        if book is not None and self.term.question:
            slots = {
                act.slot
                for act in read(event.text, book)
                if act.kind == "ask" and act.confidence >= SURE
            }
            # Only what the customer really said: a slot that it might have told is a fair question.
            if any(
                slot.name in slots and slot.value and folded(slot.value) in text_heard
                for slot in self.scene.task.knowledge
                for text_heard in self.customer_texts
            ):
                yield self.term.question, "asked for what was told"


@dataclass(slots=True)
class RolePay:
    term: Role
    scene: Scene
    seen: int = 0
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        faults = self.scene.ledger.faults
        for fault in faults[self.seen :]:
            cost = min(self.term.weight, self.term.cap - self.paid)
            if cost > 0:
                self.paid += cost
                yield Pay(USER, -cost, f"role: {fault.kind}")
        self.seen = len(faults)
        # Plus only for who made no fault, and not for the outcome: the user is not paid for the
        # assistant's work.
        if event.kind == "ended" and self.term.stop and event.agent == USER and not faults:
            parts = self.scene.verdict(desk).parts
            if parts.get("database") and parts.get("outcome") and parts.get("facts", True):
                yield Pay(USER, self.term.stop, "role: stopped with all settled")


@dataclass(slots=True)
class GamePay:
    term: Contest
    scene: Scene
    seen: int = 0
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        findings = self.scene.monitor.findings
        fresh, self.seen = findings[self.seen :], len(findings)
        # The first fault ends the game for good; `seen` has moved on, so nothing is paid
        # afterwards.
        if self.scene.ledger.faults:
            if self.paid:
                yield Pay(USER, -self.paid, "game: taken back, the user broke its role")
                self.paid = 0.0
            return
        for finding in fresh:
            won = min(self.term.weight if finding.hard else 0.0, self.term.cap - self.paid)
            if won > 0:
                self.paid += won
                yield Pay(USER, won, f"game: {finding.code}")
