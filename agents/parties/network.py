"""Players of `network` with closed signals: one that says the same in each round and listens once,
at the end, and one that goes by what it heard in every round."""

from __future__ import annotations

import random
import re
from typing import Any

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked

_HEARD = re.compile(r"\b(\w{1,40}(?: \d{1,18})?): (\d{1,18})")
_HOLDS = re.compile(r"You hold (\d+)")
_NAME = re.compile(r"You are (\w+), one of (\d+) agents on a graph \((\w+)\)")
GOALS = {
    "same number": "consensus",
    "different colours": "colouring",
    "Exactly one": "leader",
    "pair with": "matching",
    "Every edge": "cover",
    "the sum": "sum",
}


class Simple(Bot):
    """Says one thing all the time, and mends its answer by what it heard last."""

    listens = False

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.place = int(agent.rpartition("_")[2])
        self.problem = ""
        self.said = -1

    async def act(self, asked: Asked) -> Action:
        legal = asked.legal or ("0",)
        text = asked.transcript[-1].text
        if not self.problem:
            self.begin(asked.transcript[0].text, text, legal)
        heard = {name: int(word) for name, word in _HEARD.findall(text)}
        is_last = text.endswith("Your answer?")
        if heard and (self.listens or is_last):
            self.said = self.mend(heard, is_last)
        choice = self.answer(legal, heard) if is_last else legal[self.said % len(legal)]
        return chosen(choice) if asked.legal else Action(choice)

    def begin(self, rules: str, question: str, legal: tuple[str, ...]) -> None:
        self.problem = next(name for words, name in GOALS.items() if words in rules)
        known = _NAME.search(rules)
        self.ring = int(known[2]) if known and known[3] == "ring" else 0
        self.is_named = known is not None
        held = _HOLDS.search(question)
        self.held = int(held[1]) if held else 0
        self.said = self.held if held else self.rng.randrange(len(legal))
        if self.problem == "leader" and known:
            self.said = self.place
        if self.problem == "matching":
            near = re.findall(r"node_(\d+)", rules.partition("Neighbours: ")[2].split(".")[0])
            self.near = list(map(int, near))
            if self.near:
                self.said = self.rng.choice(self.near)

    def mend(self, heard: dict[str, int], is_last: bool) -> int:
        """What it says after it heard these words of its neighbours."""
        said = self.said
        if self.problem == "consensus":
            return min(said, *heard.values())
        if self.problem == "leader":
            return min(said, *heard.values())
        if self.problem == "sum":
            return self.summed(heard, is_last)
        if self.problem == "matching":
            return self.paired(heard)
        # who has the smaller name stays; without names the lot decides
        above = [w for name, w in heard.items() if not self.is_named or _place(name) < self.place]
        gives_way = said in above and (self.is_named or self.rng.random() < 0.5)
        if self.problem == "cover":
            if said == 0 and gives_way:
                return 1
            return 0 if said == 1 and 0 not in heard.values() and not is_last else said
        free = [c for c in range(len(set(heard.values())) + 1) if c not in heard.values()]
        return self.rng.choice(free) if gives_way else said

    def summed(self, heard: dict[str, int], is_last: bool) -> int:
        return self.held + sum(heard.values())

    def paired(self, heard: dict[str, int]) -> int:
        """Stays with who named it; answers who named it; else tries another one."""
        by = sorted(_place(name) for name, word in heard.items() if word == self.place)
        if self.said in by:
            return self.said
        return by[0] if by else self.rng.choice(self.near or [0])

    def answer(self, legal: tuple[str, ...], heard: dict[str, int]) -> str:
        if self.problem == "leader":
            return "yes" if self.said == self.place else "no"
        if self.problem == "cover":
            return "yes" if self.said == 1 else "no"
        if self.problem == "matching":
            name = f"node_{self.said}"
            is_mutual = heard.get(name) == self.place
            return name if is_mutual and name in legal else legal[-1]
        return legal[self.said % len(legal)]


class Strong(Simple):
    """Listens in every round: the smallest word floods the graph, conflicts are mended where the
    larger name gives way, and on a ring the numbers go round once."""

    listens = True

    def begin(self, rules: str, question: str, legal: tuple[str, ...]) -> None:
        super().begin(rules, question, legal)
        self.total = self.held

    def summed(self, heard: dict[str, int], is_last: bool) -> int:
        if not self.ring:
            return super().summed(heard, is_last)
        # what the left neighbour passed on; after a whole turn it would be its own number
        word = heard.get(f"node_{(self.place - 1) % self.ring}", 0)
        self.rounds = getattr(self, "rounds", 0) + 1
        self.total += word if self.rounds < self.ring else 0
        return self.total if is_last else word


def _place(name: str) -> int:
    return int(re.split(r"[_ ]", name)[-1])
