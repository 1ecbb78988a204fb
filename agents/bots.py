"""Bots: behaviours without a policy. They are baselines, opponents and the players of the
conformance kit."""

from __future__ import annotations

import random
from typing import Any

from gem_ma.agents.options import probability

from gem_ma import Action, Asked

WORDS = ("hello", "yes", "no", "please go on", "I do not know")


class Bot:
    """What plays without a policy. It answers at once, so a play needs no event loop for it."""

    waits = False

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.agent = agent
        self.rng = rng
        self.task = task


class Slipping(Bot):
    """What a tiny model begins as. With probability `guesses` it guesses, with probability `slips`
    it slips: how, its own docstring says."""

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        guesses: float = 0.0,
        slips: float = 0.0,
    ) -> None:
        super().__init__(agent, sample, rng, task)
        self.guesses = probability(agent, "guesses", guesses)
        self.slips = probability(agent, "slips", slips)


def chosen(word: str) -> Action:
    """One of the legal strings. `parsed` is set, so that a choice is never read again from its
    text."""
    return Action(word, (), word)


class RandomLegal(Bot):
    """Draws one of the legal strings; says a random phrase where the choice is open."""

    async def act(self, asked: Asked) -> Action:
        choice = self.rng.choice(asked.legal or WORDS)
        return chosen(choice) if asked.legal else Action(choice)


class FirstLegal(Bot):
    """Always plays the first legal string."""

    async def act(self, asked: Asked) -> Action:
        return chosen(asked.legal[0]) if asked.legal else Action(WORDS[0])


class Silent(Bot):
    """Says nothing: the do-nothing baseline."""

    async def act(self, asked: Asked) -> Action:
        # Also where the choice is closed: what a scenario makes of silence is what this bot is for.
        return Action("")
