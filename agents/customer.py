"""A customer without a model: it works through the wishes of its task, answers what it is asked,
and says yes only to what it checked.

Neutral machinery: the words of a domain come from its phrasebook, which a subclass names.
Decisions are made on the goal ledger; traits change the decisions, not the words alone. It ends
by the tool `end_conversation`, when all is settled or when its patience is over. Privileged: it
is given the task. The same task, seed and messages give the same bytes.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gem_ma.agents.customer_phrases import BANK, ORDINALS
from gem_ma.agents.customer_traits import traits_of
from gem_ma.scenarios.service.desk.task import Slot, Wish
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

CLARIFIES = 2  # times that it asks what exactly a proposal means, before it counts as unhelpful
_MONEY = re.compile(
    r"[$€£]\s?\d|\d\.\d\d\b|\b(?:no|without) (?:price )?(?:difference|charge|extra cost)\b"
)


class Customer:
    """The scripted customer of a service talk. A subclass sets `phrasebook`, and `scenario` for
    its messages of error."""

    waits = False
    privileged = True
    phrasebook: ClassVar[Phrasebook]
    scenario: ClassVar[str] = "a service desk"

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        preset: str | None = None,
        patience: Any = None,
        verbosity: Any = None,
        front_load: Any = None,
        cooperation: Any = None,
        mistakes: Any = None,
        scepticism: Any = None,
        order: str | None = None,
        mind_change: Any = None,
        register: str | None = None,
    ) -> None:
        if not hasattr(task, "wishes"):
            raise ConfigError(
                f"agent {agent!r}: this behaviour plays from a task of the scenario"
                f" {self.scenario}; got {task!r}"
            )
        options = {
            "patience": patience, "verbosity": verbosity, "front_load": front_load, "cooperation": cooperation, "mistakes": mistakes,
            "scepticism": scepticism, "order": order, "mind_change": mind_change, "register": register,
        }  # fmt: skip
        given = {name: value for name, value in options.items() if value is not None}
        self.rng, self.task, self.book = rng, task, self.phrasebook
        self.traits = traits_of(agent, rng, preset, given, task.traits)
        self.agenda = Agenda(task, self.book)
        self.topics = self._topics()
        # slots of the knowledge, and `<place>/<detail>` of wishes
        self.told: Counter[str] = Counter()
        self.said: Counter[str] = Counter()  # whole messages
        self.slips: dict[str, str] = {}  # slot -> the value that should have been said
        self.dodged: set[str] = set()
        self.wavered: set[int] = set()
        self.priced: set[int] = set()
        self.clarified = 0
        self.opened = False

    async def act(self, asked: Asked) -> Action:
        if not self.opened:
            self.opened = True
            return self._say(self._opening())
        return self._react(asked.new[-1].text if asked.new else "")

    def _topics(self) -> list[Goal]:
        goals = list(self.agenda.goals)
        if self.traits.order == "reversed":
            goals.reverse()
        elif self.traits.order == "shuffled":
            self.rng.shuffle(goals)
        return goals

    # -- reacting ---------------------------------------------------------------------------------

    def _react(self, text: str) -> Action:
        heard = self.agenda.hear(text)
        if self.slips:  # put right before anything is agreed on
            rest = (
                self._answers(heard)
                or self._to_refusals(heard)
                or ([] if heard.proposals or self.agenda.settled else self._to_news(heard))
            )
            return self._say([self._correction(), *rest])
        if self.agenda.settled:
            return _end(self._reason())
        if self.agenda.idle >= self.traits.patience:
            return _end("gave_up")
        for react in (
            self._to_proposals,
            self._to_refusals,
            self._to_transfer,
            self._to_questions,
            self._to_news,
        ):
            said = react(heard)
            if said:
                return self._say(said)
        return self._say([self._bank("complain"), *self._wanted()])

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
            return [self._bank("clarify"), *self._wanted()]
        for proposal in heard.proposals:
            if (
                proposal.goal is not None
                and proposal.goal.before is not None
                and not proposal.wrong
            ):
                return self._changes_mind(proposal.goal)
        if any(self._refuses(proposal) for proposal in heard.proposals):
            return self._rejects(heard.proposals)
        goals = [proposal.goal for proposal in heard.proposals if proposal.goal is not None]
        if self.traits.scepticism and (
            open_ := sorted(
                {name for proposal in heard.proposals for name in self._lacks(proposal)}
            )
        ):
            return self._clarifies(open_)
        if (
            self.traits.scepticism > 1
            and not _MONEY.search(heard.text)
            and (dear := [goal for goal in goals if goal.place not in self.priced])
        ):
            self.priced |= {goal.place for goal in dear}
            self.agenda.idle = 0
            return [self._bank("price")]
        for goal in goals:
            if self.traits.mind_change and goal.place not in self.wavered:
                self.wavered.add(goal.place)
                if self.rng.random() < self.traits.mind_change:
                    return [self._bank("waver")]
        for goal in goals:
            goal.status = APPROVED
        self.agenda.idle = self.clarified = 0
        return [self._bank("confirm"), *(self._chat())]

    def _refuses(self, proposal: Proposal) -> bool:
        return proposal.wrong or (proposal.goal is not None and proposal.goal.final)

    def _lacks(self, proposal: Proposal) -> tuple[str, ...]:
        return proposal.judgement.missing if proposal.judgement is not None else ()

    def _rejects(self, proposals: Sequence[Proposal]) -> list[str]:
        said, corrected = [self._bank("reject")], False
        for proposal in proposals:
            if not self._refuses(proposal) or proposal.goal is None:
                continue
            if proposal.goal.final:
                said.append("That is settled already.")
            elif proposal.judgement is not None:
                labels = dict.fromkeys(self.book.label(name) for name in proposal.judgement.wrong)
                said += [f"Wrong: {', '.join(labels)}.", *self._request(proposal.goal, whole=True)]
                corrected = True
        return said if corrected else [*said, *self._wanted()]

    def _clarifies(self, missing: Sequence[str]) -> list[str]:
        self.clarified += 1
        if self.clarified <= CLARIFIES:
            # its own question is no fault of the other side
            self.agenda.idle = max(0, self.agenda.idle - 1)
        labels = dict.fromkeys(self.book.label(name) for name in missing)
        return [
            self._bank("clarify"),
            f"{self._bank('lacks')} {', '.join(labels)}.",
            *(self._wanted() if self.clarified > 1 else ()),
        ]

    def _changes_mind(self, goal: Goal) -> list[str]:
        goal.before, goal.status = None, RAISED
        self.agenda.idle = 0
        return [self._bank("change_mind"), *self._request(goal, whole=True)]

    def _to_refusals(self, heard: Heard) -> list[str]:
        if heard.disputed and not heard.of("ask"):
            goal = heard.disputed[0]
            if goal.wanted.kind == "impossible":
                return [self._bank("why"), *self._request(goal, whole=True)]
            return [self._bank("insist"), *self._request(goal, whole=True)]
        return []

    def _to_transfer(self, heard: Heard) -> list[str]:
        offers = [act for act in heard.acts if act.kind == "transfer"]
        if not offers or heard.progress:
            return []
        if any(
            goal.wanted.kind == "impossible" and goal.status in (RAISED, REFUSED)
            for goal in self.agenda.goals
        ):
            return [self._bank("confirm")] if offers[0].confidence < 0.8 else [self._bank("wait")]
        return [self._bank("keep"), *self._wanted()]

    def _to_questions(self, heard: Heard) -> list[str]:
        return self._answers(heard)

    def _to_news(self, heard: Heard) -> list[str]:
        """Thanks and the next wish, or what is still owed."""
        lead: list[str] = []
        if heard.done or heard.told:
            lead = [self._bank("thank")] if self.traits.verbosity else []
        elif heard.refused:
            lead = [self._bank("accept")]
        stale = next(
            (
                goal
                for goal in self.topics
                if goal.before is not None and goal.status != OPEN and not goal.final
            ),
            None,
        )
        if stale is not None and not heard.of("wait"):
            return [*lead, *self._changes_mind(stale)]
        fallback = next((goal for goal in heard.refused if goal.status == OPEN), None)
        following = fallback or next(
            (goal for goal in self.topics if goal.status == OPEN and self.agenda.ready(goal)), None
        )
        waiting = [goal for goal in self.topics if goal.status not in (OPEN, DONE, REFUSED)]
        if following is not None and (heard.done or heard.refused or heard.told or not waiting):
            return [*lead, *self._request(following)]
        if heard.of("wait") and not heard.of("offer_more"):
            return [self._bank("wait")]
        approved = [goal for goal in waiting if goal.status == APPROVED]
        if approved and len(approved) == len(waiting):
            return [*lead, self._bank("ask_done")]
        if not waiting and (self.agenda.loose or any(goal.untold for goal in self.agenda.goals)):
            return [
                *lead,
                self._bank("ask_fact"),
                *(goal.wanted.text for goal in self.topics if goal.untold and goal.wanted.text),
            ]
        return [*lead, *self._wanted()] if lead else []

    # -- answering --------------------------------------------------------------------------------

    def _answers(self, heard: Heard) -> list[str]:
        """What was asked for: given, denied, or said again."""
        slots = list(dict.fromkeys(act.slot for act in heard.of("ask")))
        knowledge = {slot.name: slot for slot in self.task.knowledge}
        # what it told was of no use: once more, all of it
        if not slots and any(act.slot == "not_found" for act in heard.acts):
            slots = [name for name in knowledge if self.told[name]]
        if not slots:
            return []
        if (
            "request" in slots
            and not self._current()
            and any(goal.status == OPEN for goal in self.topics)
        ):
            return self._wanted()
        if choice := next(
            (
                words
                for goal in self._current()
                if (words := self.book.offered(goal.wanted, heard.text))
            ),
            "",
        ):
            return [choice]
        details = [slot for slot in slots if any(self._has(goal, slot) for goal in self._current())]
        asked = [slot for slot in slots if slot not in details and slot != "request"]
        said: list[str] = []
        hidden = self._hidden()
        held = (knowledge[name] for name in asked if name in knowledge)
        gives = {
            slot.name: slot
            for slot in held
            if slot.known and slot.reveal != "never" and slot.value not in hidden
        }
        for goal in self._current()[:1]:
            for slot in details:
                if self._forgets(slot):
                    said += [
                        self._bank("deny", slot),
                        *(
                            [self.book.detail(goal.wanted, slot, self._pick)]
                            if self._described(goal.wanted)
                            else []
                        ),
                    ]
                elif self._dodges(slot):
                    said.append(self._bank("dodge", slot))
                else:
                    said.append(self._detail(goal, slot))
        if gives and self._dodges(next(iter(gives))):
            self.dodged.update(gives)
            said.append(self._bank("dodge", next(iter(gives))))
        elif gives:
            said.append(self._give(gives))
        elif asked and not details:
            never = [
                name
                for name in asked
                if name in knowledge
                and knowledge[name].known
                and knowledge[name].value not in hidden
            ]
            said.append(self._bank("withhold", never[0]) if never else self._bank("deny", asked[0]))
            # nothing that it has to do with
            if not any(name in knowledge and knowledge[name].value not in hidden for name in asked):
                said += self._wanted()
        if "request" in slots and not said:
            said += self._wanted() or [self._bank("ask_fact")]
        return said

    def _hidden(self) -> set[str]:
        """The records of wishes that nobody has heard of yet: those that come later, and those
        that are asked for once another is refused."""
        heard = [goal.wanted for goal in self.agenda.goals if goal.status != OPEN]
        unheard = [goal.wanted for goal in self.agenda.goals if goal.status == OPEN]
        for goal in self.agenda.goals:
            unheard += [wish for wish in chain(goal.wish) if wish is not goal.wanted]
        records = [
            {
                str(wish.arguments[name])
                for wish in wishes
                for name in self.book.anchors
                if name in wish.arguments
            }
            for wishes in (unheard, heard)
        ]
        return records[0] - records[1]

    def _has(self, goal: Goal, slot: str) -> bool:
        return ("items" if slot == "wanted" else slot) in self.book.details(goal.wanted)

    def _forgets(self, slot: str) -> bool:
        return any(each.name == slot and not each.known for each in self.task.knowledge)

    def _dodges(self, slot: str) -> bool:
        """Whether it does not answer this time; nothing is refused twice."""
        if self.traits.cooperation >= 1 or slot in self.dodged:
            return False
        self.dodged.add(slot)
        return self.rng.random() >= self.traits.cooperation

    def _detail(self, goal: Goal, slot: str) -> str:
        key = f"{goal.place}/{slot}"
        self.told[key] += 1
        if self.told[key] > 2:
            return " ".join([self._bank("again"), *self._request(goal, whole=True)])
        words = self.book.detail(goal.wanted, slot, self._pick)
        return words if self.told[key] == 1 else f"{self._bank('again')} {words}"

    def _give(self, slots: Mapping[str, Slot]) -> str:
        again = all(self.told[name] for name in slots)
        values = {name: self._typed(name, slot.value) for name, slot in slots.items()}
        self.told.update(list(slots))
        words = self.book.give(values, self._pick)
        return f"{self._bank('again')} {words}" if again else words

    def _typed(self, name: str, value: str) -> str:
        """The value, or a slip of it that the next message puts right."""
        if (
            self.traits.mistakes
            and not self.told[name]
            and self.rng.random() < self.traits.mistakes
            and (wrong := self.book.mistaken(name, value))
        ):
            self.slips[name] = value
            return wrong
        return value

    def _correction(self) -> str:
        right, self.slips = self.slips, {}
        return f"{self._bank('slip')} {self.book.give(right, self._pick)}"

    # -- asking for things ------------------------------------------------------------------------

    def _opening(self) -> list[str]:
        said = [self._bank("greet")] if self.traits.verbosity else []
        every = (
            each
            for wish in self.task.wishes
            for each in (*chain(wish), wish.before_change)
            if each is not None
        )
        # told with its wish
        later = {str(value) for each in every for value in each.arguments.values()}
        free = [
            slot
            for slot in self.task.knowledge
            if slot.reveal == "opening" and slot.known and slot.value not in later
        ]
        free = free[: math.ceil(self.traits.front_load * len(free))]
        said += self._chat()
        if free:
            said.append(self._give({slot.name: slot for slot in free}))
        first = next((goal for goal in self.topics if self.agenda.ready(goal)), None)
        if first is not None:
            said += self._request(first)
        return said or [self._bank("greet")]

    def _current(self) -> list[Goal]:
        """The wishes that are being talked about, those that wait for something first."""
        raised = [goal for goal in self.topics if goal.status not in (OPEN, DONE, REFUSED)]
        return sorted(raised, key=lambda goal: goal.status == APPROVED)

    def _wanted(self) -> list[str]:
        """The wish that is being talked about, in full; else the next one, or the fact that is
        owed."""
        goal = next((goal for goal in self._current() if goal.status != APPROVED), None)
        if goal is not None:
            return self._request(goal, whole=True)
        following = next(
            (goal for goal in self.topics if goal.status == OPEN and self.agenda.ready(goal)), None
        )
        if following is not None:
            return self._request(following)
        if self._current():
            return [self._bank("ask_done")]
        return [
            self._bank("ask_fact"),
            *(goal.wanted.text for goal in self.topics if goal.untold and goal.wanted.text),
        ]

    def _request(self, goal: Goal, whole: bool = False) -> list[str]:
        wish: Wish = goal.wanted
        if goal.status == OPEN:
            goal.status = RAISED
        parts = [
            name
            for name in self.book.details(wish)
            if not self._forgets(name) or (name in self.book.anchors and self._described(wish))
        ]
        if not whole:
            parts = parts[: max(1, math.ceil(self.traits.front_load * len(parts)))]
        self.told.update(f"{goal.place}/{name}" for name in parts)
        return [self.book.request(wish, parts, self._pick)]

    def _described(self, wish: Wish) -> bool:
        """Whether the wish's own words name its record without the value that was forgotten."""
        forgotten = [slot.value for slot in self.task.knowledge if not slot.known]
        words = str(wish.words.get("order", ""))
        return bool(words) and not any(value in words for value in forgotten)

    # -- words ------------------------------------------------------------------------------------

    def _pick(self, *ways: str) -> str:
        return ways[self.rng.randrange(len(ways))]

    def _bank(self, act: str, slot: str = "") -> str:
        words = self._pick(*BANK[act][self.traits.register])
        return words.format(slot=self.book.label(slot)) if slot else words

    def _chat(self) -> list[str]:
        return [self._bank("chat")] if self.traits.verbosity > 1 else []

    def _say(self, parts: Sequence[str]) -> Action:
        """A message; one that was said before is marked as said again."""
        text = " ".join(part for part in parts if part)
        self.said[text] += 1
        if self.said[text] > 1:
            again = ORDINALS[min(self.said[text], len(ORDINALS) + 1) - 2]
            text = (
                text
                if text.startswith(tuple(BANK["confirm"][self.traits.register]))
                else f"{again} {text}"
            )
        return Action(text)


def _end(reason: str) -> Action:
    return Action("", (ToolCall("call_0", "end_conversation", {"reason": reason}),))
