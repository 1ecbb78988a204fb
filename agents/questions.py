"""Players of `questions` that solve nothing, and one that knows the answers."""

from __future__ import annotations

import random
import re
from typing import Any

from gem_ma.agents.bots import Bot, Slipping

from gem_ma import Action, Asked, ToolCall


class _Player(Bot):
    async def act(self, asked: Asked) -> Action:
        return self.said(asked, self.answer(asked))

    def said(self, asked: Asked, text: str) -> Action:
        return Action(text, (), text if text in (asked.legal or ()) else None)

    def answer(self, asked: Asked) -> str:
        raise NotImplementedError


def _question(asked: Asked) -> str:
    """What was asked first: later messages hold attempts and what came of them."""
    shown = [message.text for message in asked.transcript if message.role("") == "user"]
    return shown[0] if shown else ""


class Constant(_Player):
    """Says the same word to every question."""

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        word: str | float = 0,
    ) -> None:
        super().__init__(agent, sample, rng, task)
        self.word = str(word)

    def answer(self, asked: Asked) -> str:
        return self.word


class Echo(_Player):
    """Says the question."""

    def answer(self, asked: Asked) -> str:
        return _question(asked)


class Random(_Player):
    """Draws a choice; where there are none, a word of the question."""

    def answer(self, asked: Asked) -> str:
        words = re.findall(r"[\w.]+", _question(asked))
        return self.rng.choice(asked.legal or words or ["0"])


class Oracle(_Player):
    """Knows the right answer: what it does not get, no grader pays."""

    privileged = True

    def answer(self, asked: Asked) -> str:
        bare = asked.legal or self.task.functions
        return str(self.task.right[0]) if bare else f"Answer: {self.task.right[0]}"


class Searcher(Slipping, Oracle):
    """Asks `search` the question, and then says the right answer. What a model begins as that is to
    learn to search: with probability `guesses` it says a word of the question at once; with
    probability `slips` it asks for one word of the question alone, and with the same probability it
    says another number or word of what it was shown."""

    async def act(self, asked: Asked) -> Action:
        shown = [message.text for message in asked.new if message.sender == "tool"]
        words = re.findall(r"\w+", _question(asked)) or ["0"]
        if shown:
            found = re.findall(r"\d+", shown[-1]) or re.findall(r"\w+", shown[-1]) or ["0"]
            slips = self.rng.random() < self.slips
            return self.said(asked, self.rng.choice(found) if slips else str(self.task.right[0]))
        offered = any(tool.name == "search" for tool in asked.tools)
        if not offered or self.rng.random() < self.guesses:
            return self.said(asked, self.rng.choice(words))
        query = self.rng.choice(words) if self.rng.random() < self.slips else _question(asked)
        call = ToolCall(f"call_{len(asked.transcript)}", "search", {"query": query})
        return Action("", (call,))
