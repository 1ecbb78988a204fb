"""TextWorld's games as scenarios of one agent: `textworld:tw-simple`,
`textworld:tw-coin_collector`, `level: 5`; `textworld:FILE.z8` is a game that was made before.

A split has `games` of them, each made from a seed of its own when it is first played, in seconds.
Further options are those of the challenge, and `turns`, `foul` (what a command that is not listed
pays). The commands that the game admits are the legal strings; its score's gains are the rewards.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds.foreign import AGENT, Solo, SoloState
from gem_ma.worlds.guest import library, unknown

TURNS = 100
GAMES = 10
SEEDS = {"train": 100_000, "dev": 200_000, "test": 300_000}  # a game's is this plus its number
EASY = {"level": 1, "rewards": "dense", "goal": "brief"}  # for options that a challenge wants typed
ASKED = ("admissible_commands", "description", "max_score", "objective", "score", "won", "lost")
_STATUS = re.compile(r"\n>[^\n]*\Z")  # the prompt, and the line of the room behind it


class TextWorld(Solo):
    """A game of TextWorld: admissible commands, exact forks, a win apart from the score."""

    chance = False  # the game is the task, and nothing in it is drawn

    def __init__(
        self,
        name: str,
        *,
        games: int = GAMES,
        turns: int = TURNS,
        foul: float = 0.0,
        **options: Any,
    ) -> None:
        self.name = name
        self.games = games
        self.turns = turns
        self.foul = foul
        known = library("textworld.challenges", "textworld").CHALLENGES
        self.is_file = Path(name).is_file()
        if not self.is_file and name not in known:
            raise unknown("textworld: no challenge or file", name, known)
        arguments = known[name][2] if not self.is_file else lambda parser: None
        self.settings = json.dumps(_settings(name, options, arguments))
        self.key = f"textworld {name} {self.settings}"

    def tasks(self, split: str) -> Sequence[str]:
        if split not in SEEDS:
            raise ValueError(f"no split {split!r}; there are {', '.join(SEEDS)}")
        return [f"{split}:{number}" for number in range(1 if self.is_file else self.games)]

    def first_seed(self, rng: random.Random, task: str) -> int:
        split, _, number = task.partition(":")
        return SEEDS[split] + int(number)

    def opened(self, seed: int) -> SoloState:
        textworld = library("textworld", "textworld")
        path = self.name if self.is_file else _made(self.name, self.settings, seed)
        env = textworld.start(path, textworld.EnvInfos(**dict.fromkeys(ASKED, True)))
        state = env.reset()
        # instead of the feedback, which begins with a banner
        parts = (state.objective, state.description) if state.objective else (state.feedback,)
        return SoloState(env, "\n\n".join(part.strip() for part in parts), state)

    def copied(self, state: SoloState) -> SoloState:
        return replace(state, env=state.env.copy())

    def stepped(self, state: SoloState, move: Any, seed: int) -> SoloState:
        before = state.info["score"] or 0
        state.info, score, state.over = state.env.step(move[AGENT])
        state.steps = state.steps + 1
        state.paid = float((score or 0) - before)
        state.why = "win" if state.info["won"] else "step"
        state.view = _STATUS.sub("", state.info["feedback"].rstrip()).strip()
        return state

    def moves(self, state: SoloState) -> Mapping[str, Any] | None:
        commands = state.info["admissible_commands"]  # none where nobody knows the game's rules
        return {command: command for command in commands} if commands else None

    def success(self, episode: Episode) -> bool | None:
        return any(entry.why == "win" for entry in episode.ledger)


def _settings(name: str, options: Mapping[str, Any], add_arguments: Any) -> dict[str, Any]:
    """All options of a challenge: typed, or its own defaults, or easy ones."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    known = {action.dest: action for action in parser._actions}
    for key, value in options.items():
        if key not in known:
            raise ConfigError(f"textworld:{name} has no option {key!r}; it has {list(known)}")
        if (choices := known[key].choices) and value not in choices:
            raise ConfigError(f"textworld:{name}: {key}: one of {choices}; got {value!r}")
    return {key: EASY.get(key, action.default) for key, action in known.items()} | {**options}


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="gem_ma-textworld-")  # removed when this process ends


@cache
def _made(name: str, settings: str, seed: int) -> str:
    """The file of a game, made once in a process."""
    textworld = library("textworld", "textworld")
    folder = _folder().name
    options = textworld.GameOptions()
    options.seeds = seed
    options.path = f"{folder}/{len(os.listdir(folder))}.z8"
    game = textworld.challenges.CHALLENGES[name][1](json.loads(settings), options)
    return str(textworld.generator.compile_game(game, options))
