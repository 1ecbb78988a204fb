"""The words of a scripted customer: ways to say an act, in one tone, drawn by the episode's own
generator. It knows no task and decides nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from gem_ma.scenarios.service_desk.agents.customer_phrases import BANK, ORDINALS
from gem_ma.scenarios.service_desk.agents.customer_traits import Traits
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook

from gem_ma import Action


class Voice:
    """How one customer speaks. `book`: the words of its domain."""

    def __init__(self, book: Phrasebook, rng: random.Random, traits: Traits) -> None:
        self.book = book
        self.rng = rng
        self.traits = traits
        self.messages: Counter[str] = Counter()  # whole ones, and how often each was said

    def pick(self, *ways: str) -> str:
        # By index: a draw per call, whatever the number of ways, so that episodes replay.
        return ways[self.rng.randrange(len(ways))]

    def bank(self, act: str, slot: str = "") -> str:
        """One of the ways to say an act; `slot`: the fact that it is about."""
        words = self.pick(*BANK[act][self.traits.register])
        return words.format(slot=self.book.label(slot)) if slot else words

    def chat(self) -> list[str]:
        """Small talk, of those who are chatty."""
        return [self.bank("chat")] if self.traits.verbosity > 1 else []

    def say(self, parts: Sequence[str]) -> Action:
        """A message; one that was said before is marked as said again."""
        # Parts may be empty, such as small talk of those who have none.
        text = " ".join(part for part in parts if part)
        self.messages[text] += 1
        times = self.messages[text]
        # A yes stays a yes, however often: it is read by its first word.
        confirms = text.startswith(tuple(BANK["confirm"][self.traits.register]))
        if times > 1 and not confirms:
            # The second time takes the first ordinal; later ones share the last.
            text = f"{ORDINALS[min(times, len(ORDINALS) + 1) - 2]} {text}"
        return Action(text)
