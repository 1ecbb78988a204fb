"""The agenda of a service talk: how far each wish of a task has come, as a customer can know it
from the assistant's messages alone.

A wish goes open -> raised -> proposed -> approved -> done, or ends refused; one that has
something `instead` then begins again as that. Who plays the user moves a wish to raised and
approved; what the assistant says moves it on. No store and no tool result is looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from gem_ma.scenarios.service.desk.task import Task, Wish
from gem_ma.scenarios.service.reading import cues
from gem_ma.scenarios.service.reading.acts import SURE, Act, read
from gem_ma.scenarios.service.reading.phrases import WRONG, Phrasebook, fold, plain
from gem_ma.scenarios.service.reading.proposals import Judgement, judge
from gem_ma.scenarios.service.reading.stated import Answers, Saying
from gem_ma.scenarios.service.reading.values import like, tells

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
        # Facts first: whether a question is settled hangs on them.
        self._facts(heard)
        self._claims(heard)
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
                        self._tells(heard.text, output) and _counts(output, goal.status, heard.text)
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
            output, (Saying(text),), len(self.task.outputs)
        ).stands(0)

    def _claims(self, heard: Heard) -> None:
        for act in heard.of("claim_done"):
            approved = [
                goal
                for goal in self.goals
                if goal.status == APPROVED and (not act.writes or self._fits(goal.wanted, act))
            ]
            asked = [
                goal
                for goal in self.goals
                if goal.status in (RAISED, PROPOSED) and act.writes and self._fits(goal.wanted, act)
            ]
            # `Both have been changed` covers what was asked for beside what was approved.
            if approved and cues.ALL.search(plain(act.text)):
                approved += [goal for goal in asked if not self._wrong(goal.wanted, act.text)]
            # Without a yes only the wish that the report names, and one of them.
            for goal in (
                approved
                or [
                    goal
                    for goal in asked
                    if self._about(goal.wanted, act.text) and not self._wrong(goal.wanted, act.text)
                ][:1]
            ):
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
                self._give_way(goal, heard)
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

    def _give_way(self, goal: Goal, heard: Heard) -> None:
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

    def _about(self, wish: Wish, text: str) -> bool:
        """Whether a text names the record of the wish, or the wish has none."""
        return self._names(wish, text) or not any(
            slot in wish.arguments for slot in self.book.anchors
        )

    def raises(self, wish: Wish, text: str) -> bool:
        """Whether a user's text asks for a wish."""
        kinds = self.book.kinds(wish)
        if kinds and any(self.book.writes(line) & kinds for line in _lines(text)):
            return not self._elsewhere(wish, text)
        words = _content(wish.text)
        if not wish.text:
            return wish.kind == "question"
        # Three fifths of the words: people rephrase, and two requests share a few words anyhow.
        return len(words & _content(text)) * 5 >= len(words) * 3

    def nearer(self, wish: Wish, other: Wish, text: str) -> bool:
        """Whether a text can be a request for both and fits the first better."""
        if not self.book.kinds(wish) & self.book.kinds(other):
            return False
        return self._wrong(wish, text) < self._wrong(other, text)


def chain(wish: Wish) -> Iterable[Wish]:
    """A wish and what is wanted in its place once it is refused, and so on."""
    each: Wish | None = wish
    while each is not None:
        yield each
        each = each.instead


def _counts(output: str, status: str, text: str) -> bool:
    """Whether a number that was found can be the answer: a small one needs a question before it,
    and is no count of days."""
    # A count is told in passing all the time: `3 to 5 days`, `2 items`.
    if not (output.isdigit() and len(output) < 3):
        return True
    return status != OPEN and not re.search(
        rf"\b{output}[ \t]?(?:-|to|–)?[ \t]?\d{{0,4}}[ \t]?(?:business |working )?days\b"
        rf"|\d[ \t]?(?:-|to|–)[ \t]?{output}\b",
        text,
    )


def _lines(text: str) -> list[str]:
    return [fold(line) for line in re.split(r"(?<=[.!?])\s+|\n", text) if line.strip()]


@lru_cache(maxsize=1024)
def _content(text: str) -> frozenset[str]:
    # Short words are those that all requests share.
    return frozenset(word for word in re.findall(r"[\w#@]+", plain(text)) if len(word) > 3)
