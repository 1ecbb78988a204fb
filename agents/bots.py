"""Bots: behaviours without a policy. They are baselines, opponents and the players of the
conformance kit."""

from __future__ import annotations

import random
from typing import Any

from gem_ma import Action, Asked

WORDS = ("hello", "yes", "no", "please go on", "I do not know")


class _Bot:
    # It answers at once, so a play needs no event loop for it; the same line stands in other bots.
    waits = False

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.rng = rng


class RandomLegal(_Bot):
    """Draws one of the legal strings; says a random phrase where the choice is open."""

    async def act(self, asked: Asked) -> Action:
        choice = self.rng.choice(asked.legal or WORDS)
        # `parsed` is set, so that a choice is never read again from its text.
        return Action(choice, (), choice if asked.legal else None)


class FirstLegal(_Bot):
    """Always plays the first legal string."""

    async def act(self, asked: Asked) -> Action:
        return Action(asked.legal[0], (), asked.legal[0]) if asked.legal else Action(WORDS[0])


class Silent(_Bot):
    """Says nothing: the do-nothing baseline."""

    async def act(self, asked: Asked) -> Action:
        # Also where the choice is closed: what a scenario makes of silence is what this bot is for.
        return Action("")
