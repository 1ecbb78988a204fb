"""Plays in which a person has a seat, at a terminal or in a browser: which config is played. Who
asks the person, and where, it does not know."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gem_ma.config.check import single
from gem_ma.config.loading import Loaded, load
from gem_ma.config.settings import Config
from gem_ma.runs.plans import scenario_of

SEEDS = 10**6  # starts to draw from; a short number can be typed again


def drawn_seed() -> int:
    """A start that nobody has chosen."""
    return random.SystemRandom().randrange(SEEDS)


def with_person(
    source: str, words: Sequence[str], agent: str, *, plays: int = 1, seed: int
) -> Loaded:
    """The config of some plays with a person as `agent`; `words` are overrides. Raises ConfigError
    and DataError as `load` does."""
    config = load(source, words).without_training().config
    # baselines are for scores, and nobody waits for them after a game
    chosen = ["run.baselines=false", f"run.seed={seed}", *_tasks(config, words, plays, seed)]
    return load(source, (*words, *chosen, f"agents.{agent}=human")).without_training()


def _tasks(config: Config, words: Sequence[str], plays: int, seed: int) -> list[str]:
    """Which tasks are played: those that were typed, else some that the seed draws; in a scenario
    of one task the seed alone makes the difference."""
    if config.scenario is None or any(word.startswith("scenario.tasks=") for word in words):
        return []
    tasks = scenario_of(config).tasks(config.scenario.split)
    if single(tasks):
        return [f"scenario.tasks={plays}"]
    drawn = random.Random(seed).sample(range(len(tasks)), min(plays, len(tasks)))
    return [f"scenario.tasks={drawn}"]
