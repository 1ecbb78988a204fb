"""The agenda of a service talk: how far each wish of a task has come, as a customer can know it
from the assistant's messages alone.

A wish goes open -> raised -> proposed -> approved -> done, or ends refused; one that has
something `instead` then begins again as that. Who plays the user moves a wish to raised and
approved; what the assistant says moves it on. No store and no tool result is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import Task, Wish
from gem_ma.scenarios.service_desk.reading.acts import SURE, Act, read
from gem_ma.scenarios.service_desk.reading.phrases import RIGHT, Phrasebook, plain
from gem_ma.scenarios.service_desk.reading.proposals import Judgement, judge
from gem_ma.scenarios.service_desk.reading.stated import Answers, Saying
from gem_ma.scenarios.service_desk.reading.values import like, tells
from gem_ma.scenarios.service_desk.watching.wishes import (
    call_key,
    chain,
    content_words,
    is_count,
    keys_of,
    lines_of,
)

OPEN, RAISED, PROPOSED, APPROVED, DONE, REFUSED, DROPPED = (
    "open",
    "raised",
    "proposed",
    "approved",
    "done",
    "refused",
    "dropped",
)
FINAL = frozenset((DONE, REFUSED, DROPPED))


@dataclass(slots=True)
class Goal:
    """One wish on its way. `before` is what the user wants until it changes its mind; `untold`
    are the facts that it still waits for."""

    place: int
    wish: Wish
    before: Wish | None
    untold: list[str]
    status: str = OPEN
    refusals: int = 0
    fallback: bool = False
    # a value of the kind that it waits for was told since it was asked, right or wrong
    answered: bool = False

    @property
    def wanted(self) -> Wish:
        """What the user wants now."""
        return self.before or self.wish

    @property
    def final(self) -> bool:
        return self.status in FINAL


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed write and the wish that it comes nearest to; `goal` is None where nobody asked
    for such a write."""

    act: Act
    goal: Goal | None = None
    judgement: Judgement | None = None
    # it is judged by what is wanted in the end, not by what is wanted before a change of mind
    final_wish: bool = True

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
    informs: bool = False
    progress: bool = False

    def of(self, kind: str, least: float = SURE) -> list[Act]:
        """The acts of a kind that are sure enough."""
        return [act for act in self.acts if act.kind == kind and act.confidence >= least]


class Agenda:
    """The wishes of a task and what the assistant's messages made of them."""

    def __init__(self, task: Task, phrasebook: Phrasebook) -> None:
        self.task, self.book = task, phrasebook
        self.goals = [
            Goal(place, wish, wish.before_change, list(wish.outputs))
            for place, wish in enumerate(task.wishes)
        ]
        # Facts that no wish asks for stand in a benchmark's text alone.
        owned = {output for wish in task.wishes for each in chain(wish) for output in each.outputs}
        self.loose = [output for output in task.outputs if output not in owned]
        self.transferred = False
        self.idle = 0  # unhelpful messages in a row
        self.asked: Counter[str] = Counter()
        self._calls: set[str] = set()  # those of the assistant that gave no error
        # nobody tells which writes are made: what was agreed to is believed to be
        self.blind = False
        self._last = ("", "")  # its last two messages
        self._moved = False  # one of them was new since its last message
        self._written: list[Goal] = []  # wishes whose write was made since then
        # facts that a text held, whether or not as an answer
        self.showings: Counter[str] = Counter()

    @property
    def settled(self) -> bool:
        """Whether nothing is left to wait for."""
        if self.task.goal == "transferred" and not self.transferred:
            return False
        return not self.loose and all(goal.final and not goal.untold for goal in self.goals)

    def ready(self, goal: Goal) -> bool:
        """Whether all that has to be settled before a goal is."""
        # A place beyond the task is waited for by nobody.
        return all(self.goals[place].final for place in goal.wish.after if place < len(self.goals))

    def hear(self, text: str) -> Heard:
        """Takes a message of the assistant in."""
        heard = Heard(text, read(text, self.book))
        self._last = (self._last[-1], text)
        heard.progress = self._moved
        self._moved = False
        # Facts first: whether a question is settled hangs on them.
        self._facts(heard)
        if self.blind and not (heard.of("ask") or heard.of("propose") or heard.of("refuse")):
            self._written += [
                goal
                for goal in self.goals
                if goal.status == APPROVED and not self._elsewhere(goal.wanted, text)
            ]
        for written in self._written:
            self._finish(written, heard)
        self._written = []
        self._refusals(heard)
        self._questions(heard)
        for act in heard.of("propose"):
            heard.proposals.append(self._proposal(act, heard.proposals))
        # One wrong proposal spoils the message: its yes could be taken for all of them.
        fine = all(proposal.right for proposal in heard.proposals)
        for proposal in heard.proposals:
            goal = proposal.goal
            if goal is not None and proposal.right and not goal.final and goal.status != APPROVED:
                heard.progress |= fine or goal.status != PROPOSED
                goal.status = PROPOSED
        for act in heard.of("ask"):
            self.asked[act.slot] += 1
            heard.progress |= self.asked[act.slot] == 1
        # Surer than other acts, since being handed over ends the customer's hopes.
        if heard.of("transfer", 0.8):
            self.transferred = True
        self.idle = 0 if heard.progress else self.idle + 1
        return heard

    # -- parts of hearing -------------------------------------------------------------------------

    def _facts(self, heard: Heard) -> None:
        for goal in self.goals:
            if goal.untold:
                left = [
                    output
                    for output in goal.untold
                    if not (
                        self._tells(heard.text, output)
                        and is_count(output, heard.text, goal.status != OPEN)
                    )
                ]
                heard.informs |= len(left) < len(goal.untold)
                goal.untold = left
                goal.answered |= goal.status != OPEN and any(
                    like(output, heard.text) for output in left
                )
        left = [output for output in self.loose if not self._tells(heard.text, output)]
        heard.informs |= len(left) < len(self.loose)
        self.loose = left
        heard.progress |= heard.informs

    def _tells(self, text: str, output: str) -> bool:
        """Whether a text tells a fact as an answer; one that only a list shows is heard when it
        comes a second time."""
        if not tells(output, (text,)):
            return False
        self.showings[output] += 1
        # Seen twice a customer takes a value for the answer; a judge would not.
        return self.showings[output] > 1 or Answers(
            output, (Saying(text),), len(self.task.outputs), wanted=self.task.outputs
        ).stands(0)

    def called(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Takes a call of the assistant in that gave no error. A write settles the wish that it
        serves as soon as the assistant says anything, whatever it says."""
        key = call_key(name, arguments)
        # The same look once more brings nothing.
        self._moved |= key not in self._calls
        self._calls.add(key)
        goal = self._served(name, arguments)
        if goal is not None:
            self._written.append(goal)

    def _served(self, name: str, arguments: Mapping[str, Any]) -> Goal | None:
        """The wish that a write serves: one that wants this very write, else one that was agreed
        to and is of that kind and record; whether all of it is right no customer can see."""
        waiting = [goal for goal in self.goals if not goal.final and goal not in self._written]
        key = call_key(name, arguments)
        for goal in waiting:
            if any(key in keys_of(wish) for wish in (goal.wanted, goal.wish)):
                return goal
        for goal in waiting:
            if goal.status == APPROVED and name in self.book.kinds(goal.wanted):
                wanted = goal.wanted.arguments
                if all(
                    wanted.get(slot, arguments.get(slot)) == arguments.get(slot)
                    for slot in self.book.anchors
                ):
                    return goal
        return None

    def wrong(self, goal: Goal, text: str) -> tuple[str, ...]:
        """The arguments of a wish that a text names wrongly for certain, for all ways to serve
        it."""
        act = Act("propose", 0, len(text), 1.0, text, "", self.book.kinds(goal.wanted))
        judgement = judge(act, goal.wanted, self.book)
        return judgement.certain if judgement is not None else ()

    def named(self, goal: Goal) -> bool:
        """Whether one of the assistant's last two messages names anything of a wish rightly."""
        return any(RIGHT in self.book.judge(goal.wanted, text).values() for text in self._last)

    def forget(self) -> None:
        """What was said so far names nothing any more."""
        self._last = ("", "")

    @property
    def looked(self) -> bool:
        """Whether the assistant has made any call that gave no error."""
        return bool(self._calls)

    def _finish(self, goal: Goal, heard: Heard) -> None:
        goal.status = DONE
        heard.done.append(goal)
        heard.progress = True

    def _refusals(self, heard: Heard) -> None:
        acts, left = heard.of("refuse"), heard.of("transfer", 0.8)
        meant: list[Goal] = []
        # A hand-over without a word of refusal refuses what is left.
        for act in acts or left:
            meant += [goal for goal in self._meant(act) if goal not in meant][:1]
        for goal in meant:
            reason = self.book.reasons.get(goal.wanted.reason)
            with_reason = reason is None or reason.search(plain(heard.text)) is not None
            # A customer that hears no twice gives in, whatever the reason is.
            impossible = goal.wanted.kind == "impossible" or bool(goal.wanted.reason)
            goal.refusals += 1
            if impossible and (with_reason or goal.refusals > 1 or not acts):
                self.give_way(goal, heard)
            elif (
                acts
                and goal.status != APPROVED
                and not any(act.kind == "propose" for act in heard.acts)
            ):
                heard.disputed.append(goal)

    def _meant(self, act: Act) -> list[Goal]:
        """The goals that a refusal may concern, the likeliest first: those it names, even before
        they were asked for; else what is talked about."""
        named = [
            goal
            for goal in self.goals
            if not goal.final
            and act.writes & self.book.kinds(goal.wanted)
            and self._names(goal.wanted, act.text)
        ]
        # What was not asked for yet cannot be refused, unless it is impossible anyway.
        named = [goal for goal in named if goal.status != OPEN or goal.wanted.kind == "impossible"]
        if named:
            return sorted(named, key=lambda goal: goal.wanted.kind != "impossible")
        waiting = [
            goal
            for goal in self.goals
            if goal.status in (RAISED, PROPOSED, APPROVED)
            and not self._elsewhere(goal.wanted, act.text)
        ]
        alike = [goal for goal in waiting if act.writes & self.book.kinds(goal.wanted)]
        impossible = [goal for goal in waiting if goal.wanted.kind == "impossible"]
        return alike or impossible or ([] if act.writes else waiting)

    def give_way(self, goal: Goal, heard: Heard) -> None:
        heard.refused.append(goal)
        heard.progress = True
        if goal.wish.instead is None:
            goal.status = REFUSED
            return
        following = goal.wish.instead
        goal.wish, goal.before, goal.untold = (
            following,
            following.before_change,
            list(following.outputs),
        )
        goal.fallback, goal.status, goal.refusals = True, OPEN, 0

    def _questions(self, heard: Heard) -> None:
        for goal in self.goals:
            if (
                goal.wish.kind == "question"
                and not goal.final
                and not goal.untold
                and (goal.wish.outputs or (heard.informs and not self.loose))
            ):
                self._finish(goal, heard)

    def _proposal(self, act: Act, before: list[Proposal]) -> Proposal:
        taken = {id(proposal.goal) for proposal in before}
        # Worse than any real rank: the counts of arguments stay below nine.
        best, rank = Proposal(act), (9, 9, 9, 9)
        for goal in self.goals:
            for final_wish, wish in ((True, goal.wish), (False, goal.before)):
                judgement = judge(act, wish, self.book) if wish is not None else None
                if judgement is None or (goal.final and not judgement.right):
                    continue
                # Fewest errors first; then wishes that wait, and the final one before the one that
                # is taken back.
                stands = (
                    len(judgement.wrong),
                    len(judgement.missing),
                    int(goal.final) + int(id(goal) in taken),
                    int(not final_wish),
                )
                if stands < rank:
                    best, rank = Proposal(act, goal, judgement, final_wish), stands
        return best

    def _names(self, wish: Wish, text: str) -> bool:
        """Whether a text names the very record of a wish."""
        anchors = {wish.arguments[slot] for slot in self.book.anchors if slot in wish.arguments}
        return bool(
            {
                mention.value
                for mention in self.book.mentions(text)
                if mention.slot in self.book.anchors
            }
            & anchors
        )

    def _elsewhere(self, wish: Wish, text: str) -> bool:
        """Whether a text names a record, and not that of the wish."""
        named = {
            mention.value
            for mention in self.book.mentions(text)
            if mention.slot in self.book.anchors
        }
        anchors = {wish.arguments[slot] for slot in self.book.anchors if slot in wish.arguments}
        return bool(named and anchors and not named & anchors)

    def raises(self, wish: Wish, text: str) -> bool:
        """Whether a user's text asks for a wish."""
        kinds = self.book.kinds(wish)
        if kinds and any(self.book.writes(line) & kinds for line in lines_of(text)):
            return not self._elsewhere(wish, text)
        words = content_words(wish.text)
        if not wish.text:
            return wish.kind == "question"
        # Three fifths of the words: people rephrase, and two requests share a few words anyhow.
        return len(words & content_words(text)) * 5 >= len(words) * 3
