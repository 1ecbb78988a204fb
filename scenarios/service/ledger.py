"""The goal ledger: how far each wish of a task has come, as a customer can know it from the texts alone, and the faults of whoever plays the user.

`Agenda` is the state that a scripted customer acts on; `Ledger` keeps the same state beside any user (a model, a human, a replay, a policy being
trained) out of the typed events of the talk, and logs faults with step and evidence. Pure and deterministic; no model, no store, no tool result.
A wish goes open -> raised -> proposed -> approved -> done, or ends refused; what is wanted before a change of mind ends dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from gem_ma.scenarios.service.acts import SURE, Act, Judgement, answer, changes_mind, corrects, judge, read, tells
from gem_ma.scenarios.service.phrases import WRONG, Phrasebook, fold, names, plain
from gem_ma.scenarios.service.talk import ASSISTANT, USER, Event
from gem_ma.scenarios.service.task import Task, Wish

OPEN, RAISED, PROPOSED, APPROVED, DONE, REFUSED, DROPPED = "open", "raised", "proposed", "approved", "done", "refused", "dropped"
FINAL = frozenset((DONE, REFUSED, DROPPED))
FAULTS = (
    *("hallucinated_slot", "leak", "copy", "early_stop", "late_stop", "confirm_wrong", "refuse_right", "inconsistent", "role_flip"),
    *("token_leak", "loop", "missed_goal"),
)
LEAST_PATIENCE = 3  # unhelpful messages in a row that a user must bear before it may give up
CORRECTS_WITHIN = 2  # of the user's own messages, in which a slip may be put right
GRAM = 8  # words in a row that make a copy


@dataclass(slots=True)
class Goal:
    """One wish on its way. `before` is what the user wants until it changes its mind; `untold` are the facts that it still waits for."""

    place: int
    wish: Wish
    before: Wish | None
    untold: list[str]
    status: str = OPEN
    refusals: int = 0
    fallback: bool = False
    approved_unasked: bool = False

    @property
    def wanted(self) -> Wish:
        """What the user wants now."""
        return self.before or self.wish

    @property
    def final(self) -> bool:
        return self.status in FINAL


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed write and the wish that it comes nearest to; `goal` is None where nobody asked for such a write."""

    act: Act
    goal: Goal | None = None
    judgement: Judgement | None = None
    final_wish: bool = True  # it is judged by what is wanted in the end, not by what is wanted before a change of mind

    @property
    def right(self) -> bool:
        return self.judgement is not None and self.judgement.right

    @property
    def wrong(self) -> bool:
        return self.judgement is None or bool(self.judgement.wrong)


@dataclass(slots=True)
class Heard:
    """What a message of the assistant changed."""

    text: str
    acts: tuple[Act, ...]
    proposals: list[Proposal] = field(default_factory=list)
    done: list[Goal] = field(default_factory=list)
    refused: list[Goal] = field(default_factory=list)  # rightly
    disputed: list[Goal] = field(default_factory=list)  # refused wrongly, or without the reason
    told: bool = False
    progress: bool = False

    def of(self, kind: str, least: float = SURE) -> list[Act]:
        """The acts of a kind that are sure enough."""
        return [act for act in self.acts if act.kind == kind and act.confidence >= least]


class Agenda:
    """The wishes of a task and what the assistant's messages made of them."""

    def __init__(self, task: Task, phrasebook: Phrasebook) -> None:
        self.task, self.book = task, phrasebook
        self.goals = [Goal(place, wish, wish.before_change, list(wish.outputs)) for place, wish in enumerate(task.wishes)]
        owned = {output for wish in task.wishes for each in _chain(wish) for output in each.outputs}
        self.loose = [output for output in task.outputs if output not in owned]
        self.transferred = False
        self.idle = 0  # unhelpful messages in a row
        self.asked: Counter[str] = Counter()

    @property
    def settled(self) -> bool:
        """Whether nothing is left to wait for."""
        return not self.loose and all(goal.final and not goal.untold for goal in self.goals)

    def ready(self, goal: Goal) -> bool:
        """Whether all that has to be settled before a goal is."""
        return all(self.goals[place].final for place in goal.wish.after if place < len(self.goals))

    def hear(self, text: str) -> Heard:
        """Takes a message of the assistant in."""
        heard = Heard(text, read(text, self.book))
        self._facts(heard)
        self._claims(heard)
        self._refusals(heard)
        self._questions(heard)
        for act in heard.of("propose"):
            heard.proposals.append(self._proposal(act, heard.proposals))
        fine = all(proposal.right for proposal in heard.proposals)
        for proposal in heard.proposals:
            goal = proposal.goal
            if goal is not None and proposal.right and not goal.final and goal.status != APPROVED:
                heard.progress |= fine or goal.status != PROPOSED
                goal.status = PROPOSED
        for act in heard.of("ask"):
            self.asked[act.slot] += 1
            heard.progress |= self.asked[act.slot] == 1
        if heard.of("transfer", 0.8):
            self.transferred = True
        self.idle = 0 if heard.progress else self.idle + 1
        return heard

    # -- parts of hearing ---------------------------------------------------------------------------------------------------

    def _facts(self, heard: Heard) -> None:
        for goal in self.goals:
            if goal.untold:
                left = [output for output in goal.untold if not (tells(heard.text, output) and _counts(output, goal.status, heard.text))]
                heard.told |= len(left) < len(goal.untold)
                goal.untold = left
        left = [output for output in self.loose if not tells(heard.text, output)]
        heard.told |= len(left) < len(self.loose)
        self.loose = left
        heard.progress |= heard.told

    def _claims(self, heard: Heard) -> None:
        for act in heard.of("claim_done"):
            approved = [goal for goal in self.goals if goal.status == APPROVED and (not act.writes or self._fits(goal.wanted, act))]
            asked = [goal for goal in self.goals if goal.status in (RAISED, PROPOSED) and act.writes and self._fits(goal.wanted, act)]
            for goal in approved or [goal for goal in asked if self._about(goal.wanted, act.text) and not self._wrong(goal.wanted, act.text)][:1]:
                goal.approved_unasked = goal.status != APPROVED
                self._finish(goal, heard)

    def _fits(self, wish: Wish, act: Act) -> bool:
        """Whether an act speaks of such a write, and of no other record."""
        return bool(act.writes & self.book.kinds(wish)) and not self._elsewhere(wish, act.text)

    def _wrong(self, wish: Wish, text: str) -> int:
        """How many arguments of a wish a text names wrongly."""
        return sum(verdict == WRONG for verdict in self.book.judge(wish, text).values())

    def _finish(self, goal: Goal, heard: Heard) -> None:
        goal.status = DONE
        heard.done.append(goal)
        heard.progress = True

    def _refusals(self, heard: Heard) -> None:
        acts, left = heard.of("refuse"), heard.of("transfer", 0.8)
        meant: list[Goal] = []
        for act in acts or left:
            meant += [goal for goal in self._meant(act) if goal not in meant][:1]
        for goal in meant:
            reason = self.book.reasons.get(goal.wanted.reason)
            given = reason is None or reason.search(plain(heard.text)) is not None
            impossible = goal.wanted.kind == "impossible" or bool(goal.wanted.reason)
            goal.refusals += 1
            if impossible and (given or goal.refusals > 1 or not acts):
                self._give_way(goal, heard)
            elif acts and goal.status != APPROVED and not any(act.kind == "propose" for act in heard.acts):
                heard.disputed.append(goal)

    def _meant(self, act: Act) -> list[Goal]:
        """The goals that a refusal may concern, the likeliest first: those it names, even before they were asked for; else what is talked about."""
        named = [goal for goal in self.goals if not goal.final and act.writes & self.book.kinds(goal.wanted) and self._names(goal.wanted, act.text)]
        named = [goal for goal in named if goal.status != OPEN or goal.wanted.kind == "impossible"]
        if named:
            return sorted(named, key=lambda goal: goal.wanted.kind != "impossible")
        waiting = [goal for goal in self.goals if goal.status in (RAISED, PROPOSED, APPROVED) and not self._elsewhere(goal.wanted, act.text)]
        alike = [goal for goal in waiting if act.writes & self.book.kinds(goal.wanted)]
        impossible = [goal for goal in waiting if goal.wanted.kind == "impossible"]
        return alike or impossible or ([] if act.writes else waiting)

    def _give_way(self, goal: Goal, heard: Heard) -> None:
        heard.refused.append(goal)
        heard.progress = True
        if goal.wish.instead is None:
            goal.status = REFUSED
            return
        following = goal.wish.instead
        goal.wish, goal.before, goal.untold = following, following.before_change, list(following.outputs)
        goal.fallback, goal.status, goal.refusals = True, OPEN, 0

    def _questions(self, heard: Heard) -> None:
        for goal in self.goals:
            if goal.wish.kind == "question" and not goal.final and not goal.untold and (goal.wish.outputs or (heard.told and not self.loose)):
                self._finish(goal, heard)

    def _proposal(self, act: Act, before: list[Proposal]) -> Proposal:
        taken = {id(proposal.goal) for proposal in before}
        best, rank = Proposal(act), (9, 9, 9, 9)
        for goal in self.goals:
            for final_wish, wish in ((True, goal.wish), (False, goal.before)):
                judgement = judge(act, wish, self.book) if wish is not None else None
                if judgement is None or (goal.final and not judgement.right):
                    continue
                stands = (len(judgement.wrong), len(judgement.missing), int(goal.final) + int(id(goal) in taken), int(not final_wish))
                if stands < rank:
                    best, rank = Proposal(act, goal, judgement, final_wish), stands
        return best

    def _names(self, wish: Wish, text: str) -> bool:
        """Whether a text names the very record of a wish."""
        own = {wish.arguments[slot] for slot in self.book.anchors if slot in wish.arguments}
        return bool({mention.value for mention in self.book.mentions(text) if mention.slot in self.book.anchors} & own)

    def _elsewhere(self, wish: Wish, text: str) -> bool:
        """Whether a text names a record, and not that of the wish."""
        named = {mention.value for mention in self.book.mentions(text) if mention.slot in self.book.anchors}
        own = {wish.arguments[slot] for slot in self.book.anchors if slot in wish.arguments}
        return bool(named and own and not named & own)

    def _about(self, wish: Wish, text: str) -> bool:
        """Whether a text names the record of the wish, or the wish has none."""
        return self._names(wish, text) or not any(slot in wish.arguments for slot in self.book.anchors)

    def raises(self, wish: Wish, text: str) -> bool:
        """Whether a user's text asks for a wish."""
        kinds = self.book.kinds(wish)
        if kinds and any(self.book.writes(line) & kinds for line in _lines(text)):
            return not self._elsewhere(wish, text)
        words = _content(wish.text)
        if not wish.text:
            return wish.kind == "question"
        return len(words & _content(text)) * 5 >= len(words) * 3

    def nearer(self, wish: Wish, other: Wish, text: str) -> bool:
        """Whether a text can be a request for both and fits the first better."""
        if not self.book.kinds(wish) & self.book.kinds(other):
            return False
        return self._wrong(wish, text) < self._wrong(other, text)


def _chain(wish: Wish) -> Iterable[Wish]:
    each: Wish | None = wish
    while each is not None:
        yield each
        each = each.instead


def _counts(output: str, status: str, text: str) -> bool:
    """Whether a number that was found can be the answer: a small one needs a question before it, and is no count of days."""
    if not (output.isdigit() and len(output) < 3):
        return True
    return status != OPEN and not re.search(rf"\b{output}\s*(?:-|to|–)?\s*\d*\s*(?:business |working )?days\b|\d\s*(?:-|to|–)\s*{output}\b", text)


def _lines(text: str) -> list[str]:
    return [fold(line) for line in re.split(r"(?<=[.!?])\s+|\n", text) if line.strip()]


@lru_cache(maxsize=1024)
def _content(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"[\w#@]+", plain(text)) if len(word) > 3)


# -- the audit --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the user: what, at which step of the log, and the words that show it. `wish` is its place in the task, -1 where none is meant."""

    kind: str
    step: int
    evidence: str
    wish: int = -1


_ROLE = re.compile(
    r"\bhow (?:can|may) i (?:help|assist) you\b|\bis there anything else i can (?:help|assist|do)\b|\bi(?:'ve"
    r"| have) (?:now |just |successfully )?(?:cancel+ed|processed|updated|modified|exchanged|submitted"
    r"|refunded)\b"
    r"|\b(?:let me|i(?:'ll| will)) (?:look up|pull up|check|process|update|transfer) (?:your|you)\b|\bthank you for (?:contacting"
    r"|reaching out|your patience)\b|\bfor verification purposes\b"
    r"|\bas an? (?:ai|assistant|agent|language model)\b|<tool_call>|\"(?:name|arguments|tool)\"\s*:|\b[a-z]+(?:_[a-z]+){1,6}\s*\("
)
_TOKEN = re.compile(
    r"#{2,}\s*[A-Za-z][\w -]*\s*#{2,}|<\|[^|<>]{1,40}\|>|\[(?:STOP|END|DONE|TRANSFER|EOS|INST)\]|</?s>|\bend_conversation\b|<(?:stop|end)/?>",
    re.IGNORECASE,
)


class Ledger:
    """The ledger of one talk. `see` takes each event once and gives the faults that it brought; `faults` holds all of them."""

    def __init__(self, task: Task, phrasebook: Phrasebook) -> None:
        self.task, self.book, self.agenda = task, phrasebook, Agenda(task, phrasebook)
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.heard: Heard | None = None
        self._told = ""  # what the assistant said, folded
        self._texts: list[str] = []
        self._slots: dict[str, str] = {}  # single-valued slots as the user stated them
        self._pending: list[tuple[str, str, int, int]] = []  # stated and unknown: slot, value, step, user messages since
        self._known, self._canonical = _corpus(task, phrasebook)
        self._grams = _instruction_grams(task)
        self._leaked: set[str] = set()
        self._settled_for = 0
        self._ended = False

    def see(self, event: Event) -> tuple[Fault, ...]:
        """Takes an event in; only what was said and how the talk ended matters."""
        before = len(self.faults)
        if event.kind == "said" and event.agent == ASSISTANT:
            self.heard = self.agenda.hear(event.text)
            self._told += "\n" + fold(event.text)
        elif event.kind == "said" and event.agent == USER:
            self._said(event.text, event.step)
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
        """Numbers of the talk: shares of stated values that were invented and of slots that were leaked, words a message, share of distinct pairs."""
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

    # -- what the user says -------------------------------------------------------------------------------------------------

    def _said(self, text: str, step: int) -> None:
        said = answer(text)
        self._protocol(text, step, said)
        self._values(text, step)
        self._replies(text, step, said)
        self._raise(text)
        self._texts.append(text)
        if self.agenda.settled:
            self._settled_for += 1
            if self._settled_for == 2:
                self._add("late_stop", step, text)

    def _add(self, kind: str, step: int, evidence: str, wish: int = -1) -> None:
        self.faults.append(Fault(kind, step, evidence[:200], wish))
        self.counts[kind] += 1

    def _protocol(self, text: str, step: int, said: str) -> None:
        if found := _TOKEN.search(text):
            self._add("token_leak", step, found.group())
        if found := _ROLE.search(plain(text)):
            self._add("role_flip", step, found.group())
        if copied := next((gram for gram in _grams(_words(text)) if gram in self._grams), None):
            self._add("copy", step, " ".join(copied))
        same = sum(fold(earlier) == fold(text) for earlier in self._texts)
        if same == 2 and not (said and len(text.split()) <= 12):
            self._add("loop", step, text)

    def _values(self, text: str, step: int) -> None:
        right_again = corrects(text)
        stated = self.book.mentions(text)
        self._pending = [(slot, value, at, age + 1) for slot, value, at, age in self._pending]
        for mention in stated:
            known = self._knows(mention.slot, mention.value)
            self.counts["stated"] += 1
            earlier = self._slots.get(mention.slot)
            if mention.slot in self.book.single:
                if earlier is not None and fold(earlier) != fold(mention.value) and not right_again:
                    self._add("inconsistent", step, f"{mention.slot}: {earlier}, then {mention.value}")
                self._slots[mention.slot] = mention.value
            if known and right_again:
                self.counts["slips"] += sum(slot == mention.slot for slot, *_ in self._pending)
                self._pending = [entry for entry in self._pending if entry[0] != mention.slot]
        waiting = {(slot, value) for slot, value, *_ in self._pending}
        fresh = [m for m in stated if not self._knows(m.slot, m.value) and (m.slot, m.value) not in waiting]
        known_slots = {mention.slot for mention in stated if self._knows(mention.slot, mention.value)}
        if not (right_again and any(mention.slot in known_slots for mention in fresh)):  # "X, not Y" takes Y back
            self._pending += [(mention.slot, mention.value, step, 0) for mention in fresh]
        self._expire(CORRECTS_WITHIN)
        folded = fold(text)
        for slot in self.task.knowledge:
            told = slot.reveal != "opening" and slot.known and slot.value and slot.name not in self._leaked and names(slot.value, folded)
            if told and (slot.reveal == "never" or not self.agenda.asked[slot.name]) and not names(slot.value, self._told):
                self._leaked.add(slot.name)
                self._add("leak", step, f"{slot.name}: {slot.value}")

    def _expire(self, age: int) -> None:
        for slot, value, at, since in self._pending:
            if since >= age:
                self._add("hallucinated_slot", at, f"{slot}: {value}")
        self._pending = [entry for entry in self._pending if entry[3] < age]

    def _knows(self, slot: str, value: str) -> bool:
        return (slot, fold(value)) in self._canonical or names(value, self._known) or fold(value) in self._told

    def _replies(self, text: str, step: int, said: str) -> None:
        if self.heard is None or not said:
            return
        proposals = [proposal for proposal in self.heard.proposals if proposal.goal is None or not proposal.goal.final]
        self.heard = None  # one message answers it
        for proposal in proposals:
            goal = proposal.goal
            if said == "yes":
                if proposal.wrong:
                    if proposal.act.confidence > 0.7:
                        wrong = proposal.judgement.wrong if proposal.judgement else ("the write itself",)
                        self._add("confirm_wrong", step, f"{', '.join(wrong)}: {proposal.act.text}", goal.place if goal else -1)
                elif goal is not None:
                    goal.status = APPROVED
                    if proposal.final_wish:
                        goal.before = None
        if said == "no" and proposals and all(proposal.right and proposal.final_wish for proposal in proposals) and not changes_mind(text):
            goal = proposals[0].goal
            if goal is not None and goal.before is None:
                self._add("refuse_right", step, proposals[0].act.text, goal.place)

    def _raise(self, text: str) -> None:
        raised = [goal for goal in self.agenda.goals if self.agenda.raises(goal.wanted, text)]
        for goal in self.agenda.goals:
            if goal.before is not None and self.agenda.raises(goal.wish, text) and (changes_mind(text) or not self.agenda.raises(goal.before, text)):
                goal.before = None
                goal.status = RAISED
            elif goal.status == OPEN and goal in raised and not any(self.agenda.nearer(other.wanted, goal.wanted, text) for other in raised):
                goal.status = RAISED

    # -- how it ends --------------------------------------------------------------------------------------------------------

    def _stops(self, reason: str, step: int, deferred: bool = False) -> None:
        """A stop with a yes that waits for its write, or before all is settled."""
        waiting = [goal for goal in self.agenda.goals if not goal.final or goal.untold]
        if deferred:
            waiting = [goal for goal in waiting if goal.status == APPROVED]
        elif reason in ("gave_up", "out_of_scope"):
            waiting = waiting if self.agenda.idle < LEAST_PATIENCE and not self.agenda.settled else []
        elif reason == "transferred" and self.agenda.transferred:
            waiting = []
        for goal in waiting:
            if goal.status != OPEN or reason in ("gave_up", "out_of_scope"):
                self._add("early_stop", step, f"{reason}: {goal.wanted.intent or goal.wanted.kind} is {goal.status}{_owed(goal)}", goal.place)
        if not deferred and self.agenda.loose and reason == "settled":
            self._add("early_stop", step, f"{reason}: not told yet: {', '.join(self.agenda.loose)}")

    def _close(self, event: Event) -> None:
        self._expire(0)
        if event.agent != USER:
            return
        if not any(fault.kind == "early_stop" for fault in self.faults):
            self._stops(event.reason, event.step)
        if event.reason in ("settled", "refused"):
            for goal in self.agenda.goals:
                if goal.status == OPEN:
                    self._add("missed_goal", event.step, goal.wanted.intent or goal.wanted.kind, goal.place)


def _owed(goal: Goal) -> str:
    return f", not told yet: {', '.join(goal.untold)}" if goal.untold else ""


def _corpus(task: Task, book: Phrasebook) -> tuple[str, frozenset[tuple[str, str]]]:
    """All that the user may state, as folded text and as (slot, value)."""
    forgotten = {slot.value for slot in task.knowledge if not slot.known}
    texts = [task.instruction, *(slot.value for slot in task.knowledge if slot.known)]
    values: set[tuple[str, str]] = {(slot.name, fold(slot.value)) for slot in task.knowledge if slot.known}
    for wish in task.wishes:
        for each in (*_chain(wish), *([wish.before_change] if wish.before_change else [])):
            texts += [each.text, _flat(each.words)]
            for name in book.details(each):
                for arguments in (each.arguments, *each.choices):
                    if isinstance(arguments.get(name), str) and arguments[name] not in forgotten:
                        values.add((name, fold(arguments[name])))
    joined = "\n".join(texts)
    values |= {(mention.slot, fold(mention.value)) for mention in book.mentions(joined)}
    return fold(joined), frozenset(values)


def _flat(words: Any) -> str:
    if isinstance(words, Mapping):
        return " ".join(f"{key} {_flat(value)}" for key, value in words.items())
    if isinstance(words, (list, tuple)):
        return " ".join(map(_flat, words))
    if hasattr(words, "__slots__"):
        return " ".join(_flat(getattr(words, name)) for name in words.__slots__)
    return str(words)


def _words(text: str) -> list[str]:
    return re.findall(r"[\w'#@.+-]*\w", plain(text))


def _grams(words: list[str]) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(GRAM)), strict=False))


def _instruction_grams(task: Task) -> frozenset[tuple[str, ...]]:
    """Runs of words of the instruction, apart from those that mostly list values or stand in a wish's own words: these may be said as they are."""
    wishes = [each for wish in task.wishes for each in (*_chain(wish), wish.before_change) if each is not None]
    own = {gram for wish in wishes for gram in _grams(_words(wish.text))}
    held = [slot.value for slot in task.knowledge] + [f"{_flat(wish.words)} {_flat(dict(wish.arguments))}" for wish in wishes]
    values = set(_words(" ".join(held)))
    most = GRAM // 4  # words of values in a run that is still a copy
    return frozenset(gram for gram in _grams(_words(task.instruction)) if gram not in own and sum(word in values for word in gram) <= most)
