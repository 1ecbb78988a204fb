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
from collections.abc import Sequence
from typing import Any, ClassVar

from gem_ma.agents.customer_answers import Answers
from gem_ma.agents.customer_traits import Character, traits_of
from gem_ma.agents.customer_voice import Voice
from gem_ma.agents.customer_wishes import Wishes
from gem_ma.scenarios.service.reading.acts import SURE
from gem_ma.scenarios.service.reading.phrases import Phrasebook
from gem_ma.scenarios.service.watching.agenda import (
    APPROVED,
    DONE,
    OPEN,
    RAISED,
    REFUSED,
    Agenda,
    Goal,
    Heard,
    Proposal,
    chain,
)

from gem_ma import Action, Asked, ToolCall
from gem_ma.errors import ConfigError
from gem_ma.options import flat
from gem_ma.types import SCENARIO, SYSTEM, TOOL

CLARIFIES = 2  # times that it asks what exactly a proposal means, before it counts as unhelpful
CERTAIN = 0.8  # confidence from which a transfer is no offer any more: it is under way
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
        self.rng, self.task = rng, task
        # The order of these lines is the order of draws, which recorded episodes replay.
        self.traits = traits_of(agent, rng, character, task.traits)
        self.agenda = Agenda(task, self.phrasebook)
        self.voice = Voice(self.phrasebook, rng, self.traits)
        self.wishes = Wishes(task, self.agenda, self.voice)
        self.answers = Answers(self.wishes)
        self.wavered: set[int] = set()  # places of wishes that it hesitated about
        self.priced: set[int] = set()  # and of those whose price it asked for
        self.clarified = 0
        self.agent, self.opened = agent, False
        self.read = 0  # messages of the transcript

    async def act(self, asked: Asked) -> Action:
        # What was said to it where somebody acted in its place, as in a fork.
        missed = asked.transcript[self.read : len(asked.transcript) - len(asked.new)]
        self.read = len(asked.transcript)
        if not self.opened:
            self.opened = True
            return self.voice.say(self._opening())
        for message in missed:
            if message.sender not in (self.agent, SYSTEM, SCENARIO, TOOL):
                self.agenda.hear(message.text)
        return self._react(asked.new[-1].text if asked.new else "")

    def _opening(self) -> list[str]:
        parts = [self.voice.bank("greet")] if self.traits.verbosity else []
        every = (
            each
            for wish in self.task.wishes
            for each in (*chain(wish), wish.before_change)
            if each is not None
        )
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
        return self.voice.say([self.voice.bank("complain"), *self.wishes.wanted()])

    def _reason(self) -> str:
        if self.agenda.transferred and any(goal.status == REFUSED for goal in self.agenda.goals):
            return "transferred"
        goals = self.agenda.goals
        return "refused" if goals and all(goal.status == REFUSED for goal in goals) else "settled"

    def _to_proposals(self, heard: Heard) -> list[str]:
        """A yes to what is right, a no to what is wrong, and a question where a proposal leaves
        something open."""
        if not heard.proposals:
            bare = any(act.kind == "propose" and act.confidence < SURE for act in heard.acts)
            if not bare or heard.of("ask") or heard.of("refuse"):
                return []
            return [self.voice.bank("clarify"), *self.wishes.wanted()]
        for proposal in heard.proposals:
            goal = proposal.goal
            if goal is not None and goal.before is not None and not proposal.wrong:
                return self._changes_mind(goal)
        if any(self._refuses(proposal) for proposal in heard.proposals):
            return self._rejects(heard.proposals)
        return self._doubts(heard) or self._agrees(heard)

    def _doubts(self, heard: Heard) -> list[str]:
        """What keeps it from a yes to what is right: open arguments, an unknown price, a whim."""
        if self.traits.scepticism:
            lacks = {name for proposal in heard.proposals for name in self._lacks(proposal)}
            if lacks:
                return self._clarifies(sorted(lacks))
        goals = _goals(heard)
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

    def _agrees(self, heard: Heard) -> list[str]:
        for goal in _goals(heard):
            goal.status = APPROVED
        self.agenda.idle = self.clarified = 0
        return [self.voice.bank("confirm"), *self.voice.chat()]

    def _refuses(self, proposal: Proposal) -> bool:
        return proposal.wrong or (proposal.goal is not None and proposal.goal.final)

    def _lacks(self, proposal: Proposal) -> tuple[str, ...]:
        return proposal.judgement.missing if proposal.judgement is not None else ()

    def _rejects(self, proposals: Sequence[Proposal]) -> list[str]:
        parts, corrected = [self.voice.bank("reject")], False
        for proposal in proposals:
            if not self._refuses(proposal) or proposal.goal is None:
                continue
            if proposal.goal.final:
                parts.append("That is settled already.")
            elif proposal.judgement is not None:
                wrong = proposal.judgement.wrong
                labels = dict.fromkeys(self.phrasebook.label(name) for name in wrong)
                parts.append(f"Wrong: {', '.join(labels)}.")
                parts += self.wishes.request(proposal.goal, whole=True)
                corrected = True
        return parts if corrected else [*parts, *self.wishes.wanted()]

    def _clarifies(self, missing: Sequence[str]) -> list[str]:
        self.clarified += 1
        if self.clarified <= CLARIFIES:
            # its own question is no fault of the other side
            self.agenda.idle = max(0, self.agenda.idle - 1)
        labels = dict.fromkeys(self.phrasebook.label(name) for name in missing)
        return [
            self.voice.bank("clarify"),
            f"{self.voice.bank('lacks')} {', '.join(labels)}.",
            *(self.wishes.wanted() if self.clarified > 1 else ()),
        ]

    def _changes_mind(self, goal: Goal) -> list[str]:
        goal.before, goal.status = None, RAISED
        self.agenda.idle = 0
        return [self.voice.bank("change_mind"), *self.wishes.request(goal, whole=True)]

    def _to_refusals(self, heard: Heard) -> list[str]:
        if heard.disputed and not heard.of("ask"):
            goal = heard.disputed[0]
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
        waits = bool(heard.of("wait"))
        raised = (goal for goal in topics if goal.status != OPEN and not goal.final)
        stale = next((goal for goal in raised if goal.before is not None), None)
        if stale is not None and not waits:
            return [*lead, *self._changes_mind(stale)]
        waiting = [goal for goal in topics if goal.status not in (OPEN, DONE, REFUSED)]
        news = heard.done or heard.refused or heard.informs
        # What stands in for a refused wish comes before those that are still to come.
        fallback = next((goal for goal in heard.refused if goal.status == OPEN), None)
        following = fallback or self.wishes.following()
        if following is not None and (news or not waiting):
            return [*lead, *self.wishes.request(following)]
        if waits and not heard.of("offer_more"):
            return [self.voice.bank("wait")]
        return self._owed(lead, waiting)

    def _owed(self, lead: list[str], waiting: Sequence[Goal]) -> list[str]:
        """Asks for what the other side has still to do."""
        if waiting and all(goal.status == APPROVED for goal in waiting):
            return [*lead, self.voice.bank("ask_done")]
        untold = self.agenda.loose or any(goal.untold for goal in self.agenda.goals)
        if not waiting and untold:
            return [*lead, *self.wishes.facts()]
        return [*lead, *self.wishes.wanted()] if lead else []


def _goals(heard: Heard) -> list[Goal]:
    """The wishes that a message proposes to fulfil."""
    return [proposal.goal for proposal in heard.proposals if proposal.goal is not None]


def _end(reason: str) -> Action:
    return Action("", (ToolCall("call_0", "end_conversation", {"reason": reason}),))
