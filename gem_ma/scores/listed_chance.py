"""Chance as a list: a play whose draws are picked from outside, so that every outcome can be
walked.

`rng.choice`, `sample`, `shuffle`, `randrange` and `randint` become draws of equal outcomes. A draw
that cannot be listed (`random()`, `gauss()`) is refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.errors import ConfigError, ScenarioError
from gem_ma.kernel.scenario import Game, Play, Scenario
from gem_ma.kernel.types import Action

LARGEST_BITS = 16  # of getrandbits; more outcomes than that no tree holds


class ListedDraws(random.Random):
    """A generator whose draws are given; beyond them it draws 0 and notes in `sizes` how many
    outcomes each draw had."""

    def __init__(self, drawn: Sequence[int]) -> None:
        super().__init__(0)
        self.drawn = drawn
        self.sizes = list[int]()

    def _pick(self, size: int) -> int:
        place = len(self.sizes)
        self.sizes.append(size)
        return self.drawn[place] if place < len(self.drawn) else 0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        span = range(start) if stop is None else range(start, stop, step)
        return span[self._pick(len(span))]

    def randint(self, a: int, b: int) -> int:
        return self.randrange(a, b + 1)  # both ends included, unlike randrange

    def choice(self, seq: Any) -> Any:
        return seq[self._pick(len(seq))]

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        rest = list(population)
        if counts is not None:
            rest = [item for item, count in zip(rest, counts, strict=True) for _ in range(count)]
        # without replacement: k draws, each of one outcome fewer
        return [rest.pop(self._pick(len(rest))) for _ in range(k)]

    def shuffle(self, x: Any) -> None:
        x[:] = self.sample(x, len(x))

    def random(self) -> float:
        raise ConfigError(
            "rng.random() has no finite list of outcomes; draw by choice, sample, shuffle or"
            " randrange"
        )

    # Python's own methods draw by this one, so those that are not overridden above are listed too
    def getrandbits(self, k: int) -> int:
        return self._pick(1 << k) if k <= LARGEST_BITS else int(self.random())


class _WithDraws(Scenario):
    """The same rules with the listed draws."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.inner = scenario
        self.rng = rng
        # what `Game` reads off a scenario beside its rules
        self.agents = scenario.agents
        self.id = scenario.id
        self.version = scenario.version

    def play(self, rng: random.Random, task: Any) -> Play:
        return self.inner.play(self.rng, task)


def play_listed(
    scenario: Scenario, task: Any, steps: Sequence[Mapping[str, Action]], drawn: Sequence[int]
) -> tuple[Game, ListedDraws]:
    """The play after these joint actions and outcomes of chance, and its draws. Raises ConfigError
    for a draw that cannot be listed."""
    rng = ListedDraws(drawn)
    try:
        game = Game(_WithDraws(scenario, rng), task)
        for actions in steps:
            game.send(actions)
    except ScenarioError as error:
        if isinstance(error.__cause__, ConfigError):  # a draw that cannot be listed
            raise ConfigError(f"{scenario.id}: {error.__cause__}") from error
        raise
    return game, rng
