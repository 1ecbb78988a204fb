"""2048: slide and merge tiles until one has the target. Type `gem-ma run game2048`.

A move adds 2.2 on average to the sum of the tiles. So GEM's levels beyond easy cannot be won: 50
turns make no tile of 512. A level that can be: `target=256 turns=200`.
"""

from __future__ import annotations

import random
from functools import lru_cache
from math import log2
from typing import NamedTuple

from gem_ma.scenarios.games.slides import FORM, listed
from gem_ma.scenarios.games.solo import Board, Outcome, Solo, ladder

Strip = tuple[int, ...]
Tiles = tuple[Strip, ...]  # 0 is an empty square


class Size(NamedTuple):
    """`target`: the tile to reach; the board has `side` x `side` squares."""

    target: int
    turns: int
    side: int = 4


class Game2048(Solo):
    """One agent slides tiles; equal ones merge, and a new one comes after every move."""

    levels = {
        "easy": (Size(64, 50),),
        "hard": (Size(512, 50),),
        "extreme-hard": (Size(2048, 100),),
        "random": (Size(16, 20), Size(32, 30), Size(64, 50)),
    }
    form = FORM
    example = "up"
    baseline_casts = ladder("game2048")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        target: int | None = None,
        turns: int | None = None,
        side: int | None = None,
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        super().__init__(level, rewards, foul, target=target, turns=turns, side=side)

    def problem(self, size: Size) -> str:
        if size.target < 8 or size.target & (size.target - 1):
            return f"the target is a power of two, 8 or more; got {size.target}"
        return "" if 2 <= size.side <= 8 else f"the side is 2 to 8 squares; got {size.side}"

    def board(self, size: Size, rng: random.Random) -> Board:
        return Grid(size, rng)


class Grid(Board):
    """The tiles, and the boards that the four moves lead to."""

    def __init__(self, size: Size, rng: random.Random) -> None:
        self.rng = rng
        self.target = size.target
        empty = ((0,) * size.side,) * size.side
        self.tiles = with_tile(with_tile(empty, rng), rng)
        self.first = self.best = largest(self.tiles)
        self.after = slid(self.tiles)

    def rules(self) -> str:
        return (
            f"2048: slide all tiles up, down, left or right. Equal tiles that meet become a tile"
            f" of their sum. A new tile of 2 or 4 comes after each move. Reach a {self.target}."
        )

    def text(self) -> str:
        return "\n".join([" ".join([str(tile or ".") for tile in row]) for row in self.tiles])

    def moves(self) -> tuple[str, ...]:
        return listed(self.after)

    def move(self, *parts: str) -> Outcome:
        name = parts[0].lower()
        after = self.after.get(name)
        if after is None:
            return Outcome(f"Nothing moves {name}.")
        paid = 0.0
        reached = min(largest(after), self.target)
        if reached > self.best:
            # steps of doubling, as a share of all between the first board and the target
            paid = log2(reached / self.best) / log2(self.target / self.first)
            self.best = reached
        # GEM does not count a new tile before the next merge
        self.tiles = with_tile(after, self.rng)
        if self.best >= self.target:
            return Outcome(f"There is a {self.target}.", paid, "win")
        self.after = slid(self.tiles)
        if not self.after:
            return Outcome("Nothing can move any more.", paid, "loss")
        return Outcome(f"The tiles slid {name}.", paid)


def largest(tiles: Tiles) -> int:
    """The largest tile."""
    return max(map(max, tiles))


def with_tile(tiles: Tiles, rng: random.Random) -> Tiles:
    """The board with a new tile: a 2, or once in ten a 4."""
    empty = [(r, c) for r, row in enumerate(tiles) for c, tile in enumerate(row) if not tile]
    r, c = rng.choice(empty)
    row = tiles[r]
    tile = 2 if rng.random() < 0.9 else 4
    return (*tiles[:r], (*row[:c], tile, *row[c + 1 :]), *tiles[r + 1 :])


# rows repeat all the time: a few thousand stand for nearly all boards of a play
@lru_cache(maxsize=1 << 16)
def merged(row: Strip) -> Strip:
    """A row that slid to its front.

    >>> merged((2, 2, 4, 4)), merged((0, 2, 0, 2))
    ((4, 8, 0, 0), (4, 0, 0, 0))
    """
    tiles = [tile for tile in row if tile]
    line: list[int] = []
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tile += tiles.pop(0)
        line.append(tile)
    return (*line, *(0,) * (len(row) - len(line)))


@lru_cache(maxsize=1 << 16)
def merged_back(row: Strip) -> Strip:
    """A row that slid to its end."""
    return merged(row[::-1])[::-1]


def slid(tiles: Tiles) -> dict[str, Tiles]:
    """Direction -> the board after it, before the new tile; only those that change something."""
    columns = tuple(zip(*tiles, strict=True))
    boards = {
        "up": tuple(zip(*map(merged, columns), strict=True)),
        "down": tuple(zip(*map(merged_back, columns), strict=True)),
        "left": tuple(map(merged, tiles)),
        "right": tuple(map(merged_back, tiles)),
    }
    return {name: board for name, board in boards.items() if board != tiles}
