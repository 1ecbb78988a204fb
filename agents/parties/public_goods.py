"""Players of `public_goods`: what they give, and whom they fine."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked

_GIVEN = re.compile(r"(player_\d+) (\d+)[,.]")
NOBODY = "nobody"


class _Member(Bot):
    part = 0.0  # of what it has

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.heard = 0  # messages that have been read
        self.given: dict[str, int] = {}  # by each, in the last round

    async def act(self, asked: Asked) -> Action:
        for message in asked.transcript[self.heard :]:
            if message.text.startswith("Given: ") and message.sender != self.agent:
                self.given = {name: int(own) for name, own in _GIVEN.findall(message.text)}
        self.heard = len(asked.transcript)
        if not asked.legal:  # free talk
            return Action("")
        choice = self.fines(asked.legal) if asked.legal[0] == NOBODY else self.gives(asked.legal)
        return chosen(choice)

    def gives(self, legal: Sequence[str]) -> str:
        """An amount, or its announcement: both are listed from nothing to all."""
        return legal[round(self.part * (len(legal) - 1))]

    def fines(self, legal: Sequence[str]) -> str:
        """Whom it fines."""
        return NOBODY


class Selfish(_Member):
    """Gives nothing."""


class Half(_Member):
    """Gives half."""

    part = 0.5


class Giver(_Member):
    """Gives all."""

    part = 1.0


class Conditional(_Member):
    """Gives all first, then what the others gave in the mean, rounded down to what may be
    given."""

    def gives(self, legal: Sequence[str]) -> str:
        others = [own for name, own in self.given.items() if name != self.agent]
        if not others:
            return legal[-1]
        mean = sum(others) / len(others)
        # the number in an amount, and in "I give 5."
        fits = [word for word in legal if int(re.sub(r"\D", "", word)) <= mean]
        return fits[-1]


class Punisher(Conditional):
    """Gives as `goods_conditional`, and fines who gave least, where that is less than it gave."""

    def fines(self, legal: Sequence[str]) -> str:
        own = self.given[self.agent]
        least = min(legal[1:], key=lambda name: self.given[name])
        return least if self.given[least] < own else NOBODY
