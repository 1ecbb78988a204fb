"""Players of `tic_tac_toe`: one that knows its value, and errs now and then if told to, and one
that shows its policy the board alone."""

from __future__ import annotations

import random
import re
from typing import Any

from gem_ma.agents.bots import Bot, chosen
from gem_ma.agents.options import probability
from gem_ma.scenarios.tic_tac_toe import best_moves

from gem_ma import Action, Asked
from gem_ma.kernel.parsing.legal import parse_action


class TicTacToePerfect(Bot):
    """Plays a move that keeps the game's value, drawn among all of them; with probability
    `noise` any legal one."""

    def __init__(
        self, agent: str, sample: Any, rng: random.Random, task: Any = None, noise: float = 0.0
    ) -> None:
        super().__init__(agent, sample, rng, task)
        self.noise = probability(agent, "noise", noise)

    async def act(self, asked: Asked) -> Action:
        # Squares are marks or numbers between blanks; other words of the message have none around
        # them.
        squares = re.findall(r"(?<= )[xo1-9](?= )", asked.transcript[-1].text)
        board = "".join("." if mark.isdigit() else mark for mark in squares)
        legal = list(asked.legal or ())
        # Nine marks or no board: with another text it plays any legal move.
        kept = [str(square + 1) for square in best_moves(board)] if len(board) == 9 else legal
        choices = legal if self.noise and self.rng.random() < self.noise else kept
        text = self.rng.choice(choices or ["1"])
        return chosen(text)


class TicTacToeByBoard:
    """One model call on the newest message alone: the board says all, and a table then learns
    4,520 positions in place of all ways to them."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.sample = sample

    async def act(self, asked: Asked) -> Action:
        reply = await self.sample(asked.transcript[-1:], legal=asked.legal)
        return parse_action(reply.text, asked.legal)
