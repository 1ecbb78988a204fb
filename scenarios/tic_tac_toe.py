"""Tic-tac-toe: two agents, perfect information, a draw when both play well. Self-play reward is 0
at every strength, so it says nothing.

Type `gem-ma run tic_tac_toe agents.o.behaviour=tic_tac_toe_perfect`.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from gem_ma import Ask, Episode, Reward, Scenario, Tell
from gem_ma.kernel.scenario import Play

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
BRIEFINGS = {
    agent: f"Tic-tac-toe. You are {agent}. Squares are 1 to 9, row by row." for agent in "xo"
}
EMPTY = "." * 9  # a board is nine marks, row by row: "x", "o" or "."


class TicTacToe(Scenario):
    """Tic-tac-toe for two agents: zero-sum, no chance, a move that cannot be made loses."""

    agents = ("x", "o")
    zero_sum = True
    chance = False
    ends_within = 9
    rates = ("draw", "foul")
    less_is_better = ("foul",)
    baselines = {"perfect play (return of x)": 0.0, "random legal play (return of x)": 0.2968}
    default_cast = {"x": "random_legal", "o": "random_legal"}
    baseline_casts = {
        "random against random": {"x": "random_legal", "o": "random_legal"},
        "perfect against random": {"x": "tic_tac_toe_perfect", "o": "random_legal"},
        "random against perfect": {"x": "random_legal", "o": "tic_tac_toe_perfect"},
    }

    def play(self, rng: random.Random, task: Any) -> Play:
        yield Tell(BRIEFINGS)
        board = EMPTY
        for turn in range(9):
            mover = self.agents[turn % 2]
            other = self.agents[1 - turn % 2]
            question, legal = asked(board)
            actions = yield Ask({mover: question}, legal=legal)
            move = actions[mover].parsed
            # the offender pays; who waited for it gets what zero-sum leaves, as for any win
            if move is None:
                yield Reward({mover: -1.0, other: 1.0}, why="foul")
                return
            board = placed(board, int(move) - 1, mover)
            if winner(board):
                yield Reward({mover: 1.0, other: -1.0}, why="three in a row")
                return

    def measures(self, episode: Episode) -> dict[str, float | None]:
        # a draw pays nobody, so it is the play without an entry
        whys = {entry.why for entry in episode.ledger}
        return {"draw": float(not whys), "foul": float("foul" in whys)}


# all 5,478 positions stay: the same tuple of moves each time is checked once
@cache
def asked(board: str) -> tuple[str, tuple[str, ...]]:
    """(question, legal moves) of who moves here."""
    legal = tuple(str(square + 1) for square in free(board))
    return f"Board: {board_text(board)} Your move.", legal


def board_text(board: str) -> str:
    """A board in words that a small tokenizer can read: each square as its mark, or its number
    where it is free.

    >>> board_text("x...o....")
    'x 2 3 / 4 o 6 / 7 8 9'
    """
    marks = [str(square + 1) if mark == "." else mark for square, mark in enumerate(board)]
    return " / ".join(" ".join(marks[row : row + 3]) for row in (0, 3, 6))


def free(board: str) -> list[int]:
    """The empty squares, 0 to 8."""
    return [square for square, mark in enumerate(board) if mark == "."]


def placed(board: str, square: int, mark: str) -> str:
    """The board after a move."""
    return board[:square] + mark + board[square + 1 :]


@cache
def winner(board: str) -> str:
    """ "x", "o", or "" where nobody has three in a row."""
    return next((board[a] for a, b, c in LINES if board[a] == board[b] == board[c] != "."), "")


@cache
def value(board: str) -> int:
    """What x gets from here when both play perfectly: 1, 0 or -1. All 5,478 positions of the game
    take a fraction of a second.

    >>> value(EMPTY), value("x.......o"), value("xx.oo....")
    (0, 1, 1)
    """
    if found := winner(board):
        return 1 if found == "x" else -1
    squares = free(board)
    if not squares:
        return 0
    # nine squares, x begins: an odd number of free ones is x to move
    mark = "x" if len(squares) % 2 else "o"
    # x wants 1, o wants -1: minimax without a search limit
    return (max if mark == "x" else min)(value(placed(board, square, mark)) for square in squares)


def best_moves(board: str) -> list[int]:
    """All squares that keep the value of the position for whoever moves."""
    mark = "x" if len(free(board)) % 2 else "o"
    return [square for square in free(board) if value(placed(board, square, mark)) == value(board)]
