"""Players of `minesweeper`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from math import comb

from gem_ma.agents.games.player import GamePlayer, Texts, grid
from gem_ma.scenarios.games.minesweeper import neighbours

MINES = re.compile(r"Minesweeper: (\d+) of")
MOST_SQUARES = 18  # of a group whose layouts are counted one by one

# (squares that are closed, how many of them are mined)
Clue = tuple[frozenset[int], int]


class MinesweeperSimple(GamePlayer):
    """Reveals a square that one number alone proves safe, else any that none proves mined."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        board = grid(texts[-1], r"[\dF.]")
        if not board:
            return self.any_of(legal)
        closed = [n for n, mark in enumerate(marks_of(board)) if mark == "."]
        safe, mined = proved(clues_of(board), 1)
        choices = [square for square in closed if square in safe]
        # all that is left may be mined: then any of it
        choices = choices or [n for n in closed if n not in mined] or closed
        moves = [reveal(square, board) for square in choices]
        return self.any_of(moves or legal)


class MinesweeperStrong(GamePlayer):
    """Reveals what all numbers together prove safe, else the square with the least risk."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        board = grid(texts[-1], r"[\dF.]")
        marks = marks_of(board)
        closed = {n for n, mark in enumerate(marks) if not mark.isdigit()}
        if not closed:
            return self.any_of(legal)
        if len(closed) == len(marks):
            # in the middle, where the squares without mines are the most
            return f"reveal {len(board) // 2} {len(board[0]) // 2}"
        clues = clues_of(board)
        safe, _ = proved(clues, 9)
        if safe:
            return reveal(min(safe), board)
        match = MINES.search(texts[0])
        risk = risks(clues, closed, int(match[1]) if match else 1)
        return reveal(min(risk, key=lambda square: (risk[square], square)), board)


def marks_of(board: Sequence[Sequence[str]]) -> list[str]:
    """The marks row by row."""
    return [mark for row in board for mark in row]


def reveal(square: int, board: Sequence[Sequence[str]]) -> str:
    """The move that reveals a square."""
    row, column = divmod(square, len(board[0]))
    return f"reveal {row} {column}"


def clues_of(board: Sequence[Sequence[str]]) -> list[Clue]:
    """What each number says about the closed squares around it. A flag is not proof."""
    around = neighbours(len(board), len(board[0]))
    marks = marks_of(board)
    clues = []
    for square, mark in enumerate(marks):
        if mark.isdigit():
            closed = frozenset(n for n in around[square] if not marks[n].isdigit())
            if closed:
                clues.append((closed, int(mark)))
    return list(dict.fromkeys(clues))


def proved(clues: Sequence[Clue], rounds: int) -> tuple[set[int], set[int]]:
    """(safe, mined) squares. One round looks at each number alone; later ones also at what one
    number says beyond another whose squares it holds."""
    safe: set[int] = set()
    mined: set[int] = set()
    known = set(clues)
    for number in range(rounds):
        if number:
            known |= {
                (squares - part, count - inner)
                for squares, count in known
                for part, inner in known
                if part < squares
            }
        known = {(c - safe - mined, count - len(c & mined)) for c, count in known}
        sizes = len(safe), len(mined)
        for squares, count in known:
            if count == 0:
                safe |= squares
            elif count == len(squares):
                mined |= squares
        if number and (len(safe), len(mined)) == sizes:
            break
    return safe, mined


def risks(clues: Sequence[Clue], closed: Collection[int], mines: int) -> dict[int, float]:
    """Square -> probability of a mine, with every layout alike within a group of clues, and the
    mean for squares that no clue names."""
    risk: dict[int, float] = {}
    expected = 0.0
    for group in groups(clues):
        squares = sorted({square for part, _ in group for square in part})
        rest = len(closed) - len(squares)
        weights, hits = 0.0, dict.fromkeys(squares, 0.0)
        few = len(squares) <= MOST_SQUARES
        for layout in layouts(squares, group) if few else ():
            others = mines - len(layout)
            # they lie anywhere else: a layout with fewer mines leaves more ways for them
            weight = float(comb(rest, others)) if others >= 0 else 0.0
            weights += weight
            for square in layout:
                hits[square] += weight
        for square in squares:
            risk[square] = hits[square] / weights if weights else densest(square, group)
            expected += risk[square]
    unknown = [square for square in closed if square not in risk]
    for square in unknown:
        risk[square] = min(1.0, max(0.0, mines - expected) / len(unknown))
    return risk


def densest(square: int, clues: Sequence[Clue]) -> float:
    """The largest share of mines that a clue says of the squares around it."""
    return max(count / len(part) for part, count in clues if square in part)


def groups(clues: Sequence[Clue]) -> list[list[Clue]]:
    """Clues that share squares, directly or by others."""
    parts: list[tuple[set[int], list[Clue]]] = []
    for clue in clues:
        squares, together = set(clue[0]), [clue]
        for part in [part for part in parts if part[0] & squares]:
            parts.remove(part)
            squares |= part[0]
            together += part[1]
        parts.append((squares, together))
    return [together for _, together in parts]


def layouts(squares: Sequence[int], clues: Sequence[Clue]) -> Iterator[set[int]]:
    """Every set of mines on these squares that all clues allow."""

    def lay(number: int, mined: set[int]) -> Iterator[set[int]]:
        free = set(squares[number:])
        for part, count in clues:
            certain = len(part & mined)
            if certain > count or certain + len(part & free) < count:
                return
        if number == len(squares):
            yield set(mined)
            return
        yield from lay(number + 1, mined)
        yield from lay(number + 1, mined | {squares[number]})

    return lay(0, set())
