"""The fifteen puzzle and its smaller kin. Type `gem-ma run fifteen_puzzle`."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import NamedTuple

from gem_ma.scenarios.games.slides import FORM, listed
from gem_ma.scenarios.games.solo import Board, Outcome, Solo, ladder

Tiles = tuple[int, ...]  # row by row; 0 is the empty square
BACK = {"up": "down", "down": "up", "left": "right", "right": "left"}


class Size(NamedTuple):
    """A square of `rows` x `rows`."""

    rows: int
    turns: int


class FifteenPuzzle(Solo):
    """One agent slides numbered tiles into order. Every board can be solved within the turns; half
    of GEM's cannot be solved at all."""

    levels = {
        "easy": (Size(2, 10),),
        "hard": (Size(4, 50),),
        "random": (Size(2, 10), Size(3, 20), Size(4, 50)),
    }
    form = FORM
    example = "up"
    baseline_casts = ladder("fifteen_puzzle")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        rows: int | None = None,
        turns: int | None = None,
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        super().__init__(level, rewards, foul, rows=rows, turns=turns)

    def problem(self, size: Size) -> str:
        return "" if 2 <= size.rows <= 10 else f"there are 2 to 10 rows; got {size.rows}"

    def board(self, size: Size, rng: random.Random) -> Board:
        return Tray(size.rows, scrambled(size.rows, size.turns, rng))


class Tray(Board):
    """Tiles and one empty square."""

    def __init__(self, rows: int, tiles: Tiles) -> None:
        self.rows = rows
        self.tiles = tiles

    def rules(self) -> str:
        last = self.rows**2 - 1
        return (
            f"Sliding puzzle: bring the tiles into the order 1 to {last}, row by row, with the"
            " empty square (.) at the end. A move slides the tile beside the empty square up,"
            " down, left or right into it."
        )

    def text(self) -> str:
        names = [str(tile or ".") for tile in self.tiles]
        rows = range(0, len(names), self.rows)
        return "\n".join([" ".join(names[row : row + self.rows]) for row in rows])

    def moves(self) -> tuple[str, ...]:
        return listed(slides(self.rows, self.tiles.index(0)))

    def move(self, *parts: str) -> Outcome:
        name = parts[0].lower()
        after = slid(self.rows, self.tiles, name)
        if after is None:
            return Outcome(f"No tile can slide {name}.")
        self.tiles = after
        if after == ordered(self.rows):
            return Outcome("All tiles are in order.", 1.0, "win")
        return Outcome(f"A tile slid {name}.")

    def last(self, paid: float) -> float:
        right = sum(a == b for a, b in zip(self.tiles, ordered(self.rows), strict=True))
        return right / len(self.tiles)


@lru_cache(maxsize=16)
def ordered(rows: int) -> Tiles:
    """The solved board.

    >>> ordered(2)
    (1, 2, 3, 0)
    """
    return (*range(1, rows * rows), 0)


@lru_cache(maxsize=256)
def slides(rows: int, empty: int) -> dict[str, int]:
    """Direction -> the square whose tile slides into the empty one."""
    row, column = divmod(empty, rows)
    squares = {
        "up": (row + 1, column),
        "down": (row - 1, column),
        "left": (row, column + 1),
        "right": (row, column - 1),
    }
    return {
        name: r * rows + c for name, (r, c) in squares.items() if 0 <= r < rows and 0 <= c < rows
    }


def slid(rows: int, tiles: Tiles, name: str) -> Tiles | None:
    """The tiles after a move; None where no tile can slide that way."""
    empty = tiles.index(0)
    square = slides(rows, empty).get(name)
    if square is None:
        return None
    after = list(tiles)
    after[empty] = after[square]
    after[square] = 0
    return tuple(after)


def scrambled(rows: int, turns: int, rng: random.Random) -> Tiles:
    """A board that at most `turns` moves bring into order: it is where a walk from there leads that
    takes no move back."""
    while True:
        tiles = ordered(rows)
        back = ""
        # twelve lengths: on 2 x 2 squares the walk is a ring of twelve boards
        for _ in range(turns - rng.randrange(min(turns, 12))):
            empty = tiles.index(0)
            squares = slides(rows, empty)
            name = rng.choice([name for name in squares if name != back])
            line = list(tiles)
            line[empty] = line[squares[name]]
            line[squares[name]] = 0
            tiles = tuple(line)
            back = BACK[name]
        if tiles != ordered(rows):
            return tiles
