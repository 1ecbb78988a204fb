"""Bidders of `auction`: who bids what it is worth, half of it, or what is best where all bid so."""

from __future__ import annotations

import re

from gem_ma.agents.bots import Bot, chosen
from gem_ma.scenarios.parties.auction import equilibrium

from gem_ma import Action, Asked

_WORTH = re.compile(r"It is worth (\d+) to you\.")
_STAY = re.compile(r"Do you stay at (\d+)\?")
_BIDDERS = re.compile(r"\b(\d{1,18}) bidders, rounds")
_TOP = re.compile(r"from 0 to (\d+)")


class Truthful(Bot):
    """Bids what it is worth to it, and stays up to there."""

    async def act(self, asked: Asked) -> Action:
        told = [message.text for message in asked.transcript]
        worth = int(next(m[1] for text in reversed(told) if (m := _WORTH.match(text))))
        stay = _STAY.search(told[-1])
        if stay:
            answer = "stay" if int(stay[1]) <= self.bid(worth, told[0]) else "leave"
        else:
            answer = str(self.bid(worth, told[0]))
        return chosen(answer)

    def bid(self, worth: int, rules: str) -> int:
        """The most that it offers; `rules` is what it was told first."""
        return worth


class Half(Truthful):
    """Bids half of what it is worth to it, rounded down."""

    def bid(self, worth: int, rules: str) -> int:
        return worth // 2


class Equilibrium(Truthful):
    """Bids what is best where all others do the same: less than its value where the winner pays
    its own bid, else its value."""

    def bid(self, worth: int, rules: str) -> int:
        agents = _BIDDERS.match(rules)
        top = _TOP.search(rules)
        if "pays itself" not in rules or agents is None or top is None:
            return worth
        return equilibrium(int(agents[1]), int(top[1]))[0][worth]
