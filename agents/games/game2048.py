"""Players of `game2048`."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from gem_ma.agents.games.player import GamePlayer, Texts, number_grid
from gem_ma.scenarios.games.game2048 import Strip, Tiles, slid

MOST_NEW = 3  # squares of the next tile that are looked at; more cost more than they tell
LOST = -1e6  # the value of a board on which nothing moves


class Game2048Simple(GamePlayer):
    """Slides down or left; right or up only where nothing else moves."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        order = ("down", "left", "right", "up")
        moves = [move for move in order if move in legal]
        return moves[0] if moves else self.any_of(legal)


class Game2048Strong(GamePlayer):
    """Looks two moves ahead, with a new tile between them, and wants merged and orderly tiles."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        tiles = tuple(map(tuple, number_grid(texts[-1])))
        if not tiles:
            return self.any_of(legal)
        worths = {move: worth(board) for move, board in slid(tiles).items()}
        # any order of moves is as good where the worths are alike: the first, to be repeatable
        return max(worths, key=lambda move: worths[move], default="pass")


def worth(tiles: Tiles) -> float:
    """The mean value of the best move after a new 2 on the board."""
    empty = []
    for row, line in enumerate(tiles):
        empty += [(row, place) for place, tile in enumerate(line) if not tile]
    values = []
    # squares that lie apart: neighbours of a new tile say much the same
    for row, place in empty[:: max(1, len(empty) // MOST_NEW)]:
        line = (*tiles[row][:place], 2, *tiles[row][place + 1 :])
        after = slid((*tiles[:row], line, *tiles[row + 1 :]))
        values.append(max(map(value, after.values()), default=LOST))
    return sum(values) / len(values) if values else LOST


def value(tiles: Tiles) -> float:
    """High for free squares, large tiles and lines that rise or fall."""
    columns = zip(*tiles, strict=True)
    return sum(map(line_value, tiles)) + sum(map(line_value, columns))


# lines repeat all the time, as in the game itself
@lru_cache(maxsize=1 << 16)
def line_value(row: Strip) -> float:
    """The part of one row or column."""
    steps = [later - sooner for sooner, later in pairwise(row)]
    up = sum(step for step in steps if step > 0)
    down = -sum(step for step in steps if step < 0)
    # squares make one large tile better than two halves
    large = sum(tile * tile for tile in row)
    return 16.0 * row.count(0) + large / 8 - 4.0 * min(up, down)
