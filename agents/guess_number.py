"""Players of `guess_number`: who ignores the hints, who at least repeats nothing, and who halves
what is left."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.options import probability
from gem_ma.scenarios.guess_number import HIGHER, LOWER

from gem_ma import Action, Asked, Message


class NumberGuesser:
    """Draws any number at every turn: legal, and deaf to the hints."""

    waits = False

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.agent = agent
        self.rng = rng

    async def act(self, asked: Asked) -> Action:
        # Outside its scenario there may be nothing to choose from.
        numbers = [int(choice) for choice in asked.legal or ()] or [1]
        text = str(self.choose(numbers, asked.transcript))
        return Action(text, (), text)

    def choose(self, numbers: list[int], seen: Sequence[Message]) -> int:
        return self.rng.choice(numbers)

    def hints(self, seen: Sequence[Message]) -> list[tuple[int, str]]:
        """(guess, hint) so far, as the hints tell them."""
        bounds = [
            re.match(rf"({HIGHER}|{LOWER}) (\d+)", message.text)
            for message in seen
            # Own messages hold numbers as well, and no hints.
            if message.sender != self.agent
        ]
        return [(int(hint[2]), hint[1]) for hint in bounds if hint]


class NumberGuesserWithoutRepeats(NumberGuesser):
    """Draws a number that it has not said yet."""

    def choose(self, numbers: list[int], seen: Sequence[Message]) -> int:
        said = {guess for guess, _ in self.hints(seen)}
        # All said already: then any of them.
        return self.rng.choice([number for number in numbers if number not in said] or numbers)


class NumberHalver(NumberGuesser):
    """Says the middle of what the hints leave; with probability `noise` any number."""

    def __init__(
        self, agent: str, sample: Any, rng: random.Random, task: Any = None, noise: float = 0.0
    ) -> None:
        super().__init__(agent, sample, rng, task)
        self.noise = probability(agent, "noise", noise)

    def choose(self, numbers: list[int], seen: Sequence[Message]) -> int:
        if self.noise and self.rng.random() < self.noise:
            return self.rng.choice(numbers)
        low = numbers[0]
        high = numbers[-1]
        for guess, heard in self.hints(seen):
            low = max(low, guess + 1) if heard == HIGHER else low
            high = min(high, guess - 1) if heard == LOWER else high
        # Where hints contradict each other, as after a noisy reading, any number is as good.
        return (low + high) // 2 if low <= high else self.rng.choice(numbers)
