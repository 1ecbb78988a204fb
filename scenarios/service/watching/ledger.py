"""The goal ledger beside any user (a model, a human, a replay, a policy being trained): the agenda
of the talk, and the user's faults.

It is fed with the typed events of the talk and logs each fault with step and evidence. Pure and
deterministic; no model, no store, no tool result. A value that is stated and unknown counts as
invented only where the user does not put it right within two of its own messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from gem_ma.scenarios.service.desk.log import ASSISTANT, USER, Event
from gem_ma.scenarios.service.desk.task import Task
from gem_ma.scenarios.service.reading.answers import answer, changes_mind, corrects
from gem_ma.scenarios.service.reading.phrases import Phrasebook, fold, names, plain
from gem_ma.scenarios.service.watching.agenda import (
    APPROVED,
    OPEN,
    RAISED,
    Agenda,
    Goal,
    Heard,
)
from gem_ma.scenarios.service.watching.corpus import (
    ROLE,
    TOKEN,
    corpus,
    grams,
    instruction_grams,
    wanted_by,
    words,
)
from gem_ma.scenarios.service.watching.wishes import lines_of

FAULTS = (
    *("hallucinated_slot", "leak", "copy", "early_stop", "late_stop", "confirm_wrong"),
    *("refuse_right", "inconsistent", "role_flip", "token_leak", "loop", "missed_goal"),
    *("off_task", "silent"),
)
# The others are read from words; on unseen talks most findings of that kind were wrong.
SURE_FAULTS = frozenset(("hallucinated_slot", "copy", "token_leak", "loop", "silent"))
LEAST_PATIENCE = 3  # unhelpful messages in a row that a user must bear before it may give up
CORRECTS_WITHIN = 2  # of the user's own messages, in which a slip may be put right


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the user: what, at which step of the log, and the words that show it. `wish` is
    its place in the task, -1 where none is meant."""

    kind: str
    step: int
    evidence: str
    wish: int = -1
    typed: bool = False  # a call shows it

    @property
    def sure(self) -> bool:
        """Whether it rests on typed values and verbatim text, not on what a message is taken to
        mean."""
        return self.typed or self.kind in SURE_FAULTS


SILENT = 5  # turns in a row that were empty or none at all


class Ledger:
    """The ledger of one talk. `see` takes each event once and gives the faults that it brought;
    `faults` holds all of them."""

    def __init__(self, task: Task, phrasebook: Phrasebook) -> None:
        self.task, self.book, self.agenda = task, phrasebook, Agenda(task, phrasebook)
        # Without a call on record, as in the eyes of the user, what was agreed to is believed.
        self.agenda.blind = True
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.heard: Heard | None = None
        self._assistant_texts = ""  # what the assistant said, folded
        self._texts: list[str] = []
        self._slots: dict[str, str] = {}  # single-valued slots as the user stated them
        # stated and unknown: slot, value, step, user messages since
        self._doubtful: list[tuple[str, str, int, int]] = []
        self._known, self._requests, self._canonical = corpus(task, phrasebook)
        self._grams = instruction_grams(task)
        self._leaked: set[str] = set()
        self._settled_for = 0
        self._ended = False
        self._asked = self._refused = False
        # kinds of changes that are none of the task's, where and how they were asked for
        self._foreign: dict[str, tuple[int, str]] = {}
        self._empty = 0  # actions in a row that were nothing
        # the records that its wishes name; the kinds of changes that the task or the assistant
        # speaks of
        self._records, self._due = wanted_by(task, phrasebook)

    def see(self, event: Event) -> tuple[Fault, ...]:
        """Takes an event in; only what was said and how the talk ended matters."""
        before = len(self.faults)
        if event.kind == "said" and event.agent == ASSISTANT:
            self.heard = self.agenda.hear(event.text)
            self._due = self._due.union(*map(self.book.writes, lines_of(event.text)))
            self._assistant_texts += "\n" + fold(event.text)
            self._refused = any(act.kind == "refuse" for act in self.heard.acts)
            self._asked = any(act.kind in ("ask", "propose") for act in self.heard.acts)
        elif event.kind == "called" and event.call is not None and event.agent == ASSISTANT:
            self.agenda.blind = False
            if not event.failed and isinstance(event.call.arguments, Mapping):
                self.agenda.called(event.call.name, event.call.arguments)
            if event.call.name in self._foreign:
                self._off_task(event.call.name, typed=True)
        elif event.kind == "bounced" and event.agent == USER:
            self._empty += 1
            if self._empty == SILENT:
                self._add("silent", event.step, f"{SILENT} turns in a row that say nothing")
        elif event.kind == "said" and event.agent == USER:
            self._empty = 0
            self._user_text(event.text, event.step)
            if event.reason:
                self._stops(event.reason, event.step, deferred=True)
        elif event.kind == "ended" and not self._ended:
            self._ended = True
            self._close(event)
        return tuple(self.faults[before:])

    @property
    def statuses(self) -> tuple[str, ...]:
        """How far each wish came, in the task's order."""
        return tuple(goal.status for goal in self.agenda.goals)

    def rates(self) -> dict[str, float]:
        """Numbers of the talk: shares of stated values that were invented and of slots that were
        leaked, words a message, share of distinct pairs."""
        words = [plain(text).split() for text in self._texts]
        couples = [couple for line in words for couple in pairwise(line)]
        on_ask = sum(slot.reveal != "opening" and slot.known for slot in self.task.knowledge)
        kinds = Counter(fault.kind for fault in self.faults)
        return {
            "hallucinated": kinds["hallucinated_slot"] / max(1, self.counts["stated"]),
            "leaked": kinds["leak"] / max(1, on_ask),
            "messages": float(len(self._texts)),
            "words": sum(map(len, words)) / max(1, len(words)),
            "distinct_2": len(set(couples)) / max(1, len(couples)),
            "faults": float(len(self.faults)),
        }

    # -- what the user says -----------------------------------------------------------------------

    def _user_text(self, text: str, step: int) -> None:
        reading = answer(text)
        self._protocol(text, step, reading)
        self._values(text, step)
        self._replies(text, step, reading)
        self._requests_other(text, step)
        self._raise(text)
        self._texts.append(text)
        # who is asked may answer, who is refused ask why
        if self.agenda.settled and not self._asked and not (self._refused and "?" in text):
            self._settled_for += 1
            # One message of thanks behind the end is polite; a second one goes on for nothing.
            if self._settled_for == 2:
                self._add("late_stop", step, text)

    def _add(
        self, kind: str, step: int, evidence: str, wish: int = -1, typed: bool = False
    ) -> None:
        self.faults.append(Fault(kind, step, evidence[:200], wish, typed))
        self.counts[kind] += 1

    def _protocol(self, text: str, step: int, reading: str) -> None:
        if hit := TOKEN.search(text):
            self._add("token_leak", step, hit.group())
        if hit := ROLE.search(plain(text)):
            self._add("role_flip", step, hit.group())
        if copied := next((gram for gram in grams(words(text)) if gram in self._grams), None):
            self._add("copy", step, " ".join(copied))
        same = sum(fold(earlier) == fold(text) for earlier in self._texts)
        proposals = self.heard.proposals if self.heard is not None else []
        # The third time, unless it is a short yes or no, which talks repeat, or answers a right
        # proposal: then it is the other side that does not understand.
        if same == 2 and not (
            (reading and len(text.split()) <= 12) or any(each.right for each in proposals)
        ):
            self._add("loop", step, text)

    def _requests_other(self, text: str, step: int) -> None:
        """Notes the kinds of changes that a text asks for and of which neither the task nor the
        assistant speaks."""
        for line in lines_of(text) if self._due else ():
            kinds = self.book.writes(line)
            if not kinds & self._due:
                for kind in kinds - self._foreign.keys():
                    self._foreign[kind] = (step, line)

    def _off_task(self, kind: str, typed: bool = False) -> None:
        """It asked for what is not in its task: for certain once the assistant went to make it."""
        step, line = self._foreign[kind]
        if not self.counts["off_task"]:
            self._add("off_task", step, f"{kind}: {line}", typed=typed)

    def _values(self, text: str, step: int) -> None:
        right_again = corrects(text)
        mentions = self.book.mentions(text)
        # Once a value: a message may name one thousands of times, and a look goes through all that
        # was said.
        values = {(each.slot, each.value) for each in mentions}
        known = {(slot, value): self._knows(slot, value) for slot, value in values}
        known_slots = {slot for (slot, _), knows in known.items() if knows}
        # `One of these two` invents nothing that could mislead, where one of them is right.
        right = known_slots & set(self.book.single)
        stated = [
            each for each in mentions if known[each.slot, each.value] or each.slot not in right
        ]
        # Age in messages of the user's own.
        self._doubtful = [(slot, value, at, age + 1) for slot, value, at, age in self._doubtful]
        for mention in stated:
            self.counts["stated"] += 1
            earlier = self._slots.get(mention.slot)
            if mention.slot in self.book.single:
                if earlier is not None and fold(earlier) != fold(mention.value) and not right_again:
                    self._add(
                        "inconsistent", step, f"{mention.slot}: {earlier}, then {mention.value}"
                    )
                self._slots[mention.slot] = mention.value
        if right_again:
            self.counts["slips"] += sum(slot in known_slots for slot, *_ in self._doubtful)
            self._doubtful = [entry for entry in self._doubtful if entry[0] not in known_slots]
        # What is doubted already is no new doubt when it is told once more.
        waiting = {(slot, value) for slot, value, *_ in self._doubtful}
        fresh = [
            m for m in stated if not known[m.slot, m.value] and (m.slot, m.value) not in waiting
        ]
        # "X, not Y" takes Y back
        if not (right_again and any(mention.slot in known_slots for mention in fresh)):
            self._doubtful += [(mention.slot, mention.value, step, 0) for mention in fresh]
        self._expire(CORRECTS_WITHIN)
        folded = fold(text)
        for slot in self.task.knowledge:
            is_told = (
                slot.reveal != "opening"
                and slot.known
                and slot.value
                and slot.name not in self._leaked
                and names(slot.value, folded)
            )
            if (
                is_told
                and (slot.reveal == "never" or not self.agenda.asked[slot.name])
                # What the assistant or a request has said already cannot leak.
                and not names(slot.value, f"{self._assistant_texts}\n{self._requests}")
            ):
                self._leaked.add(slot.name)
                self._add("leak", step, f"{slot.name}: {slot.value}")

    def _expire(self, age: int) -> None:
        for slot, value, at, since in self._doubtful:
            if since >= age:
                self._add("hallucinated_slot", at, f"{slot}: {value}")
        self._doubtful = [entry for entry in self._doubtful if entry[3] < age]

    # In its own slot, anywhere in the text, or from the assistant's mouth.
    def _knows(self, slot: str, value: str) -> bool:
        return (
            (slot, fold(value)) in self._canonical
            or names(value, self._known)
            or fold(value) in self._assistant_texts
        )

    def _replies(self, text: str, step: int, reading: str) -> None:
        if self.heard is None or not reading:
            return
        proposals = [
            proposal
            for proposal in self.heard.proposals
            if proposal.goal is None or not proposal.goal.final
        ]
        self.heard = None  # one message answers it
        if reading == "yes" and not proposals and not self.agenda.blind:
            # A proposal in words that are not understood: the yes is to what is talked about.
            raised = (goal for goal in self.agenda.goals if goal.status == RAISED)
            if (goal := next(raised, None)) is not None:
                goal.status = APPROVED
        for proposal in proposals:
            goal = proposal.goal
            if reading == "yes":
                if proposal.wrong:
                    # Below that the proposal itself may be misread.
                    if proposal.act.confidence > 0.7:
                        mentioned = {
                            mention.value
                            for mention in self.book.mentions(proposal.act.text)
                            if mention.slot in self.book.anchors
                        }
                        wrong = (
                            proposal.judgement.wrong
                            if proposal.judgement
                            else ("the write itself",)
                        )
                        self._add(
                            "confirm_wrong",
                            step,
                            f"{', '.join(wrong)}: {proposal.act.text}",
                            goal.place if goal else -1,
                            typed=bool(mentioned) and not mentioned & self._records,
                        )
                elif goal is not None:
                    goal.status = APPROVED
                    if proposal.final_wish:
                        goal.before = None
        if (
            reading == "no"
            and proposals
            and all(proposal.right and proposal.final_wish for proposal in proposals)
            and not changes_mind(text)
        ):
            goal = proposals[0].goal
            if goal is not None and goal.before is None:
                self._add("refuse_right", step, proposals[0].act.text, goal.place)

    def _raise(self, text: str) -> None:
        if all(goal.status != OPEN and goal.before is None for goal in self.agenda.goals):
            return
        raised = [goal for goal in self.agenda.goals if self.agenda.raises(goal.wanted, text)]
        for goal in self.agenda.goals:
            if (
                goal.before is not None
                and self.agenda.raises(goal.wish, text)
                and (changes_mind(text) or not self.agenda.raises(goal.before, text))
            ):
                goal.before = None
                goal.status = RAISED
            elif (
                goal.status == OPEN
                and goal in raised
                and not any(
                    other is not goal and self.agenda.nearer(other.wanted, goal.wanted, text)
                    for other in raised
                )
            ):
                goal.status = RAISED

    # -- how it ends ------------------------------------------------------------------------------

    def _stops(self, reason: str, step: int, deferred: bool = False) -> None:
        """A stop with a yes that waits for its write, or before all is settled."""
        waiting = [goal for goal in self.agenda.goals if not goal.final or goal.untold]
        # A stop beside a text waits for the answer, so only a promised write can be missed.
        if deferred:
            waiting = [goal for goal in waiting if goal.status == APPROVED]
        elif reason in ("gave_up", "out_of_scope"):
            waiting = (
                # Patience is due before giving up, and not where all is settled.
                waiting if self.agenda.idle < LEAST_PATIENCE and not self.agenda.settled else []
            )
        elif reason == "transferred" and self.agenda.transferred:
            waiting = []
        for goal in waiting:
            if goal.answered and goal.wanted.kind == "question":
                continue  # it was told something of the kind, and cannot know that it is wrong
            if goal.refusals and goal.wanted.writes:
                continue  # it was told that this cannot be, and believed it: that is no early end
            if goal.status != OPEN or reason in ("gave_up", "out_of_scope"):
                self._add(
                    "early_stop",
                    step,
                    f"{reason}: {goal.wanted.intent or goal.wanted.kind} is"
                    f" {goal.status}{_owed(goal)}",
                    goal.place,
                )
        if not deferred and self.agenda.loose and reason == "settled":
            self._add("early_stop", step, f"{reason}: not told yet: {', '.join(self.agenda.loose)}")

    def _close(self, event: Event) -> None:
        self._expire(0)
        if self._foreign and not all(goal.final for goal in self.agenda.goals):
            self._off_task(next(iter(self._foreign)))
        if event.agent != USER:
            return
        if not any(fault.kind == "early_stop" for fault in self.faults):
            self._stops(event.reason, event.step)
        if event.reason in ("settled", "refused"):
            for goal in self.agenda.goals:
                if goal.status == OPEN:
                    self._add(
                        "missed_goal",
                        event.step,
                        goal.wanted.intent or goal.wanted.kind,
                        goal.place,
                    )


def _owed(goal: Goal) -> str:
    return f", not told yet: {', '.join(goal.untold)}" if goal.untold else ""
