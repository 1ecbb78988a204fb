"""Demonstrators of `referential`: they follow one fixed convention, and draw each word at random
with probability `noise`.

The i-th colour is called by the i-th colour word, the i-th shape by the i-th shape word. They
read what they see and no hidden information.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma.agents.bots import Bot, chosen
from gem_ma.agents.options import probability
from gem_ma.scenarios.referential import COLOUR_WORDS, COLOURS, SHAPE_WORDS, SHAPES

from gem_ma import Action, Asked

Lists = tuple[tuple[str, ...], tuple[str, ...]]
MEANING_LISTS = (COLOURS, SHAPES)
WORD_LISTS = (COLOUR_WORDS, SHAPE_WORDS)


class _Translator(Bot):
    read: Lists
    say: Lists

    def __init__(
        self, agent: str, sample: Any, rng: random.Random, task: Any = None, noise: float = 0.5
    ) -> None:
        super().__init__(agent, sample, rng, task)
        self.noise = probability(agent, "noise", noise)

    async def act(self, asked: Asked) -> Action:
        # The newest message holds the thing, or its two words; nothing before it does.
        seen = asked.transcript[-1].text.replace(".", "").split()
        text = " ".join(
            self._word(seen, names, answers)
            for names, answers in zip(self.read, self.say, strict=True)
        )
        return chosen(text)

    def _word(self, seen: list[str], names: tuple[str, ...], answers: tuple[str, ...]) -> str:
        known = [answer for name, answer in zip(names, answers, strict=True) if name in seen]
        # Without a word that it knows it can only guess.
        return self.rng.choice(answers) if not known or self.rng.random() < self.noise else known[0]


class NoisySpeaker(_Translator):
    """Says the two words of what it sees."""

    read = MEANING_LISTS
    say = WORD_LISTS


class NoisyListener(_Translator):
    """Names the thing that the two words mean."""

    read = WORD_LISTS
    say = MEANING_LISTS
