"""Questions about pictures that are drawn anew for every task: the smallest scenario in which an
agent must see.

Type `gem-ma run shapes`; `configs/shapes.yaml` teaches it to a tiny vision-language model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma import Ask, Episode, Image, Message, Reward, Scenario
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

VIEWER = "viewer"
SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 190, 60),
    "blue": (50, 80, 230),
    "yellow": (230, 210, 40),
}
COUNTS = ("one", "two", "three", "four")
SIDES = ("left", "right")
# question -> its words, and what may be answered
QUESTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "shape": ("Which shape is this?", SHAPES),
    "colour": ("Which colour is the shape?", tuple(COLOURS)),
    "count": ("How many shapes are there?", COUNTS),
    "side": ("On which side is the larger shape?", SIDES),
}
NOISE = 24  # of 255: what the background varies by, so that no two pictures are equal


class Shapes(Scenario):
    """One agent is shown a picture and asked one question about it: which shape, which colour, how
    many, on which side the larger one. 1 for the right answer."""

    agents = (VIEWER,)
    chance = False
    ends_within = 1
    rates = ("return *",)
    default_cast = {VIEWER: "random_legal"}
    baseline_casts = {
        "always the first answer": {VIEWER: "first_legal"},
        "any answer": {VIEWER: "random_legal"},
    }

    def __init__(
        self, questions: Sequence[str] = tuple(QUESTIONS), size: int = 32, tasks: int = 2000
    ) -> None:
        """`questions`: which of shape, colour, count and side are asked, in turn. `size`: pixels of
        a side. `tasks`: pictures to learn from; a quarter as many others are held out."""
        unknown = [name for name in questions if name not in QUESTIONS]
        if unknown or not questions or isinstance(questions, str):
            raise ConfigError(
                f"scenario.questions: a list of {', '.join(QUESTIONS)}; got {questions!r}"
            )
        if size < 16 or tasks < 4:
            raise ConfigError(
                f"scenario: pictures have at least 16 pixels a side, and there are at least 4"
                f" tasks; got size {size} and tasks {tasks}"
            )
        self.questions = tuple(questions)
        self.size = size
        self.sizes = {"train": tasks, "test": tasks // 4}
        share = [1 / len(QUESTIONS[name][1]) for name in self.questions]
        self.baselines = {"chance (success)": sum(share) / len(share)}

    def tasks(self, split: str) -> Sequence[str]:
        if split not in self.sizes:
            raise ConfigError(f"scenario.split: there are train and test; got {split!r}")
        return [f"{split}:{index}" for index in range(self.sizes[split])]

    def _asked(self, task: str) -> tuple[str, Image, tuple[str, ...], str]:
        """(question, picture, answers that are allowed, the right one) of a task."""
        # The words name the split, so a picture is in one of them: its noise never comes twice.
        rng = random.Random(f"shapes/{task}")
        kind = self.questions[int(task.partition(":")[2]) % len(self.questions)]
        question, choices = QUESTIONS[kind]
        answer = rng.choice(choices)
        return question, Image.drawn(self._drawn(rng, kind, answer)), choices, answer

    def play(self, rng: random.Random, task: str) -> Play:
        question, image, choices, answer = self._asked(task)
        actions = yield Ask({VIEWER: Message((image, question))}, legal=choices)
        yield Reward({VIEWER: float(actions[VIEWER].parsed == answer)}, why="answer")

    def success(self, episode: Episode) -> bool | None:
        return episode.returns()[VIEWER] == 1.0 if episode.end.scored else None

    def _drawn(self, rng: random.Random, kind: str, answer: str) -> NDArray[np.uint8]:
        """A picture of which this is the right answer."""
        level = rng.randrange(40)
        noise = np.frombuffer(rng.randbytes(self.size**2 * 3), np.uint8) % NOISE
        pixels = noise.reshape(self.size, self.size, 3) + np.uint8(level)
        colour = COLOURS[answer if kind == "colour" else rng.choice(tuple(COLOURS))]
        for centre, radius in self._places(rng, kind, answer):
            name = answer if kind == "shape" else rng.choice(SHAPES)
            pixels[_shape(name, self.size, centre, radius)] = colour
        return pixels

    def _places(
        self, rng: random.Random, kind: str, answer: str
    ) -> list[tuple[tuple[float, float], float]]:
        """Where shapes stand, as (centre, radius) in pixels."""
        half = self.size / 2
        quarter = self.size / 4
        if kind == "count":
            corners = [
                (down, across)
                for down in (quarter, 3 * quarter)
                for across in (quarter, 3 * quarter)
            ]
            return [
                (_moved(rng, corner, self.size // 16), self.size / 8)
                for corner in rng.sample(corners, COUNTS.index(answer) + 1)
            ]
        if kind == "side":
            sizes = [self.size / 5, self.size / 10]
            if answer == "right":
                sizes.reverse()
            middles = ((half, quarter), (half, 3 * quarter))
            return [
                (_moved(rng, middle, self.size // 16), radius)
                for middle, radius in zip(middles, sizes, strict=True)
            ]
        radius = self.size * rng.choice((3, 4)) / 12
        return [(_moved(rng, (half, half), self.size // 8), radius)]


def _moved(rng: random.Random, place: tuple[float, float], most: int) -> tuple[float, float]:
    return place[0] + rng.randint(-most, most), place[1] + rng.randint(-most, most)


def _shape(name: str, size: int, centre: tuple[float, float], radius: float) -> NDArray[np.bool_]:
    """The pixels [size, size] of a shape. `centre` is (down, across), in pixels."""
    down, across = (
        axis - place for axis, place in zip(np.mgrid[:size, :size], centre, strict=True)
    )
    near: Any = (abs(down) <= radius) & (abs(across) <= radius)
    if name == "circle":
        return np.asarray(down**2 + across**2 <= radius**2)
    if name == "triangle":  # its tip is above
        return np.asarray(near & (2 * abs(across) <= down + radius))
    if name == "cross":
        thin = (3 * abs(down) <= radius) | (3 * abs(across) <= radius)
        return np.asarray(near & thin)
    return np.asarray(near)
