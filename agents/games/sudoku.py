"""Players of `sudoku`."""

from __future__ import annotations

import re

from gem_ma.agents.games.player import (
    GamePlayer,
    Texts,
    matches,
    number_grid,
)

WRONG = re.compile(r"(?<!\d)(\d++) is wrong at (\d++) (\d++)")

Squares = list[list[int]]  # 0 is a hole
Hole = tuple[int, int, list[int]]  # row, column, the digits that may stand there


def candidates(board: Squares, row: int, column: int) -> list[int]:
    """The digits that stand neither in the row nor in the column nor in the block."""
    scale = len(board)
    part = 2 if scale == 4 else 3
    top, left = row // part * part, column // part * part
    taken = {*board[row], *(line[column] for line in board)}
    for line in board[top : top + part]:
        taken.update(line[left : left + part])
    return [digit for digit in range(1, scale + 1) if digit not in taken]


def holes(board: Squares) -> list[Hole]:
    """Every hole with its candidates."""
    return [
        (row, column, candidates(board, row, column))
        for row, line in enumerate(board)
        for column, digit in enumerate(line)
        if not digit
    ]


class SudokuSimple(GamePlayer):
    """Draws a hole and a digit that its row, column and block allow, and that was not wrong
    there before."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        wrong = {match.groups() for match in matches(WRONG, texts)}
        moves = []
        for row, column, digits in holes(number_grid(texts[-1])):
            place = str(row + 1), str(column + 1)
            for digit in map(str, digits):
                if (digit, *place) not in wrong:
                    moves.append(" ".join((*place, digit)))
        return self.any_of(moves or legal)


class SudokuStrong(GamePlayer):
    """Solves the board, and fills it in."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        board = number_grid(texts[-1])
        solved = [list(row) for row in board]
        empty = holes(board)
        places = [f"{row + 1} {column + 1}" for row, column, _ in empty]
        # once for a play: the solution fills the holes of every later board, too
        if places and places[0] not in self.plan and solve(solved):
            pairs = zip(places, empty, strict=True)
            self.plan = {p: f"{p} {solved[r][c]}" for p, (r, c, _) in pairs}
        known = [self.plan[place] for place in places if place in self.plan]
        return known[0] if known else self.any_of(legal)


def solve(board: Squares) -> bool:
    """Fills the holes in place by search, the narrowest first; False where no digits fit."""
    hole = min(holes(board), key=lambda hole: len(hole[2]), default=None)
    if hole is None:
        return True
    row, column, digits = hole
    for digit in digits:
        board[row][column] = digit
        if solve(board):
            return True
    board[row][column] = 0
    return False
