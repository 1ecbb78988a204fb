"""Pictures that scikit-learn brings along, as questions: `sklearn:digits`, 1,797 scans of
handwritten digits of 8 x 8 pixels (its `load_digits`, from the UCI repository)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gem_ma import Ask, Episode, Image, Message, Reward, Scenario
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.worlds.guest import library

HELD_OUT = 5  # one scan in so many


@lru_cache(maxsize=1)
def _scans() -> tuple[Any, Any]:
    """Images [1797, 8, 8] of 0 to 16, and their digits [1797]."""
    data = library("sklearn.datasets", "sklearn").load_digits()
    return data.images, data.target


class Digits(Scenario):
    """Which digit is it: scans of handwriting, of which every fifth is held out."""

    agents = ("viewer",)
    chance = False
    ends_within = 1
    rates = ("return *",)
    default_cast = {"viewer": "random_legal"}
    baseline_casts = {"any answer": {"viewer": "random_legal"}}
    choices = tuple(map(str, range(10)))

    def __init__(self, name: str, scale: int = 4) -> None:
        """`scale`: pixels of the picture for one of the scan, so 4 makes 32 x 32."""
        if name != "digits":
            raise ConfigError(f"sklearn has one scenario, sklearn:digits; got {name!r}")
        if scale < 1:
            raise ConfigError(f"scenario.scale: at least 1; got {scale}")
        self.scale = scale
        counts = np.bincount(_scans()[1][::HELD_OUT])
        self.baselines = {
            "chance (success)": 1 / len(self.choices),
            "always the commonest (success)": float(counts.max() / counts.sum()),
        }

    def tasks(self, split: str) -> Sequence[str]:
        if split not in ("train", "test"):
            raise ConfigError(f"scenario.split: there are train and test; got {split!r}")
        numbers = range(len(_scans()[1]))
        held_out = split == "test"
        return [str(number) for number in numbers if (number % HELD_OUT == 0) is held_out]

    def play(self, rng: random.Random, task: str) -> Play:
        scans, digits = _scans()
        large = np.kron(scans[int(task)], np.ones((self.scale, self.scale)))
        grey = np.minimum(large * 16, 255).astype(np.uint8)
        picture = Image.drawn(np.repeat(grey[:, :, None], 3, axis=2))
        seen = Message((picture, "Which digit is this?"))
        actions = yield Ask({"viewer": seen}, legal=self.choices)
        right = actions["viewer"].parsed == str(digits[int(task)])
        yield Reward({"viewer": float(right)}, why="answer")

    def success(self, episode: Episode) -> bool | None:
        return episode.returns()["viewer"] == 1.0 if episode.end.scored else None
