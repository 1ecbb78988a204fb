"""Per-turn rewards of a service talk as watchers: named terms, each switchable, with a weight and a
guard. Without any term only the outcome pays.

  outcome        both         the grader's verdict at the end; `strict`: only where the monitor is
  sure of no hard violation progress       assistant    potential P = -d/d0 over canonical facts (d
  to the nearest goal, d0 = its size), paid as gamma*P' - P information    assistant    finding the
  customer, the first read of each record that the solution needs, by shown ids; sums to `weight`
  validity       assistant    minus `weight` for an error, an action that is none, an identical
  call; not for the first try to find the customer policy         assistant    minus `hard` or
  `soft` for each sure finding of the monitor, `words` of it for a clear one of words, to minus
  `cap` communication  assistant    each required fact told after what founds it; sums to `weight`,
  taken back from who tells too many numbers effort         assistant    minus `weight` a turn,
  `repeat` for a text said before, `question` for what was told already, down to minus `cap`
  abstention     assistant    the due refusal or transfer, with nothing changed role           user
  minus `weight` for each sure fault of the ledger, `words` of it for the others, to minus `cap`;
  plus `stop` for an end
                              with all settled
  game           user         the user's own stake: its share of the outcome, or, as an adversary,
  what each hard finding earns while it is faultless

Guards. `progress` in mode `invariant` sets P = 0 at the end, so no weight changes which policies
are best at the run's own `gamma`; mode `dense` keeps the last P and may change it. A record that
can no longer be changed counts double where it is wrong. `effort` is paid to the full at an end
without success, so that giving up early saves nothing. `game` is lost, and what it paid taken
back, at the user's first fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.service.desk.facts import Fact, folded, state
from gem_ma.scenarios.service.desk.overlay import Slot
from gem_ma.scenarios.service.desk.talk import ASSISTANT, USER, Desk, Event, Outcome, Pay, Watcher
from gem_ma.scenarios.service.desk.task import Task
from gem_ma.scenarios.service.domain import CATALOGUE, FIND, PERSONAL, WRITE, Domain
from gem_ma.scenarios.service.grading.grader import Goals, Verdict, facts_told, nearness
from gem_ma.scenarios.service.reading.acts import SURE, read
from gem_ma.scenarios.service.reading.values import GUESSES, Shown, guessed
from gem_ma.scenarios.service.rewards.terms import (
    Effort,
    Game,
    Policy,
    Progress,
    Role,
    Settings,
    Validity,
)
from gem_ma.scenarios.service.watching.ledger import Fault, Ledger
from gem_ma.scenarios.service.watching.monitor import Monitor

from gem_ma.errors import ScenarioError

# -- watchers -------------------------------------------------------------------------------------


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


def watchers(settings: Settings, scene: Scene) -> list[Watcher]:
    """The watchers that pay, in the order of `TERMS`; the outcome is the scenario's own to pay."""
    return [
        made
        for name, term in settings.terms.items()
        if name in PAYERS
        for made in PAYERS[name](term, scene, settings)
    ]


def acted(event: Event) -> bool:
    """Whether the event is what a turn of the assistant came to."""
    return event.agent == ASSISTANT and event.kind in ("said", "called", "bounced")


@dataclass(slots=True)
class _Progress:
    term: Progress
    scene: Scene
    gamma: float
    potential: float | None = None
    began: bool = False

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if self.potential is None:
            self.potential = self._of(Counter())
        if event.kind == "ended":
            if self.term.mode == "invariant" and self.began and self.potential:
                yield self._pay(-self.gamma * self.potential, "the end")
            return
        now = self._now(desk) if event.kind == "called" and not event.failed else self.potential
        if acted(event):
            self.began = True
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
        size = max(1, min(sum(map(abs, goal.values())) for goal in self.scene.goals))

        def weigh(table: str, key: str) -> int:
            if (
                desk is None
                or table not in desk.store.overlay.base.tables
                or not desk.store.overlay.has(table, key)
            ):
                return 1
            data = desk.store.overlay
            was = self.scene.domain.locked(table, key, data.base.tables[table][key])
            return (
                2
                if self.scene.domain.locked(table, key, data.record(table, key)) and not was
                else 1
            )

        return -nearness(done, self.scene.goals, weigh) / size


@dataclass(slots=True)
class _Information:
    weight: float
    scene: Scene
    needed: set[Slot] = field(default_factory=set)
    got: set[Slot] = field(default_factory=set)
    shown: Shown = field(default_factory=Shown)

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
        if (
            event.kind == "called"
            and event.call is not None
            and event.agent == ASSISTANT
            and not event.failed
        ):
            role = self.scene.domain.role(event.call.name)
            if role == FIND:
                found = [("", self.scene.domain.identified(event.call, event.result))]
                if not self.scene.monitor.vouched:
                    found = []
            else:
                found = [
                    slot
                    for slot in self._slots(event.call.name, event.call)
                    if role != WRITE and self.shown.holds(slot[1])
                ]
            for slot in found:
                if slot in self.needed and slot not in self.got:
                    self.got.add(slot)
                    yield Pay(
                        ASSISTANT,
                        self.weight / len(self.needed),
                        f"information: {'the customer' if role == FIND else 'a needed record'} was"
                        " found",
                    )
            self.shown.add(event.result)
        elif event.kind == "said" and event.agent == USER:
            self.shown.add(event.text)


@dataclass(slots=True)
class _Validity:
    term: Validity
    domain: Domain
    made: set[str] = field(default_factory=set)
    left: float = 0.0
    probed: bool = False
    given: list[str] = field(default_factory=list)  # the customer's texts, folded

    def __post_init__(self) -> None:
        self.left = self.term.cap

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if event.kind == "said" and event.agent == USER:
            self.given.append(folded(event.text))
        if not acted(event) or event.kind == "said":
            return
        why = ""
        if event.kind == "bounced":
            why = "an action that is none"
        elif event.call is not None:
            arguments = event.call.arguments
            made = f"{event.call.name}{sorted(arguments.items(), key=repr) if isinstance(arguments, Mapping) else arguments}"
            if made in self.made:
                why = "the same call again"
            elif event.failed and self._excused(event):
                self.probed = True
            elif event.failed:
                why = "an error"
            if not event.failed and desk.store.mutates(event.call.name):
                self.made.clear()  # after a change the same question is a new one
            self.made.add(made)
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
            any(folded(value) in text for text in self.given)
            for value in event.call.arguments.values()
        )


@dataclass(slots=True)
class _Policy:
    term: Policy
    monitor: Monitor
    seen: int = 0
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        for finding in self.monitor.findings[self.seen :]:
            share = 1.0 if finding.sure else self.term.words if finding.clear else 0.0
            cost = min(
                share * (self.term.hard if finding.hard else self.term.soft),
                self.term.cap - self.paid,
            )
            if cost > 0:
                self.paid += cost
                yield Pay(ASSISTANT, -cost, f"policy: {finding.code}")
        self.seen = len(self.monitor.findings)


@dataclass(slots=True)
class _Communication:
    weight: float
    scene: Scene
    told: set[str] = field(default_factory=set)
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        outputs = tuple(dict.fromkeys(self.scene.task.outputs))
        if event.kind == "said" and event.agent == ASSISTANT and len(self.told) < len(outputs):
            so_far = Outcome("", events=tuple(desk.events))
            missing, unfounded = facts_told(
                self.scene.task, so_far, self.scene.domain, self.scene.founded
            )
            for output in outputs:
                if output not in self.told and output not in missing and output not in unfounded:
                    self.told.add(output)
                    self.paid += self.weight / len(outputs)
                    yield Pay(
                        ASSISTANT,
                        self.weight / len(outputs),
                        "communication: a required fact was told",
                    )
        elif event.kind == "ended" and self.paid:
            said = [
                one.text for one in desk.events if one.kind == "said" and one.agent == ASSISTANT
            ]
            shown = [
                one.result for one in desk.events if one.kind == "called" and one.agent == ASSISTANT
            ]
            shown += [one.text for one in desk.events if one.kind == "said" and one.agent == USER]
            if (
                len(
                    guessed(
                        outputs,
                        said,
                        [*shown, *(message.text for message in desk.style.brief_assistant)],
                    )
                )
                > GUESSES
            ):
                yield Pay(
                    ASSISTANT,
                    -self.paid,
                    "communication: taken back, too many numbers that nothing showed",
                )


@dataclass(slots=True)
class _Effort:
    term: Effort
    scene: Scene
    left: float = 0.0
    said: set[str] = field(default_factory=set)
    given: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = self.term.cap

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        if event.kind == "ended":
            verdict = self.scene.verdict(desk)
            if self.left > 0 and verdict.scored and verdict.reward < 1:
                yield Pay(
                    ASSISTANT, -self.left, "effort: nothing is saved by an end without success"
                )
            return
        if event.kind == "said" and event.agent == USER:
            self.given.append(folded(event.text))
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
        if text in self.said:
            yield self.term.repeat, "a text said before"
        self.said.add(text)
        book = self.scene.domain.book
        if book is not None and self.term.question:
            slots = {
                act.slot
                for act in read(event.text, book)
                if act.kind == "ask" and act.confidence >= SURE
            }
            if any(
                slot.name in slots and slot.value and folded(slot.value) in given
                for slot in self.scene.task.knowledge
                for given in self.given
            ):
                yield self.term.question, "asked for what was told"


@dataclass(slots=True)
class _Abstention:
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


@dataclass(slots=True)
class _Role:
    term: Role
    scene: Scene
    seen: int = 0
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        faults = self.scene.ledger.faults
        for fault in faults[self.seen :]:
            cost = min(
                self.term.weight * (1.0 if fault.sure else self.term.words),
                self.term.cap - self.paid,
            )
            if cost > 0:
                self.paid += cost
                yield Pay(USER, -cost, f"role: {fault.kind}")
        self.seen = len(faults)
        if event.kind == "ended" and self.term.stop and event.agent == USER and not faults:
            parts = self.scene.verdict(desk).parts
            if parts.get("database") and parts.get("outcome") and parts.get("facts", True):
                yield Pay(USER, self.term.stop, "role: stopped with all settled")


@dataclass(slots=True)
class _Game:
    term: Game
    scene: Scene
    seen: int = 0
    paid: float = 0.0

    def see(self, event: Event, desk: Desk) -> Iterator[Pay]:
        findings = self.scene.monitor.findings
        fresh, self.seen = findings[self.seen :], len(findings)
        if any(fault.sure or self.term.words for fault in self.scene.ledger.faults):
            if self.paid:
                yield Pay(USER, -self.paid, "game: taken back, the user broke its role")
                self.paid = 0.0
            return
        for finding in fresh:
            share = (
                0.0
                if not finding.hard
                else 1.0
                if finding.sure
                else self.term.words
                if finding.clear
                else 0.0
            )
            won = min(share * self.term.weight, self.term.cap - self.paid)
            if won > 0:
                self.paid += won
                yield Pay(USER, won, f"game: {finding.code}")


Make = Callable[[Any, Scene, Settings], list[Watcher]]
PAYERS: dict[str, Make] = {
    "progress": lambda term, scene, settings: [_Progress(term, scene, settings.gamma)],
    "information": lambda term, scene, settings: [_Information(term.weight, scene)],
    "validity": lambda term, scene, settings: [_Validity(term, scene.domain)],
    "policy": lambda term, scene, settings: [_Policy(term, scene.monitor)],
    "communication": lambda term, scene, settings: [_Communication(term.weight, scene)],
    "effort": lambda term, scene, settings: [_Effort(term, scene)],
    "abstention": lambda term, scene, settings: [_Abstention(term.weight, scene)],
    "role": lambda term, scene, settings: [_Role(term, scene)],
    "game": lambda term, scene, settings: (
        [_Game(term, scene)] if settings.user_reward == "adversarial" else []
    ),
}
NEEDS_LEDGER, NEEDS_MONITOR = (
    frozenset({"role", "game"}),
    frozenset({"policy", "information", "game"}),
)
