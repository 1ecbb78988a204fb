"""The ledger beside any user (a model, a human, a replay, a policy being trained): the user's
faults.

It is fed with the typed events of the talk and logs each fault with step and evidence. Pure and
deterministic; no model, no store, no tool result. A fault rests on values, calls and verbatim
text, not on what a message is taken to mean. A value that is stated and unknown counts as invented
only where the user does not put it right within two of its own messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Event
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.reading.acts import Act, read
from gem_ma.scenarios.service_desk.reading.answers import answer, corrects
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook, fold, names
from gem_ma.scenarios.service_desk.watching.consent import asking
from gem_ma.scenarios.service_desk.watching.corpus import (
    TOKEN,
    corpus,
    grams,
    instruction_grams,
    wanted_by,
    words,
)
from gem_ma.scenarios.service_desk.watching.wishes import lines_of

FAULTS = (
    "hallucinated_slot",
    "copy",
    "confirm_wrong",
    "token_leak",
    "loop",
    "off_task",
    "silent",
)
CORRECTS_WITHIN = 2  # of the user's own messages, in which a slip may be put right
SILENT = 5  # turns in a row that were empty or none at all
ASKS_FOR_SURE = 0.7  # below that the proposal itself may be misread


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the user: what, at which step of the log, and the words that show it."""

    kind: str
    step: int
    evidence: str


class Ledger:
    """The ledger of one talk. `see` takes each event once and gives the faults that it brought;
    `faults` holds all of them."""

    def __init__(self, task: Task, phrasebook: Phrasebook) -> None:
        self.task = task
        self.book = phrasebook
        self.faults: list[Fault] = []
        self._assistant_texts = ""  # what the assistant said, folded
        self._heard = ""  # its last text
        self._proposals: list[Act] = []  # of that text, while they are unanswered
        self._texts: list[str] = []
        # stated and unknown: slot, value, step, user messages since
        self._doubtful: list[tuple[str, str, int, int]] = []
        self._known, self._canonical = corpus(task, phrasebook)
        self._grams = instruction_grams(task)
        # kinds of changes that are none of the task's, where and how they were asked for
        self._foreign: dict[str, tuple[int, str]] = {}
        self._empty = 0  # actions in a row that were nothing
        # the records that its wishes name; the kinds of changes that the task or the assistant
        # speaks of
        self._records, self._due = wanted_by(task, phrasebook)

    def see(self, event: Event) -> tuple[Fault, ...]:
        """Takes an event in."""
        before = len(self.faults)
        if event.kind == "said" and event.agent == ASSISTANT:
            self._heard = event.text
            self._proposals = [act for act in read(event.text, self.book) if act.kind == "propose"]
            self._due = self._due.union(*map(self.book.writes, lines_of(event.text)))
            self._assistant_texts += "\n" + fold(event.text)
        elif event.call is not None and event.agent == ASSISTANT:
            self._off_task(event.call.name)
        elif event.kind == "bounced" and event.agent == USER:
            self._empty += 1
            if self._empty == SILENT:
                self._add("silent", event.step, f"{SILENT} turns in a row that say nothing")
        elif event.kind == "said" and event.agent == USER:
            self._empty = 0
            self._user_text(event.text, event.step)
        elif event.kind == "ended":
            self._expire(0)
        return tuple(self.faults[before:])

    def _user_text(self, text: str, step: int) -> None:
        reading = answer(text)
        self._verbatim(text, step, reading)
        self._values(text, step)
        if reading == "yes":
            self._agrees(step)
        self._proposals = []
        self._requests_other(text, step)
        self._texts.append(text)

    def _add(self, kind: str, step: int, evidence: str) -> None:
        self.faults.append(Fault(kind, step, evidence[:200]))

    def _verbatim(self, text: str, step: int, reading: str) -> None:
        if hit := TOKEN.search(text):
            self._add("token_leak", step, hit.group())
        if copied := next((gram for gram in grams(words(text)) if gram in self._grams), None):
            self._add("copy", step, " ".join(copied))
        same = sum(fold(earlier) == fold(text) for earlier in self._texts)
        # The third time, unless it is a short yes or no, which talks repeat, or answers a
        # proposal: then it is the other side that does not understand.
        if same == 2 and not (reading and len(text.split()) <= 12) and not self._is_asked(text):
            self._add("loop", step, text)

    def _is_asked(self, text: str) -> bool:
        """Whether the assistant waits for an answer to a change of the task, and this text, which
        names nothing, may be one in words that no reader knows."""
        if "?" in text or self.book.mentions(text) or self.book.writes(fold(text)):
            return False
        return any(
            act.confidence > ASKS_FOR_SURE and self._records & self._anchors(act)
            for act in self._proposals
        )

    def _anchors(self, act: Act) -> set[str]:
        """The records that a proposal names."""
        return {
            mention.value
            for mention in self.book.mentions(act.text)
            if mention.slot in self.book.anchors
        }

    def _agrees(self, step: int) -> None:
        """A yes to a change of records of which none is in its task."""
        for act in self._proposals:
            named = self._anchors(act)
            if act.confidence > ASKS_FOR_SURE and named and not named & self._records:
                self._add("confirm_wrong", step, act.text)

    def _requests_other(self, text: str, step: int) -> None:
        """Notes the kinds of changes that a text asks for and of which neither the task nor the
        assistant speaks."""
        for line in lines_of(text) if self._due else ():
            kinds = self.book.writes(line)
            if not kinds & self._due:
                asked = frozenset[str]().union(*map(self.book.writes, asking(line)))
                for kind in kinds & asked - self._foreign.keys():
                    self._foreign[kind] = (step, line)

    def _off_task(self, kind: str) -> None:
        """It asked for what is not in its task, and the assistant went to make it."""
        if kind in self._foreign and not any(fault.kind == "off_task" for fault in self.faults):
            step, line = self._foreign[kind]
            self._add("off_task", step, f"{kind}: {line}")

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
        # Age in messages of the user's own.
        self._doubtful = [(slot, value, at, age + 1) for slot, value, at, age in self._doubtful]
        if right_again:
            self._doubtful = [entry for entry in self._doubtful if entry[0] not in known_slots]
        # What is doubted already is not a new doubt when it is told once more.
        waiting = {(slot, value) for slot, value, *_ in self._doubtful}
        fresh = [
            each
            for each in mentions
            if not known[each.slot, each.value]
            and each.slot not in right
            and (each.slot, each.value) not in waiting
        ]
        # "X, not Y" takes Y back
        if not (right_again and any(mention.slot in known_slots for mention in fresh)):
            self._doubtful += [(mention.slot, mention.value, step, 0) for mention in fresh]
        self._expire(CORRECTS_WITHIN)

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
