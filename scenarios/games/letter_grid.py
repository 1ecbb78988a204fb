"""Words on a grid of letters, across or down, as crosswords and word searches lay them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Square = tuple[int, int]  # row, column


class Placed(NamedTuple):
    """A word on the grid: its first square, and the step to its next letter."""

    word: str
    row: int
    column: int
    down: bool

    def squares(self) -> list[Square]:
        """The squares of its letters, in order."""
        if self.down:
            return [(self.row + step, self.column) for step in range(len(self.word))]
        return [(self.row, self.column + step) for step in range(len(self.word))]


def crossings(word: str, letters: dict[Square, str], laid: Sequence[Placed]) -> Iterator[Placed]:
    """Every way to lay a word across one that lies there, so that no letter touches another word
    side by side."""
    for other in laid:
        for square, letter in zip(other.squares(), other.word, strict=True):
            for place, own in enumerate(word):
                if own != letter:
                    continue
                down = not other.down
                row = square[0] - place * down
                column = square[1] - place * (not down)
                new = Placed(word, row, column, down)
                if fits(new, letters):
                    yield new


def fits(new: Placed, letters: dict[Square, str]) -> bool:
    """Whether a word can lie here: it meets only its own letters, and runs beside no other."""
    down = int(new.down)
    across = int(not new.down)
    squares = new.squares()
    before = (new.row - down, new.column - across)
    behind = (squares[-1][0] + down, squares[-1][1] + across)
    if before in letters or behind in letters:
        return False
    for (row, column), letter in zip(squares, new.word, strict=True):
        there = letters.get((row, column))
        if there is None:
            # beside a new letter no other may stand: the two would read as a word
            if (row + across, column + down) in letters or (row - across, column - down) in letters:
                return False
        elif there != letter:
            return False
    return True


def crossed(words: Sequence[str], count: int, rng: random.Random) -> tuple[Placed, ...]:
    """So many words that hang together, moved into the corner of the grid. Fewer where none of
    the list fits any more."""
    first = rng.choice(words)
    laid = [Placed(first, 0, 0, bool(rng.getrandbits(1)))]
    letters = dict(zip(laid[0].squares(), first, strict=True))
    for word in rng.sample(words, min(len(words), 20 * count)):
        if len(laid) == count:
            break
        ways = list(crossings(word, letters, laid)) if word != first else []
        if ways and all(word != other.word for other in laid):
            new = rng.choice(ways)
            laid.append(new)
            letters.update(zip(new.squares(), word, strict=True))
    top = min(row for row, _ in letters)
    left = min(column for _, column in letters)
    return tuple(Placed(p.word, p.row - top, p.column - left, p.down) for p in laid)


def scattered(words: Sequence[str], side: int, rng: random.Random) -> tuple[Placed, ...]:
    """The words somewhere on a square grid; they may cross where they share a letter. The longest
    first; one that finds no place in many draws is left out."""
    laid: list[Placed] = []
    letters: dict[Square, str] = {}
    for word in sorted(words, key=len, reverse=True):
        for _ in range(200):
            down = bool(rng.getrandbits(1))
            lines = rng.randrange(side)
            starts = rng.randrange(side - len(word) + 1)
            new = Placed(word, starts, lines, True) if down else Placed(word, lines, starts, False)
            squares = list(zip(new.squares(), word, strict=True))
            if all(letters.get(square, letter) == letter for square, letter in squares):
                laid.append(new)
                letters.update(squares)
                break
    return tuple(laid)
