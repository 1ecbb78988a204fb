"""Players of `werewolf`: one that believes what is said of wolves and says nothing itself, and one
that tells what a seer saw, remembers who spoke the truth, and lies as a wolf."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked
from gem_ma.kernel.errors import ConfigError

_ROLE = re.compile(r"You are (\w+), role: (\w+)\.")
_OUT = re.compile(r"\b(\w{1,40}) was [^;]{1,100}; role: (\w{1,40})\.")
_SEEN = re.compile(r"\b(\w{1,40}) has the role: (\w+)\.")
_PACK = re.compile(r"The wolves are ([^.]{1,4000})\.")
_CLAIM = re.compile(r"\b(\w{1,40}) is a wolf")
NOTHING = "nothing to say"


class Simple(Bot):
    """Votes for a wolf that it knows, else for who is called a wolf most often; says nothing. As a
    wolf it names nobody of its own."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.role = ""
        self.known: dict[str, str] = {}  # player -> role, as the game has told
        self.claims: dict[str, set[str]] = {}  # who is called a wolf -> by whom

    async def act(self, asked: Asked) -> Action:
        for message in asked.new:
            self.hear(message.sender, message.text)
        legal = asked.legal or (NOTHING,)
        question = asked.new[-1].text
        if question.startswith("Night"):
            choice = self.night(legal)
        elif question.endswith("say?"):
            choice = self.say(legal)
        else:
            choice = self.vote(legal) if self.agent in legal else self.rng.choice(legal)
        return chosen(choice) if asked.legal else Action(choice)

    def hear(self, sender: str, text: str) -> None:
        if match := _ROLE.match(text):
            self.role = match[2]
            self.known[self.agent] = match[2]
        elif match := _OUT.match(text) or _SEEN.match(text):
            self.known[match[1]] = match[2]
        elif match := _PACK.match(text):
            self.known.update(dict.fromkeys(match[1].split(", "), "wolf"))
        elif sender != "scenario" and (match := _CLAIM.fullmatch(text)):
            self.claims.setdefault(match[1], set()).add(sender)

    def night(self, legal: Sequence[str]) -> str:
        new = [x for x in legal if x not in self.known]
        return self.rng.choice(new or legal)

    def say(self, legal: Sequence[str]) -> str:
        return NOTHING if NOTHING in legal else self.rng.choice(legal)

    def vote(self, legal: Sequence[str]) -> str:
        others = [x for x in legal if x != self.agent]
        if self.role == "wolf":
            prey = [x for x in others if self.known.get(x) != "wolf"]
            return self.most(prey or others)
        if wolves := [x for x in others if self.known.get(x) == "wolf"]:
            return wolves[0]
        return self.most([x for x in others if x not in self.known] or others)

    def most(self, candidates: Sequence[str]) -> str:
        """Of these who is called a wolf by most, by lot among equals."""
        counts = Counter({x: self.weight(x) for x in candidates})
        top = max(counts.values())
        return self.rng.choice([x for x in candidates if counts[x] == top])

    def weight(self, player: str) -> int:
        return len(self.claims.get(player, ()))


class Strong(Simple):
    """Tells as a seer which wolf it saw; believes nobody who called one of the village a wolf. As a
    wolf it kills who has named one of its own, and calls others wolves."""

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        at_random: float = 0.0,
    ) -> None:
        """`at_random`: the share of its acts that are any legal one, 0 to 1."""
        super().__init__(agent, sample, rng, task)
        if not 0 <= at_random <= 1:
            raise ConfigError(f"at_random lies between 0 and 1; got {at_random!r}")
        self.at_random = at_random

    async def act(self, asked: Asked) -> Action:
        action = await super().act(asked)
        # nothing is drawn for a share of 0: its plays are those that they were
        if self.at_random and asked.legal and self.rng.random() < self.at_random:
            choice = self.rng.choice(asked.legal)
            return chosen(choice)
        return action

    def night(self, legal: Sequence[str]) -> str:
        if self.role == "wolf":
            told = {
                by for x, who in self.claims.items() if self.known.get(x) == "wolf" for by in who
            }
            if named := [x for x in legal if x in told]:
                return self.rng.choice(named)
        return super().night(legal)

    def say(self, legal: Sequence[str]) -> str:
        if self.role == "wolf":
            lies = [m[1] for x in legal if (m := _CLAIM.fullmatch(x)) and m[1] not in self.known]
            return f"{self.most(lies)} is a wolf" if lies else super().say(legal)
        for player, role in self.known.items():
            if role == "wolf" and f"{player} is a wolf" in legal:
                return f"{player} is a wolf"
        return super().say(legal)

    def weight(self, player: str) -> int:
        believed = [by for by in self.claims.get(player, ()) if not self.has_lied(by)]
        return len(believed) + 2 * self.has_lied(player)

    def has_lied(self, player: str) -> bool:
        """Whether it called somebody a wolf who is known not to be one."""
        return any(
            player in by and self.known.get(x, "wolf") != "wolf" for x, by in self.claims.items()
        )
