"""Minesweeper: open all squares without a mine. Type `gem-ma run minesweeper`.

The mines are laid at the first reveal, never on that square or beside it. Won is the game when the
last safe square is open; GEM wants all mines flagged by then too, and pays nothing for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

from gem_ma.scenarios.games.solo import LISTED, Board, Form, Outcome, Solo, ladder


class Size(NamedTuple):
    """`rows` x `columns` squares, `mines` of them mined."""

    rows: int
    columns: int
    mines: int
    turns: int


class Minesweeper(Solo):
    """One agent opens squares, each of which tells how many of its neighbours are mined."""

    levels = {
        "easy": (Size(5, 5, 5, 25),),
        "hard": (Size(8, 8, 12, 64),),
        "random": tuple(Size(n, n, n * n // 5, n * n) for n in range(5, 9)),
    }
    # GEM takes any word as a command, and calls the wrong ones a move that cannot be made
    form = Form(r"(reveal|flag)\s+(\d+)\s+(\d+)", boxed=r"([a-z]+)\s+(\d+)\s+(\d+)")
    example = "reveal 2 3"
    baseline_casts = ladder("minesweeper")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        rows: int | None = None,
        columns: int | None = None,
        mines: int | None = None,
        turns: int | None = None,
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        parts = {"rows": rows, "columns": columns, "mines": mines, "turns": turns}
        super().__init__(level, rewards, foul, **parts)

    def problem(self, size: Size) -> str:
        if not (1 <= size.rows <= 40 and 1 <= size.columns <= 40):
            return f"a side has 1 to 40 squares; got {size.rows} and {size.columns}"
        # nine squares stay free of mines, wherever the first reveal goes
        room = size.rows * size.columns - min(3, size.rows) * min(3, size.columns)
        if not 1 <= size.mines <= room:
            return f"there are 1 to {room} mines on this board; got {size.mines}"
        return ""

    def board(self, size: Size, rng: random.Random) -> Board:
        return Field(size, rng)


class Field(Board):
    """Squares by number, row by row: which are mined, open or flagged."""

    def __init__(self, size: Size, rng: random.Random) -> None:
        self.size = size
        self.rng = rng
        self.mines: set[int] = set()
        self.flags: set[int] = set()
        self.around = neighbours(size.rows, size.columns)
        self.safe = size.rows * size.columns - size.mines
        self.opened = 0
        self.counts = [0] * (size.rows * size.columns)  # mines around each square
        self.marks = ["."] * (size.rows * size.columns)  # what the player sees
        self.closed = bytearray(b"\1") * (size.rows * size.columns)  # a 1 for each that is not open
        # both are made anew after a change, when they are asked for
        self._text = drawn(tuple(self.marks), size.columns)
        self._moves: tuple[str, ...] | None = names(size.rows, size.columns)

    def rules(self) -> str:
        rows, columns, mines, _ = self.size
        return (
            f"Minesweeper: {mines} of {rows} x {columns} squares are mined. Reveal all others. A"
            " number tells how many of the squares around it are mined, . is closed, F is your"
            f" flag. Rows are 0 to {rows - 1}, columns 0 to {columns - 1}. Moves: reveal ROW"
            " COLUMN, and flag ROW COLUMN, which sets a flag or takes it away. The first reveal"
            " is never mined."
        )

    def text(self) -> str:
        if not self._text:
            self._text = _drawn(self.marks, self.size.columns)
        return self._text

    def moves(self) -> tuple[str, ...] | None:
        if 2 * len(self.marks) > LISTED:
            return None
        if self._moves is None:
            # flagged squares too: a list that a flag does not change is checked less often
            every = names(self.size.rows, self.size.columns)
            self._moves = tuple(compress(every, self.closed + self.closed))
        return self._moves

    def move(self, *parts: str) -> Outcome:
        command = parts[0].lower()
        row = int(parts[1])
        column = int(parts[2])
        rows, columns, _, _ = self.size
        if row >= rows or column >= columns:
            return Outcome(f"{row} {column} is no square of this board.")
        square = row * columns + column
        if command == "flag":
            return self._flag(square, f"{row} {column}")
        if command != "reveal":
            return Outcome(f"{command} is no move; moves are reveal and flag.")
        if not self.mines:
            self._lay(square)
        if square in self.mines:  # under a flag too, as in GEM
            return Outcome(f"{row} {column} was mined.", end="loss")
        if not self.closed[square] or square in self.flags:
            state = "flagged" if self.closed[square] else "open already"
            return Outcome(f"{row} {column} is {state}.")
        before = self.opened
        self._reveal(square)
        paid = (self.opened - before) / self.safe
        if self.opened == self.safe:
            return Outcome("All squares without a mine are open.", paid, "win")
        return Outcome(f"{row} {column} is open.", paid)

    def place(self, square: int) -> tuple[int, int]:
        """(row, column) of a square."""
        return divmod(square, self.size.columns)

    def _flag(self, square: int, name: str) -> Outcome:
        if not self.closed[square]:
            return Outcome(f"{name} is open already.")
        self.flags ^= {square}
        self._text = ""
        flagged = square in self.flags
        self.marks[square] = "F" if flagged else "."
        return Outcome(f"{name} is {'flagged' if flagged else 'no longer flagged'}.")

    def _lay(self, square: int) -> None:
        rows, columns, mines, _ = self.size
        self.mines = set(self.rng.sample(apart(rows, columns, square), mines))
        for mine in self.mines:
            for other in self.around[mine]:
                self.counts[other] += 1

    def _reveal(self, square: int) -> None:
        """Opens a square, and all around it where none of them is mined."""
        around = self.around
        closed = self.closed
        self._moves = None
        self._text = ""
        closed[square] = 0
        queue = [square]
        for here in queue:  # which grows meanwhile
            count = self.counts[here]
            self.marks[here] = str(count)
            if count:
                continue
            for other in around[here]:
                # a flag stays closed
                if closed[other] and other not in self.flags:
                    closed[other] = 0
                    queue.append(other)
        self.opened += len(queue)


def _drawn(marks: Sequence[str], columns: int) -> str:
    starts = range(0, len(marks), columns)
    return "\n".join([" ".join(marks[start : start + columns]) for start in starts])


drawn = lru_cache(maxsize=64)(_drawn)  # of boards that nobody has touched


@lru_cache(maxsize=64)
def neighbours(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """The squares around each square."""
    return tuple(
        tuple(
            r * columns + c
            for r in range(max(0, row - 1), min(rows, row + 2))
            for c in range(max(0, column - 1), min(columns, column + 2))
            if (r, c) != (row, column)
        )
        for row in range(rows)
        for column in range(columns)
    )


@lru_cache(maxsize=1024)
def apart(rows: int, columns: int, square: int) -> tuple[int, ...]:
    """The squares that are neither this one nor beside it."""
    near = {square, *neighbours(rows, columns)[square]}
    return tuple(other for other in range(rows * columns) if other not in near)


@lru_cache(maxsize=64)
def names(rows: int, columns: int) -> tuple[str, ...]:
    """The moves that reveal each square, then those that flag it."""
    places = [f"{row} {column}" for row in range(rows) for column in range(columns)]
    return tuple(f"{command} {place}" for command in ("reveal", "flag") for place in places)
