"""Traders of `market`: all know their own value or cost, and none of them what others did."""

from __future__ import annotations

import re

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked

_BRIEFING = re.compile(r"You (buy|sell)\. A unit (?:is worth|costs you) (\d+)")
_TURN = re.compile(r"Quote (\d+) of (\d+)\.")
MOST = 100  # the highest price


class Truthful(Bot):
    """Quotes what a unit is worth to it, or costs it."""

    async def act(self, asked: Asked) -> Action:
        briefing = _BRIEFING.match(asked.transcript[0].text)
        turn = _TURN.match(asked.transcript[-1].text)
        if briefing is None or turn is None:
            return Action("")
        done = int(turn[1]) / int(turn[2])
        price = str(self.price(briefing[1] == "buy", int(briefing[2]), done))
        return chosen(price)

    def price(self, buys: bool, worth: int, done: float) -> int:
        """The quote; `done`: which part of the quotes has been asked for, 1 at the last."""
        return worth


class Zero(Truthful):
    """Zero intelligence: draws any price at which it does not lose, as Gode and Sunder's."""

    def price(self, buys: bool, worth: int, done: float) -> int:
        return self.rng.randint(1, worth) if buys else self.rng.randint(worth, MOST)


class Patient(Truthful):
    """Wants half of what it could gain at most, and less with each quote; its own value or cost
    at the last one."""

    def price(self, buys: bool, worth: int, done: float) -> int:
        most = worth - 1 if buys else MOST - worth
        margin = round(most * (1 - done) / 2)
        return worth - margin if buys else worth + margin
