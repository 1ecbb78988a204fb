"""A player of three tasks of reasoning_gym by what the question says, more or less well: what the
models of `chain_sum`, `number_sorting` and `spell_backward` begin as."""

from __future__ import annotations

import random
import re
from typing import Any

from gem_ma import Action, Asked

SUM = re.compile(r"problem: (\d+) ([+-]) (\d+) =")
WORD = re.compile(r"nus\): (\w+)")
LIST = re.compile(r"(ascending|descending) order: ([\d., ]+)")


class Reasoner:
    """Gives the right answer; with probability `slips` one of the same form at random."""

    waits = False

    def __init__(
        self, agent: str, sample: Any, rng: random.Random, task: Any = None, slips: float = 0.0
    ) -> None:
        self.rng = rng
        self.slips = slips

    async def act(self, asked: Asked) -> Action:
        question = asked.transcript[-1].text
        slips = self.rng.random() < self.slips
        if found := SUM.search(question):
            signed = int(found[3]) if found[2] == "+" else -int(found[3])
            return Action(str(self.rng.randint(-9, 18) if slips else int(found[1]) + signed))
        if found := WORD.search(question):
            letters = list(reversed(found[1]))
            if slips:
                self.rng.shuffle(letters)
            return Action("".join(letters))
        if found := LIST.search(question):
            numbers = sorted(found[2].split(", "), key=float, reverse=found[1] == "descending")
            if slips:
                self.rng.shuffle(numbers)
            return Action(str(numbers))
        return Action("")
