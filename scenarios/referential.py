"""A referential game: two agents must build a small language. The smallest scenario in which
cooperation has to be learned by both.

Type `gem-ma run referential`; `configs/referential_table.yaml` lets either agent, both or none
learn it in seconds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from gem_ma import Ask, Episode, Reward, Scenario
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

COLOURS = ("red", "green", "blue", "yellow")
SHAPES = ("circle", "square", "triangle", "star")
COLOUR_WORDS = ("bako", "dilu", "femi", "gora")  # private words: no agent knows what they mean
SHAPE_WORDS = ("hupe", "jati", "kelo", "moru")


def _pairs(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(" ".join, itertools.product(first, second)))


MEANINGS = _pairs(COLOURS, SHAPES)
UTTERANCES = _pairs(COLOUR_WORDS, SHAPE_WORDS)
DESCRIBE = "You see a {meaning}. Say two words."
NAME = "You hear {words}. Name the thing."
NOISE = "noise"  # what the listener hears of anything that is not two private words


class Referential(Scenario):
    """A speaker names one of 16 things (or fewer) in two made-up words; a listener says what it
    was."""

    agents = ("speaker", "listener")
    cooperative = True
    rates = ("return *",)  # half a point for each of two attributes
    ends_within = 2
    baselines = {"chance (success)": 1 / 16}
    default_cast = {"speaker": "noisy_speaker", "listener": "noisy_listener"}

    def __init__(self, colours: int = 4, shapes: int = 4) -> None:
        """Things are of the first so many `colours` and `shapes`, with as many words for each.
        Raises ConfigError for fewer than 1 or more than 4 of either."""
        for name, count in (("colours", colours), ("shapes", shapes)):
            if not isinstance(count, int) or not 1 <= count <= 4:
                raise ConfigError(f"scenario.{name}: a whole number from 1 to 4; got {count!r}")
        self.meanings = _pairs(COLOURS[:colours], SHAPES[:shapes])
        self.utterances = _pairs(COLOUR_WORDS[:colours], SHAPE_WORDS[:shapes])
        # of this object: it depends on the options
        self.baselines = {"chance (success)": 1 / len(self.meanings)}

    def deal(self, rng: random.Random, task: Any) -> dict[str, str]:
        return {"speaker": rng.choice(self.meanings)}

    def play(self, rng: random.Random, task: Any) -> Play:
        meaning = self.deal(rng, task)["speaker"]
        actions = yield Ask({"speaker": DESCRIBE.format(meaning=meaning)}, legal=self.utterances)
        # only private words pass: the meaning itself cannot be said
        words = actions["speaker"].parsed or NOISE
        heard = yield Ask({"listener": NAME.format(words=words)}, legal=self.meanings)
        guess = (heard["listener"].parsed or " ").split(" ")
        # an unreadable answer is two words that name nothing
        for attribute, named, true in zip(("colour", "shape"), guess, meaning.split(), strict=True):
            yield Reward(dict.fromkeys(self.agents, 0.5 * (named == true)), why=attribute)

    def success(self, episode: Episode) -> bool | None:
        return episode.returns()["listener"] == 1.0 if episode.end.scored else None
