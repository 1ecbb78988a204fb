"""Players of `guess_number`: who ignores the hints, who at least repeats nothing, who halves what
is left, and a teacher with its pupil."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot, chosen
from gem_ma.agents.options import probability
from gem_ma.scenarios.guess_number import HIGHER, LOWER

from gem_ma import Action, Asked, Message


class NumberGuesser(Bot):
    """Draws any number at every turn: legal, and deaf to the hints."""

    async def act(self, asked: Asked) -> Action:
        # Outside its scenario there may be nothing to choose from.
        numbers = [int(choice) for choice in asked.legal or ()] or [1]
        text = str(self.choose(numbers, asked.transcript))
        return chosen(text)

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


PARTS = ("lowest", "low", "middle", "high", "highest")
_RANGE = re.compile(r"from (\d{1,9}) to (\d{1,9})")
_RIGHT = re.compile(r"The right answer is: (\d{1,9})")


class NumberTaught(NumberGuesserWithoutRepeats):
    """Teacher and pupil of `teamwork: teach`: the one says in which fifth of the numbers the answer
    lies, the other guesses inside of the fifth that it hears."""

    async def act(self, asked: Asked) -> Action:
        if not asked.legal or not set(asked.legal) <= set(PARTS):
            return await super().act(asked)
        text = "\n".join(message.text for message in asked.transcript)
        bounds = _RANGE.search(text)
        right = _RIGHT.search(text)
        choice = asked.legal[0]
        if bounds and right:
            choice = part_of(int(right[1]), int(bounds[1]), int(bounds[2]))
        return chosen(choice)

    def choose(self, numbers: list[int], seen: Sequence[Message]) -> int:
        heard = {message.text for message in seen if message.sender != self.agent}
        low = numbers[0]
        high = numbers[-1]
        said = [number for number in numbers if part_of(number, low, high) in heard]
        tried = {guess for guess, _ in self.hints(seen)}
        left = [number for number in said if number not in tried]
        return left[0] if left else super().choose(numbers, seen)


def part_of(number: int, low: int, high: int) -> str:
    """The fifth of `low` to `high` that a number lies in.

    >>> part_of(1, 1, 10), part_of(10, 1, 10)
    ('lowest', 'highest')
    """
    place = (number - low) * len(PARTS) // (high - low + 1)
    return PARTS[min(max(place, 0), len(PARTS) - 1)]
