"""Players of `fifteen_puzzle`."""

from __future__ import annotations

import heapq

from gem_ma.agents.games.player import GamePlayer, Texts, number_grid
from gem_ma.scenarios.games.fifteen_puzzle import (
    BACK,
    Tiles,
    ordered,
    slid,
    slides,
)

WEIGHT = 2  # of the distance against the way so far: more finds longer ways sooner
# some 0.1 s; 23 of 25 boards of 4 x 4 are solved within 50 moves, three times as many gain one
MOST_BOARDS = 20_000


def tiles_of(text: str) -> tuple[int, Tiles]:
    """(rows, tiles row by row); no tiles without a board."""
    rows = number_grid(text)
    return len(rows), tuple(tile for row in rows for tile in row)


def distance(rows: int, tiles: Tiles) -> int:
    """Steps that all tiles are away from their squares, along rows and columns."""
    total = 0
    for square, tile in enumerate(tiles):
        if tile:
            row, column = divmod(square, rows)
            home_row, home_column = divmod(tile - 1, rows)
            total += abs(row - home_row) + abs(column - home_column)
    return total


def conflicts(rows: int, tiles: Tiles) -> int:
    """Pairs in a row that both belong there, in the wrong order: one must leave the row and come
    back. Columns are left out; they cost as much time as they save."""
    count = 0
    for row in range(rows):
        line = tiles[row * rows : row * rows + rows]
        home = [tile for tile in line if tile and (tile - 1) // rows == row]
        for place, tile in enumerate(home):
            count += sum(tile > later for later in home[place + 1 :])
    return count


class FifteenPuzzleSimple(GamePlayer):
    """Plays the move that brings the tiles nearest to their squares, never the last one back."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        rows, tiles = tiles_of(texts[-1])
        # the answer to a move ends with its direction: "A tile slid up."
        before = texts[-1].split(".", 1)[0].rsplit(" ", 1)[-1]
        near: dict[str, int] = {}
        for move in legal:
            board = slid(rows, tiles, move) if tiles else None
            if board and move != BACK.get(before):
                near[move] = distance(rows, board)
        least = min(near.values(), default=0)
        best = [move for move in near if near[move] == least]
        return self.any_of(best or legal)


class FifteenPuzzleStrong(GamePlayer):
    """Searches a way to the end, and plays it."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        rows, tiles = tiles_of(texts[-1])
        if tiles and tiles not in self.plan:
            self.plan = solution(rows, tiles)
        return self.plan.get(tiles) or self.any_of(legal)


def solution(rows: int, tiles: Tiles) -> dict[Tiles, str]:
    """Board -> move, for every board on a way to the solved one, or to the nearest that the search
    came to. It is A* with a distance that counts double, so the way may be longer than it must."""
    came: dict[Tiles, tuple[Tiles, str] | None] = {tiles: None}
    queue: list[tuple[int, int, Tiles]] = [(0, 0, tiles)]
    nearest, goal = (distance(rows, tiles), tiles), ordered(rows)
    while queue and len(came) < MOST_BOARDS and nearest[1] != goal:
        _, length, board = heapq.heappop(queue)
        for name in slides(rows, board.index(0)):
            after = slid(rows, board, name)
            if after is None or after in came:
                continue
            came[after] = (board, name)
            left = distance(rows, after)
            nearest = min(nearest, (left, after))
            # each conflict costs two moves
            left += 2 * conflicts(rows, after)
            guess = length + 1 + WEIGHT * left
            heapq.heappush(queue, (guess, length + 1, after))
    way: dict[Tiles, str] = {}
    board = nearest[1]
    while (step := came[board]) is not None:
        board, name = step
        way[board] = name
    return way
