"""Members of `hidden_profile`: which facts they say first, and whether they heed those of
others."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot, chosen
from gem_ma.scenarios.parties.hidden_profile import FACT, NOTHING, favoured

from gem_ma import Action, Asked
from gem_ma.kernel.talk import BIDS

_KNOWS = re.compile(r"(All know|Only you know|You know): ([^.:]{1,6000})\.")


class Mixed(Bot):
    """Says its facts in an order drawn by lot, and votes for what most facts that it knows or has
    heard speak for."""

    listens = True

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.read = 0  # messages that have been read
        self.shared: list[str] = []
        self.own: list[str] = []
        self.heard: set[str] = set()
        self.said: set[str] = set()

    async def act(self, asked: Asked) -> Action:
        for message in asked.transcript[self.read :]:
            facts = set(FACT.findall(message.text))
            if told := _KNOWS.findall(message.text) if message.sender == "scenario" else []:
                for who, listed in told:
                    (self.shared if who == "All know" else self.own).extend(FACT.findall(listed))
            elif message.sender == self.agent:
                self.said |= facts
            else:
                self.heard |= facts
        self.read = len(asked.transcript)
        if asked.legal == BIDS:
            # who knows what others do not wants to say it
            left = len(set(self.own) - self.said)
            return chosen(BIDS[min(left, len(BIDS) - 1)])
        if asked.legal and NOTHING not in asked.legal:
            return chosen(self.vote(asked.legal))
        # what others have said need not be said again
        unsaid = [fact for fact in self.order() if fact not in self.said | self.heard]
        if asked.legal:
            return chosen(next((fact for fact in unsaid if fact in asked.legal), NOTHING))
        return Action(f"I know {unsaid[0]}." if unsaid else "")

    def order(self) -> Sequence[str]:
        """All facts that it was given, those to be said first in front."""
        facts = self.shared + self.own
        return self.rng.sample(facts, len(facts))

    def vote(self, choices: Sequence[str]) -> str:
        known = {*self.shared, *self.own, *(self.heard if self.listens else ())}
        return self.rng.choice(favoured(sorted(known), choices))


class Own(Mixed):
    """Says its facts by lot, and votes by those that it was given alone."""

    listens = False


class Shared(Mixed):
    """Says first what all know."""

    def order(self) -> Sequence[str]:
        return self.shared + self.own


class Unshared(Mixed):
    """Says first what it alone knows."""

    def order(self) -> Sequence[str]:
        return self.own + self.shared
