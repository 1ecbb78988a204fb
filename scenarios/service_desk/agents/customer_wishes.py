"""What a scripted customer wants, and how it asks for it: wish by wish, all at once or a detail at
a time. It keeps the book of what was told."""

from __future__ import annotations

import math
from collections import Counter

from gem_ma.scenarios.service_desk.agents.customer_voice import Voice
from gem_ma.scenarios.service_desk.desk.task import Task, Wish
from gem_ma.scenarios.service_desk.watching.agenda import (
    APPROVED,
    DONE,
    OPEN,
    RAISED,
    REFUSED,
    Agenda,
    Goal,
)


class Wishes:
    """The wishes of one customer in the order in which it brings them up."""

    def __init__(self, task: Task, agenda: Agenda, voice: Voice) -> None:
        self.task = task
        self.agenda = agenda
        self.voice = voice
        self.book = voice.book
        self.traits = voice.traits
        # slots of the knowledge, and `<place>/<detail>` of wishes
        self.tellings: Counter[str] = Counter()
        self.topics = list(agenda.goals)
        # Shuffled once, at the start: the order is a trait and not a mood.
        if self.traits.order == "reversed":
            self.topics.reverse()
        elif self.traits.order == "shuffled":
            voice.rng.shuffle(self.topics)

    def following(self) -> Goal | None:
        """The next wish that nobody has heard of and that waits for no other."""
        ready = (goal for goal in self.topics if goal.status == OPEN and self.agenda.ready(goal))
        return next(ready, None)

    def facts(self) -> list[str]:
        """Asks for the facts that are still owed."""
        owed = (goal.wanted.text for goal in self.topics if goal.untold and goal.wanted.text)
        return [self.voice.bank("ask_fact"), *owed]

    def current(self) -> list[Goal]:
        """The wishes that are being talked about, those that wait for something first."""
        raised = [goal for goal in self.topics if goal.status not in (OPEN, DONE, REFUSED)]
        # Approved ones last: they wait for the other side, the others for the customer.
        return sorted(raised, key=lambda goal: goal.status == APPROVED)

    def wanted(self) -> list[str]:
        """The wish that is being talked about, in full; else the next one, or the fact that is
        owed."""
        goal = next((goal for goal in self.current() if goal.status != APPROVED), None)
        if goal is not None:
            return self.request(goal, whole=True)
        following = self.following()
        if following is not None:
            return self.request(following)
        if self.current():
            return self.request(self.current()[0], whole=True)
        return self.facts()

    def request(self, goal: Goal, whole: bool = False) -> list[str]:
        """Asks for a wish: as much of it at once as its customer brings forward, or `whole`."""
        wish: Wish = goal.wanted
        if goal.status == OPEN:
            goal.status = RAISED
        parts = [
            name
            for name in self.book.details(wish)
            # A forgotten number is left out, unless the wish describes its record in other words.
            if not self.forgets(name) or (name in self.book.anchors and self.described(wish))
        ]
        if not whole:
            # At least one detail, since a request about nothing cannot be answered.
            parts = parts[: max(1, math.ceil(self.traits.front_load * len(parts)))]
        self.tellings.update(f"{goal.place}/{name}" for name in parts)
        return [self.book.request(wish, parts, self.voice.pick)]

    def described(self, wish: Wish) -> bool:
        """Whether the wish's own words name its record without the value that was forgotten."""
        forgotten = [slot.value for slot in self.task.knowledge if not slot.known]
        # Only orders are described in words of their own.
        words = str(wish.words.get("order", ""))
        return bool(words) and not any(value in words for value in forgotten)

    def forgets(self, slot: str) -> bool:
        """Whether it has to do with a fact, and does not know it."""
        return any(each.name == slot and not each.known for each in self.task.knowledge)
