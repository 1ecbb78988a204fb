"""A customer without a model: it works through the wishes of its task, answers what it is asked,
and says yes only to what it checked.

Neutral machinery: the words of a domain come from its phrasebook, which a subclass names.
Decisions are made on the goal ledger; traits change the decisions, not the words alone. It ends
by the tool `end_conversation`, when all is settled or when its patience is over. Privileged: it
is given the task. The same task, seed and messages give the same bytes.

Here it reacts to a message. What it asks for stands in `customer_wishes`, what it tells in
`customer_answers`, its words in `customer_voice`.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from gem_ma.scenarios.service_desk.agents.customer_answers import Answers
from gem_ma.scenarios.service_desk.agents.customer_traits import Character, traits_of
from gem_ma.scenarios.service_desk.agents.customer_voice import Voice
from gem_ma.scenarios.service_desk.agents.customer_wishes import Wishes
from gem_ma.scenarios.service_desk.desk.log import failed
from gem_ma.scenarios.service_desk.reading.acts import SURE
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook
from gem_ma.scenarios.service_desk.watching.agenda import (
    APPROVED,
    DONE,
    OPEN,
    RAISED,
    REFUSED,
    Agenda,
    Goal,
    Heard,
    Proposal,
)
from gem_ma.scenarios.service_desk.watching.wishes import spoken_of

from gem_ma import Action, Asked, Malformed, ToolCall, Turn
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import SCENARIO, SYSTEM, TOOL
from gem_ma.system.options import flat

CERTAIN = 0.8  # confidence from which a transfer is not an offer any more: it is under way
_MONEY = re.compile(
    r"[$€£]\s?\d|\d\.\d\d\b|\b(?:no|without) (?:price )?(?:difference|charge|extra cost)\b"
)


class Customer:
    """The scripted customer of a service talk. A subclass sets `phrasebook`, and `scenario` for
    its messages of error. Options: the fields of `Character`."""

    waits = False
    privileged = True
    phrasebook: ClassVar[Phrasebook]
    scenario: ClassVar[str] = "a service desk"

    @flat
    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        *,
        character: Character = Character(),  # noqa: B008  (frozen)
    ) -> None:
        if not hasattr(task, "wishes"):
            raise ConfigError(
                f"agent {agent!r}: this behaviour plays from a task of the scenario"
                f" {self.scenario}; got {task!r}"
            )
        self.rng = rng
        self.task = task
        # The order of these lines is the order of draws, which recorded episodes replay.
        self.traits = traits_of(agent, rng, character, task.traits)
        self.agenda = Agenda(task, self.phrasebook)
        self.voice = Voice(self.phrasebook, rng, self.traits)
        self.wishes = Wishes(task, self.agenda, self.voice)
        self.answers = Answers(self.wishes)
        self.wavered: set[int] = set()  # places of wishes that it hesitated about
        self.priced: set[int] = set()  # and of those whose price it asked for
        self.unclear: set[int] = set()  # places of wishes about whose proposal it asked
        self.rejected: set[int] = set()  # and of those whose proposal read as wrong
        # by wish, the messages about it that it did not understand
        self.unheard: Counter[int] = Counter()
        self.disputes: Counter[int] = Counter()  # by wish, the refusals that it did not accept
        self.agent = agent
        self.opened = False
        self.read = 0  # messages of the transcript
        self.seen = 0  # turns of the record

    async def act(self, asked: Asked) -> Action:
        # What was said to it where somebody acted in its place, as in a fork.
        missed = asked.transcript[self.read : len(asked.transcript) - len(asked.new)]
        self.read = len(asked.transcript)
        for call in made(asked.turns[self.seen :], self.agent):
            self.agenda.called(call.name, call.arguments)
        self.seen = len(asked.turns)
        self.agenda.blind = not asked.turns
        if not self.opened:
            self.opened = True
            return self.voice.say(self._opening())
        for message in missed:
            if message.sender not in (self.agent, SYSTEM, SCENARIO, TOOL):
                self.agenda.hear(message.text)
        return self._react(asked.new[-1].text if asked.new else "")

    def _opening(self) -> list[str]:
        parts = [self.voice.bank("greet")] if self.traits.verbosity else []
        wishes = self.task.wishes
        every = (each for wish in wishes for each in spoken_of(wish))
        # A value of a wish is told with that wish.
        later = {str(value) for each in every for value in each.arguments.values()}
        free = [
            slot
            for slot in self.task.knowledge
            if slot.reveal == "opening" and slot.known and slot.value not in later
        ]
        free = free[: math.ceil(self.traits.front_load * len(free))]
        parts += self.voice.chat()
        if free:
            parts.append(self.answers.give({slot.name: slot for slot in free}))
        first = next((goal for goal in self.wishes.topics if self.agenda.ready(goal)), None)
        if first is not None:
            parts += self.wishes.request(first)
        return parts or [self.voice.bank("greet")]

    # -- reacting ---------------------------------------------------------------------------------

    def _react(self, text: str) -> Action:
        heard = self.agenda.hear(text)
        if self.answers.slips:  # put right before anything is agreed on
            rest = (
                self.answers.to(heard)
                or self._to_refusals(heard)
                or ([] if heard.proposals or self.agenda.settled else self._to_news(heard))
            )
            return self.voice.say([self.answers.correction(), *rest])
        if self.agenda.settled:
            return _end(self._reason())
        if self.agenda.idle >= self.traits.patience:
            return _end("gave_up")
        for react in (
            self._to_proposals,
            self._to_refusals,
            self._to_transfer,
            self.answers.to,
            self._to_news,
        ):
            parts = react(heard)
            if parts:
                return self.voice.say(parts)
        parts = self._to_anything(heard)
        return _end(self._reason()) if self.agenda.settled else self.voice.say(parts)

    def _to_anything(self, heard: Heard) -> list[str]:
        """The answer to what no reading understands: all that it may be asked for. A yes stands
        before a change, which is then looked at when it is made."""
        if not self.agenda.looked and (facts := self.answers.identity()):
            return [facts, *self.wishes.wanted()]
        goal = next(iter(self.wishes.current()), None)
        if goal is None or goal.wanted.kind == "question":
            return [self.voice.bank("complain"), *self.wishes.wanted()]
        if goal.wanted.kind == "impossible":
            self.unheard[goal.place] += 1
            if self.unheard[goal.place] == 1:
                return [self.voice.bank("why"), *self.wishes.request(goal, whole=True)]
            self.agenda.give_way(goal, heard)
            self.unheard[goal.place] = 0
            return self._to_news(heard)
        return self._allows(goal, heard)

    def _allows(self, goal: Goal, heard: Heard) -> list[str]:
        """A yes to a change that is not made yet, unless the message names something wrong; where
        nothing of it was named, or the yes changed nothing, all that it wants."""
        if goal.before is not None:
            return self._changes_mind(goal)
        if wrong := self.agenda.wrong(goal, heard.text):
            return self._corrects(goal, wrong)
        self.unheard[goal.place] += 1
        # A proposal may come in several messages, of which the last names nothing.
        named = self.agenda.named(goal)
        if self.unheard[goal.place] % 4 == 0 or not (named or self.unheard[goal.place] % 2 == 0):
            return self.wishes.request(goal, whole=True)
        goal.status = APPROVED
        return [self.voice.bank("confirm")]

    def _reason(self) -> str:
        if self.agenda.transferred and any(goal.status == REFUSED for goal in self.agenda.goals):
            return "transferred"
        goals = self.agenda.goals
        return "refused" if goals and all(goal.status == REFUSED for goal in goals) else "settled"

    def _to_proposals(self, heard: Heard) -> list[str]:
        """A yes to what is right, a no to what is wrong, and a question where a proposal leaves
        something open."""
        proposals = [
            each
            for each in heard.proposals
            # A report of what was just made sounds like a proposal of it.
            if not (heard.done and each.goal is not None and each.goal.final)
        ]
        if not proposals:
            bare = any(act.kind == "propose" and act.confidence < SURE for act in heard.acts)
            goal = next(iter(self.wishes.current()), None)
            if not bare or heard.of("ask") or heard.of("refuse") or goal is None:
                return []
            return (
                [] if goal.status == APPROVED or self.agenda.named(goal) else self._clarifies(goal)
            )
        for proposal in proposals:
            goal = proposal.goal
            if goal is not None and goal.before is not None and not proposal.wrong:
                return self._changes_mind(goal)
        if any(self._refuses(proposal) for proposal in proposals):
            return self._rejects(proposals)
        return self._doubts(heard, proposals) or self._agrees(proposals)

    def _doubts(self, heard: Heard, proposals: Sequence[Proposal]) -> list[str]:
        """What keeps it from a yes to what is right: open arguments, an unknown price, a whim."""
        if self.traits.scepticism:
            for proposal in proposals:
                lacks = sorted(self._lacks(proposal))
                if proposal.goal is not None and lacks:
                    parts = self._clarifies(proposal.goal, lacks)
                    if parts:
                        return parts
        goals = _goals(proposals)
        if self.traits.scepticism > 1 and not _MONEY.search(heard.text):
            dear = {goal.place for goal in goals} - self.priced
            if dear:
                self.priced |= dear
                self.agenda.idle = 0
                return [self.voice.bank("price")]
        for goal in goals:
            if self.traits.mind_change and goal.place not in self.wavered:
                self.wavered.add(goal.place)
                if self.rng.random() < self.traits.mind_change:
                    return [self.voice.bank("waver")]
        return []

    def _agrees(self, proposals: Sequence[Proposal]) -> list[str]:
        for goal in _goals(proposals):
            goal.status = APPROVED
        self.agenda.idle = 0
        return [self.voice.bank("confirm"), *self.voice.chat()]

    def _refuses(self, proposal: Proposal) -> bool:
        """Whether it says no: to what nobody wants, to what is settled and to what is certainly
        wrong; once to what only reads as wrong."""
        goal = proposal.goal
        judgement = proposal.judgement
        if goal is None or judgement is None or goal.final or judgement.certain:
            return True
        return bool(judgement.wrong) and goal.place not in self.rejected

    def _lacks(self, proposal: Proposal) -> tuple[str, ...]:
        return proposal.judgement.missing if proposal.judgement is not None else ()

    def _rejects(self, proposals: Sequence[Proposal]) -> list[str]:
        parts = [self.voice.bank("reject")]
        corrected = False
        for proposal in proposals:
            if not self._refuses(proposal) or proposal.goal is None:
                continue
            if proposal.goal.final:
                parts.append("That is settled already.")
            elif proposal.judgement is not None:
                parts += self._corrects(proposal.goal, proposal.judgement.wrong)[1:]
                self.rejected.add(proposal.goal.place)
                corrected = True
        return parts if corrected else [*parts, *self.wishes.wanted()]

    def _begins_anew(self, goal: Goal) -> None:
        """What was said of a wish so far was of another one: a yes waits for what is said next."""
        self.agenda.forget()
        self.unheard[goal.place] = 0

    def _corrects(self, goal: Goal, wrong: Sequence[str]) -> list[str]:
        self._begins_anew(goal)
        labels = dict.fromkeys(self.phrasebook.label(name) for name in wrong)
        return [
            self.voice.bank("reject"),
            f"Wrong: {', '.join(labels)}.",
            *self.wishes.request(goal, whole=True),
        ]

    def _clarifies(self, goal: Goal, missing: Sequence[str] = ()) -> list[str]:
        """Asks once about a wish what exactly would be done, and says what it wants; [] where it
        has asked."""
        if goal.place in self.unclear:
            return []
        self.unclear.add(goal.place)
        # its own question is not a fault of the other side
        self.agenda.idle = max(0, self.agenda.idle - 1)
        labels = dict.fromkeys(self.phrasebook.label(name) for name in missing)
        lacks = [f"{self.voice.bank('lacks')} {', '.join(labels)}."] if labels else []
        return [
            self.voice.bank("clarify"),
            *lacks,
            *self.wishes.request(goal, whole=True),
        ]

    def _changes_mind(self, goal: Goal) -> list[str]:
        goal.before = None
        goal.status = RAISED
        self._begins_anew(goal)
        self.agenda.idle = 0
        return [self.voice.bank("change_mind"), *self.wishes.request(goal, whole=True)]

    def _to_refusals(self, heard: Heard) -> list[str]:
        if heard.disputed and not heard.of("ask"):
            goal = heard.disputed[0]
            self.disputes[goal.place] += 1
            if self.disputes[goal.place] > 1 and goal.wanted.writes:
                return self._allows(goal, heard)  # `can't be done twice` refuses nothing
            if goal.wanted.kind == "impossible":
                return [self.voice.bank("why"), *self.wishes.request(goal, whole=True)]
            return [self.voice.bank("insist"), *self.wishes.request(goal, whole=True)]
        return []

    def _to_transfer(self, heard: Heard) -> list[str]:
        offers = [act for act in heard.acts if act.kind == "transfer"]
        if not offers or heard.progress:
            return []
        if any(
            goal.wanted.kind == "impossible" and goal.status in (RAISED, REFUSED)
            for goal in self.agenda.goals
        ):
            return [self.voice.bank("confirm" if offers[0].confidence < CERTAIN else "wait")]
        return [self.voice.bank("keep"), *self.wishes.wanted()]

    def _to_news(self, heard: Heard) -> list[str]:
        """Thanks and the next wish, or what is still owed."""
        lead: list[str] = []
        if heard.done or heard.informs:
            lead = [self.voice.bank("thank")] if self.traits.verbosity else []
        elif heard.refused:
            lead = [self.voice.bank("accept")]
        topics = self.wishes.topics
        waiting = [goal for goal in topics if goal.status not in (OPEN, DONE, REFUSED)]
        waits = bool(heard.of("wait")) and not any(map(self.agenda.named, waiting))
        raised = (goal for goal in topics if goal.status != OPEN and not goal.final)
        stale = next((goal for goal in raised if goal.before is not None), None)
        if stale is not None and not waits:
            return [*lead, *self._changes_mind(stale)]
        news = heard.done or heard.refused or heard.informs
        # What stands in for a refused wish comes before those that are still to come.
        fallback = next((goal for goal in heard.refused if goal.status == OPEN), None)
        following = fallback or self.wishes.following()
        if following is not None and (news or not waiting):
            return [*lead, *self.wishes.request(following)]
        if waits and not heard.of("offer_more"):
            return [self.voice.bank("wait")]
        return self._owed(heard, lead, waiting)

    def _owed(self, heard: Heard, lead: list[str], waiting: Sequence[Goal]) -> list[str]:
        """Asks for what the other side has still to do."""
        if waiting and all(goal.status == APPROVED for goal in waiting):
            return [*lead, *self._allows(waiting[0], heard)]
        untold = self.agenda.loose or any(goal.untold for goal in self.agenda.goals)
        if not waiting and untold:
            return [*lead, *self.wishes.facts()]
        return [*lead, *self.wishes.wanted()] if lead else []


def made(turns: Sequence[Turn], me: str) -> Iterator[ToolCall]:
    """The calls of the others that gave no error, as the turns that followed were shown."""
    waiting: dict[str, Sequence[ToolCall | Malformed]] = {}
    for turn in turns:
        if turn.agent != me:
            results = [message.text for message in turn.observed if message.sender == TOOL]
            for call, result in zip(waiting.pop(turn.agent, ()), results, strict=False):
                if isinstance(call, ToolCall) and not failed(result):
                    yield call
            waiting[turn.agent] = turn.action.tool_calls


def _goals(proposals: Sequence[Proposal]) -> list[Goal]:
    """The wishes that are proposed to be fulfilled."""
    return [proposal.goal for proposal in proposals if proposal.goal is not None]


def _end(reason: str) -> Action:
    return Action("", (ToolCall("call_0", "end_conversation", {"reason": reason}),))
