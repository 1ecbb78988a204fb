"""The texts of a scenario: what a tokenizer must be able to write.

They come from seeded random-legal plays, so no model and no behaviour is needed. Knows scenarios;
knows no tokenizer but the way in which words are cut.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from gem_ma.engines.base import stable_seed
from gem_ma.engines.local.tiny_tokenizer import pieces
from gem_ma.kernel.errors import ConfigError, ScenarioError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Tool

PLAYS = 2000  # at most
QUIET_PLAYS = 100  # in a row without a new word: the words are all there
MAX_STEPS = 24  # decision points of a play
ENOUGH = 500_000  # characters
OPEN_WORDS = ("hello", "yes", "no", "please go on", "I do not know")  # where the choice is open


def texts(scenario: Scenario, seed: int = 0) -> Iterator[str]:
    """The different texts that agents see and may say in seeded random-legal plays over all
    tasks: views, legal strings, tools."""
    rng = random.Random(f"words/{seed}")
    tasks = [task for split in ("train", "test") for task in _tasks(scenario, split)] or [None]
    known: set[str] = set()
    words: set[str] = set()
    quiet = 0  # plays in a row without a new word
    for number in range(PLAYS):
        task = tasks[number % len(tasks)]
        play_seed = stable_seed("words", seed, number)
        heard = dict.fromkeys(_play(scenario, task, play_seed, rng))
        fresh = [text for text in heard if text not in known]
        known.update(fresh)
        before = len(words)
        words.update(piece for text in fresh for piece in pieces(text))
        yield from fresh
        quiet = 0 if len(words) > before else quiet + 1
        if quiet >= QUIET_PLAYS or sum(map(len, known)) > ENOUGH:
            return


def _tasks(scenario: Scenario, split: str) -> list[Any]:
    try:
        return list(scenario.tasks(split))
    except ConfigError:  # a scenario without this split
        return []


def _play(scenario: Scenario, task: Any, seed: int, rng: random.Random) -> Iterator[str]:
    try:
        game = Game(scenario, task, seed)
        while game.pending and game.step < MAX_STEPS:
            actions = {}
            for agent, asked in game.pending.items():
                choices = asked.legal or OPEN_WORDS
                yield from choices
                yield from (json.dumps(_words(tool)) for tool in asked.tools)
                actions[agent] = rng.choice(choices)
            game.send(actions)
    except ScenarioError as error:
        raise ScenarioError(f"no words could be collected from {scenario.id}: {error}") from error
    for agent in scenario.agents:
        yield from (message.text for message in game.view(agent))
        yield agent  # a name line may stand before another agent's message
    game.close()


def _words(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "arguments": list(tool.parameters.get("properties", {}))}
