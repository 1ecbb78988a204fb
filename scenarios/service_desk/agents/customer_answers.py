"""What a scripted customer tells when it is asked: told, denied, withheld, dodged or said again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gem_ma.scenarios.service_desk.agents.customer_wishes import Wishes
from gem_ma.scenarios.service_desk.desk.task import Slot
from gem_ma.scenarios.service_desk.watching.agenda import OPEN, Goal, Heard
from gem_ma.scenarios.service_desk.watching.wishes import chain

OFTEN = 2  # times that one thing is told or denied about a wish; then another answer is wanted


class Answers:
    """The answers of one customer; it remembers what it dodged and where it slipped."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self.voice = wishes.voice
        self.book = wishes.book
        self.traits = wishes.traits
        self.tellings = wishes.tellings
        self.knowledge = {slot.name: slot for slot in wishes.task.knowledge}
        self.slips: dict[str, str] = {}  # slot -> the value that should have been said
        self.dodged: set[str] = set()
        self.asked: Counter[str] = Counter()  # slots, by the wish that is talked about

    def to(self, heard: Heard) -> list[str]:
        """What a message asks for; [] where it asks for nothing."""
        slots = list(dict.fromkeys(act.slot for act in heard.of("ask")))
        # What it told was of no use: once more, all of it.
        if not slots and any(act.slot == "not_found" for act in heard.acts):
            slots = [name for name in self.knowledge if self.tellings[name]]
        if not slots:
            return []
        current = self.wishes.current()
        about = current[0].place if current else -1
        slots = [slot for slot in slots if slot == "request" or self._fresh(f"{about}/{slot}")]
        untouched = any(goal.status == OPEN for goal in self.wishes.topics)
        if "request" in slots and not current and untouched:
            return self.wishes.wanted()
        for goal in current:
            if choice := self.book.offered(goal.wanted, heard.text):
                return [choice]
        details = [slot for slot in slots if any(self._has(goal, slot) for goal in current)]
        facts = [slot for slot in slots if slot not in details and slot != "request"]
        parts = [part for slot in details for part in self._detail(current[0], slot)]
        parts += self._facts(facts, alone=not details)
        if "request" in slots and not parts:
            parts += self.wishes.wanted() or [self.voice.bank("ask_fact")]
        return parts

    def _fresh(self, question: str) -> bool:
        self.asked[question] += 1
        return self.asked[question] <= OFTEN

    def give(self, slots: Mapping[str, Slot]) -> str:
        """Tells these facts, perhaps with a slip of the pen."""
        again = all(self.tellings[name] for name in slots)
        values = {name: self._typed(name, slot.value) for name, slot in slots.items()}
        self.tellings.update(list(slots))
        words = self.book.give(values, self.voice.pick)
        return f"{self.voice.bank('again')} {words}" if again else words

    def identity(self) -> str:
        """All that it knows of itself and tells when it is asked; "" where that is nothing."""
        hidden = self._hidden()
        gives = {
            name: slot
            for name, slot in self.knowledge.items()
            if slot.known and slot.reveal != "never" and slot.value not in hidden
        }
        return self.give(gives) if gives else ""

    def correction(self) -> str:
        """Puts every slip right."""
        right = self.slips
        self.slips = {}
        return f"{self.voice.bank('slip')} {self.book.give(right, self.voice.pick)}"

    # -- details of a wish, and facts --------------------------------------------------------------

    def _has(self, goal: Goal, slot: str) -> bool:
        return ("items" if slot == "wanted" else slot) in self.book.details(goal.wanted)

    def _detail(self, goal: Goal, slot: str) -> list[str]:
        """A detail of the wish that is being talked about."""
        if self.wishes.forgets(slot):
            denial = self.voice.bank("deny", slot)
            if not self.wishes.described(goal.wanted):
                return [denial]
            return [denial, self.book.detail(goal.wanted, slot, self.voice.pick)]
        if self._dodges(slot):
            return [self.voice.bank("dodge", slot)]
        key = f"{goal.place}/{slot}"
        self.tellings[key] += 1
        words = self.book.detail(goal.wanted, slot, self.voice.pick)
        return [words if self.tellings[key] == 1 else f"{self.voice.bank('again')} {words}"]

    def _facts(self, names: Sequence[str], *, alone: bool) -> list[str]:
        """Facts of its knowledge; where it tells none and nothing else (`alone`), why it does
        not."""
        hidden = self._hidden()
        held = [self.knowledge[name] for name in names if name in self.knowledge]
        held = [slot for slot in held if slot.value not in hidden]
        gives = {slot.name: slot for slot in held if slot.known and slot.reveal != "never"}
        first = next(iter(gives), "")
        if gives and self._dodges(first):
            self.dodged.update(gives)
            return [self.voice.bank("dodge", first)]
        if gives:
            return [self.give(gives)]
        if not names or not alone:
            return []
        secret = next((slot.name for slot in held if slot.known), "")
        words = self.voice.bank("withhold", secret) if secret else self.voice.bank("deny", names[0])
        # Asked for nothing that it has to do with, it says what it is here for.
        return [words] if held else [words, *self.wishes.wanted()]

    def _hidden(self) -> set[str]:
        """The records of wishes that nobody has heard of yet: those that come later, and those
        that are asked for once another is refused."""
        goals = self.wishes.agenda.goals
        heard = [goal.wanted for goal in goals if goal.status != OPEN]
        unheard = [goal.wanted for goal in goals if goal.status == OPEN]
        for goal in goals:
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

    def _dodges(self, slot: str) -> bool:
        """Whether it does not answer this time; nothing is refused twice."""
        if self.traits.cooperation >= 1 or slot in self.dodged:
            return False
        self.dodged.add(slot)
        return self.voice.rng.random() >= self.traits.cooperation

    def _typed(self, name: str, value: str) -> str:
        """The value, or a slip of it that the next message puts right."""
        if (
            self.traits.mistakes
            and not self.tellings[name]
            and self.voice.rng.random() < self.traits.mistakes
            and (wrong := self.book.mistaken(name, value))
        ):
            self.slips[name] = value
            return wrong
        return value
