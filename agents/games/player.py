"""What the players of the games share: they answer at once, and see texts alone."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot

from gem_ma import Action, Asked

Texts = Sequence[str]


class GamePlayer(Bot):
    """Says the move that `choose` gives."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        # state -> move, of those that think once and then play what they have found
        self.plan: dict[Any, str] = {}

    async def act(self, asked: Asked) -> Action:
        transcript, legal = asked.transcript, asked.legal or ()
        # own messages hold moves as well, and no news
        texts = [entry.text for entry in transcript if entry.sender != self.agent]
        move = self.choose(texts, legal)
        return Action(move, (), move if move in legal else None)

    def choose(self, texts: Texts, legal: Texts) -> str:
        """The move, from what the game has told so far and the moves that it lists, if any."""
        raise NotImplementedError

    def any_of(self, moves: Texts) -> str:
        """A move for want of a better one."""
        # in another game, or after a text that it cannot read, a player knows no move at all
        return self.rng.choice(moves) if moves else "pass"


def matches(pattern: re.Pattern[str], texts: Texts) -> list[re.Match[str]]:
    """Where the texts begin as the pattern says."""
    found = map(pattern.match, texts)
    return [match for match in found if match]


def grid(text: str, sign: str) -> list[list[str]]:
    """The last block of lines that hold signs of this pattern between blanks."""
    row = re.compile(rf"{sign}(?: {sign})+")
    rows: list[list[str]] = []
    # from the end: the board comes last, and rules may hold lines that look like one
    for line in reversed(text.split("\n")):
        if row.fullmatch(line):
            rows.append(line.split(" "))
        elif rows:
            break
    return rows[::-1]


def number_grid(text: str) -> list[list[int]]:
    """The last block of lines of numbers; 0 stands for a dot."""
    rows = grid(text, r"(?:\d+|\.)")
    return [[0 if sign == "." else int(sign) for sign in row] for row in rows]
