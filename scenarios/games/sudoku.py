"""Sudoku of 4 x 4 and 9 x 9 squares. Type `gem-ma run sudoku`.

A board is one of `sudokus.txt` with its digits, rows and columns shuffled as the rules allow, and
filled up to the wanted number of holes. So each has one solution, and none takes a search.
"""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gem_ma.scenarios.games.solo import LISTED, Board, Form, Outcome, Solo, ladder

# a line is a board with one solution: digits are clues, letters (a is 1) stand in holes
BANK = Path(__file__).parent / "sudokus.txt"
MOST_HOLES = {4: 12, 9: 55}  # that every board of the file has


class Size(NamedTuple):
    """`scale` x `scale` squares, `holes` of them empty; GEM calls the number of holes `clues`."""

    scale: int
    holes: int
    turns: int


class Sudoku(Solo):
    """One agent fills the empty squares of a Sudoku, one a turn."""

    levels = {
        "easy": (Size(4, 10, 15),),
        "hard": (Size(9, 50, 50),),
        "random": (Size(4, 10, 15), Size(9, 50, 50)),
    }
    form = Form(r"(\d+)\s+(\d+)\s+(\d+)")
    example = "1 2 3"
    baseline_casts = ladder("sudoku")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        scale: int | None = None,
        holes: int | None = None,
        turns: int | None = None,
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        super().__init__(level, rewards, foul, scale=scale, holes=holes, turns=turns)

    def problem(self, size: Size) -> str:
        most = MOST_HOLES.get(size.scale)
        if most is None:
            return f"the scale is 4 or 9; got {size.scale}"
        if not 1 <= size.holes <= most:
            return f"a board of scale {size.scale} has 1 to {most} holes; got {size.holes}"
        return ""

    def board(self, size: Size, rng: random.Random) -> Board:
        return Squares(size.scale, *drawn(size.scale, size.holes, rng))


class Squares(Board):
    """The digits so far, and the solution, row by row; 0 is a hole."""

    def __init__(self, scale: int, digits: list[int], solution: list[int]) -> None:
        self.scale = scale
        self.digits = digits
        self.solution = solution
        self.holes = self.empty = digits.count(0)
        self._moves: tuple[str, ...] | None = None

    def rules(self) -> str:
        scale = self.scale
        part = 2 if self.scale == 4 else 3
        return (
            f"Sudoku: fill the holes (.) with digits from 1 to {scale}, so that no row, no column"
            f" and no block of {part} x {part} has a digit twice. There is one solution. A move is"
            f" ROW COLUMN DIGIT; rows and columns are 1 to {scale}."
        )

    def text(self) -> str:
        names = [str(digit or ".") for digit in self.digits]
        rows = range(0, len(names), self.scale)
        return "\n".join([" ".join(names[row : row + self.scale]) for row in rows])

    def moves(self) -> tuple[str, ...] | None:
        # the list is the same until a hole is filled
        if self._moves is None and self.empty * self.scale <= LISTED:
            places = names(self.scale)
            holes = [place for place, digit in zip(places, self.digits, strict=True) if not digit]
            self._moves = tuple([move for place in holes for move in place])
        return self._moves

    def move(self, *parts: str) -> Outcome:
        row, column, digit = map(int, parts)
        scale = self.scale
        place = f"{row} {column}"
        if not (1 <= row <= scale and 1 <= column <= scale and 1 <= digit <= scale):
            return Outcome(f"{place} {digit} is beyond 1 to {scale}.")
        square = (row - 1) * scale + column - 1
        if self.digits[square]:
            return Outcome(f"{place} is filled already.")
        if self.solution[square] != digit:
            return Outcome(f"{digit} is wrong at {place}.")
        self.digits[square] = digit
        self.empty -= 1
        self._moves = None
        if not self.empty:
            return Outcome("All holes are filled.", 1 / self.holes, "win")
        return Outcome(f"{digit} is right at {place}.", 1 / self.holes)


@lru_cache(maxsize=4)
def names(scale: int) -> tuple[tuple[str, ...], ...]:
    """The moves on each square."""
    digits = range(1, scale + 1)
    return tuple(tuple(f"{r} {c} {d}" for d in digits) for r in digits for c in digits)


@lru_cache(maxsize=4)
def bank(scale: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """(solution, holes) of the boards of this scale."""
    lines = [line for line in BANK.read_text(encoding="utf-8").split() if len(line) == scale**2]
    return tuple(
        (
            tuple(int(sign) if sign.isdigit() else ord(sign) - ord("a") + 1 for sign in line),
            tuple(square for square, sign in enumerate(line) if not sign.isdigit()),
        )
        for line in lines
    )


def drawn(scale: int, holes: int, rng: random.Random) -> tuple[list[int], list[int]]:
    """(digits, solution) of a board with so many holes."""
    solution, empty = rng.choice(bank(scale))
    digits = rng.sample(range(1, scale + 1), scale)
    rows = _shuffled(scale, rng)
    columns = _shuffled(scale, rng)
    order = [row * scale + column for row in rows for column in columns]
    if rng.random() < 0.5:  # rows for columns
        order = [column * scale + row for row in rows for column in columns]
    full = [digits[solution[square] - 1] for square in order]
    hidden = set(rng.sample(empty, holes))
    return [0 if s in hidden else d for s, d in zip(order, full, strict=True)], full


def _shuffled(scale: int, rng: random.Random) -> list[int]:
    """An order of rows that keeps the blocks together: what was right stays right."""
    part = 2 if scale == 4 else 3
    bands = rng.sample(range(part), part)
    return [band * part + row for band in bands for row in rng.sample(range(part), part)]
