"""Crosswords: fill in letters from clues. Type `gem-ma run crosswords`."""

from __future__ import annotations

import random
from functools import lru_cache
from string import ascii_lowercase
from typing import NamedTuple

from gem_ma.scenarios.games.letter_grid import Placed, crossed
from gem_ma.scenarios.games.solo import LISTED, Board, Form, Outcome, Solo, ladder
from gem_ma.scenarios.games.words import clued, enough


class Size(NamedTuple):
    """`number` words of `shortest` to `longest` letters."""

    number: int
    turns: int
    shortest: int
    longest: int


class Crosswords(Solo):
    """One agent fills a small crossword, a letter a turn; every word has a clue."""

    # GEM's levels differ in its list of words; ours in their length
    levels = {
        "easy": (Size(3, 30, 3, 5),),
        "hard": (Size(3, 40, 6, 7),),
        "random": (Size(3, 20, 3, 5), Size(3, 20, 6, 7)),
    }
    form = Form(r"(\d+)\s+(\d+)\s+([a-z])")
    example = "0 1 e"
    baseline_casts = ladder("crosswords")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        number: int | None = None,
        turns: int | None = None,
        words: str = "",
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        self.words = str(words)
        super().__init__(level, rewards, foul, number=number, turns=turns)

    def problem(self, size: Size) -> str:
        if not 1 <= size.number <= 20:
            return f"there are 1 to 20 words; got {size.number}"
        candidates(size, self.words)  # raises where there are too few
        return ""

    def board(self, size: Size, rng: random.Random) -> Board:
        return Lattice(crossed(candidates(size, self.words), size.number, rng), clued(self.words))


class Lattice(Board):
    """Words that cross, and the letters that are in already."""

    def __init__(self, laid: tuple[Placed, ...], clues: dict[str, str]) -> None:
        self.laid = laid
        self.clues = clues
        self.letters = {
            square: letter
            for placed in laid
            for square, letter in zip(placed.squares(), placed.word, strict=True)
        }
        self.rows = 1 + max(row for row, _ in self.letters)
        self.columns = 1 + max(column for _, column in self.letters)
        self.open = dict.fromkeys(sorted(self.letters))
        self._moves: tuple[str, ...] | None = None

    def rules(self) -> str:
        lines = [
            f"{len(p.word)} letters {'down' if p.down else 'across'} from {p.row} {p.column}:"
            f" {self.clues[p.word]}."
            for p in self.laid
        ]
        return (
            "Crossword: fill the squares _ with letters, a square a turn. A move is ROW COLUMN"
            " LETTER; rows and columns start at 0. The words are:\n" + "\n".join(lines) + "\n"
        )

    def text(self) -> str:
        rows = [["."] * self.columns for _ in range(self.rows)]
        for (row, column), letter in self.letters.items():
            rows[row][column] = "_" if (row, column) in self.open else letter
        return "\n".join([" ".join(row) for row in rows])

    def secret(self) -> str:
        return f"The words were {', '.join(placed.word for placed in self.laid)}."

    def moves(self) -> tuple[str, ...] | None:
        # the list is the same until a letter is right
        if self._moves is None and 26 * len(self.open) <= LISTED:
            self._moves = tuple([move for square in self.open for move in letters_at(*square)])
        return self._moves

    def move(self, *parts: str) -> Outcome:
        square = (int(parts[0]), int(parts[1]))
        letter = parts[2].lower()
        name = f"{square[0]} {square[1]}"
        if square not in self.letters:
            return Outcome(f"{name} is no square of a word.")
        if square not in self.open:
            return Outcome(f"{name} is filled already.")
        if self.letters[square] != letter:
            return Outcome(f"{letter} is wrong at {name}.")
        del self.open[square]
        self._moves = None
        paid = 1 / len(self.letters)
        if not self.open:
            return Outcome("All squares are filled.", paid, "win")
        return Outcome(f"{letter} is right at {name}.", paid)


@lru_cache(maxsize=1024)
def letters_at(row: int, column: int) -> tuple[str, ...]:
    """The moves on a square."""
    return tuple(f"{row} {column} {letter}" for letter in ascii_lowercase)


@lru_cache(maxsize=16)
def candidates(size: Size, path: str) -> tuple[str, ...]:
    """The words to draw from. Raises ConfigError where they are fewer than a crossword needs."""
    # a user's own list is taken as it is
    lengths = range(1, 100) if path else range(size.shortest, size.longest + 1)
    return enough(sorted(clued(path)), lengths, size.number, path)
