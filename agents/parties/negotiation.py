"""Players of `negotiation`: one that is content with anything better than no deal, and one that
begins with its best and gives way slowly."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked

_POINTS = re.compile(r"\b(\w{1,40} \w{1,40}) (\d{1,18})")
_TURN = re.compile(r"(?:Turn|Round) (\d+) of (\d+)\. ?(.*)")
_OFFER = re.compile(r"(?:offered|proposes): ([^:]{0,1000})\.$")
LEAST = 0.25  # of what is to be won, below which the strong one does not offer
NO_DEAL = "no deal"


class Simple(Bot):
    """Takes what is worth no less than no deal, and offers any deal of which that is true."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.points: dict[str, int] = {}
        self.offered: set[str] = set()

    async def act(self, asked: Asked) -> Action:
        if not self.points:
            _, _, told = asked.transcript[0].text.partition("your points: ")
            self.points = {part: int(worth) for part, worth in _POINTS.findall(told)}
        legal = asked.legal or ("",)
        turn = _TURN.match(asked.transcript[-1].text)
        choice = self.wish(legal) if turn is None else self.choose(legal, turn)
        return chosen(choice) if asked.legal else Action(choice)

    def choose(self, legal: Sequence[str], turn: re.Match[str]) -> str:
        """What to do of the legal acts in this turn."""
        named = _OFFER.search(turn[3])
        standing = self.worth(named[1]) if named else None
        mine = [deal for deal in legal if ", " in deal and self.worth(deal) >= self.walk]
        least = self.least(int(turn[1]), int(turn[2])) if mine else self.walk
        if standing is not None and "accept" in legal and standing >= least:
            return "accept"
        choice = self.offer(mine, least) if mine else legal[-1]
        self.offered.add(choice)
        return choice

    def least(self, turn: int, turns: int) -> int:
        """Points below which it accepts nothing and offers nothing now."""
        return self.walk

    def offer(self, mine: Sequence[str], least: int) -> str:
        return self.rng.choice(mine)

    def wish(self, legal: Sequence[str]) -> str:
        return max(legal, key=lambda part: self.points.get(part, 0))

    def worth(self, deal: str) -> int:
        return sum(self.points[part] for part in deal.split(", "))

    @property
    def walk(self) -> int:
        return self.points[NO_DEAL]


class Strong(Simple):
    """Wants its best at first, and less with every turn; offers a deal that it has not offered
    yet, the cheapest one that it still wants. With the last word it takes what is better than no
    deal."""

    def least(self, turn: int, turns: int) -> int:
        left = 1 - (turn - 1) / max(1, turns - 1)
        return self.walk + int((100 - self.walk) * (LEAST + (1 - LEAST) * left))

    def offer(self, mine: Sequence[str], least: int) -> str:
        wanted = [d for d in mine if self.worth(d) >= least]
        fresh = [d for d in wanted if d not in self.offered]
        return min(fresh or wanted or mine, key=self.worth)
