"""Word search: find words in a square of letters. Type `gem-ma run word_search`."""

from __future__ import annotations

import random
from functools import lru_cache
from math import ceil, sqrt
from string import ascii_lowercase
from typing import NamedTuple

from gem_ma.scenarios.games.letter_grid import Placed, Square, scattered
from gem_ma.scenarios.games.solo import LISTED, Board, Form, Outcome, Solo, ladder
from gem_ma.scenarios.games.words import all_words, enough


class Size(NamedTuple):
    """`number` words of `shortest` to `longest` letters; `names`: the player knows which."""

    number: int
    turns: int
    shortest: int
    longest: int
    names: bool


class WordSearch(Solo):
    """One agent finds words that run across or down in a square of letters."""

    # GEM never names the words; its levels differ in its list
    levels = {
        "easy": (Size(5, 20, 3, 5, True),),
        "hard": (Size(5, 20, 4, 7, False),),
        "random": (Size(5, 20, 3, 5, True), Size(5, 20, 4, 7, False)),
    }
    form = Form(r"(\d+)\s+(\d+)\s+(\d+)\s+(\d+)")
    example = "1 0 1 4"
    baseline_casts = ladder("word_search")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        number: int | None = None,
        turns: int | None = None,
        names: bool | None = None,
        words: str = "",
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        self.words = str(words)
        super().__init__(level, rewards, foul, number=number, turns=turns, names=names)

    def problem(self, size: Size) -> str:
        if not 1 <= size.number <= 20:
            return f"there are 1 to 20 words; got {size.number}"
        candidates(size, self.words)  # raises where there are too few
        return ""

    def board(self, size: Size, rng: random.Random) -> Board:
        words = rng.sample(candidates(size, self.words), size.number)
        # the side of GEM, or what leaves half of the squares free where the words are many
        letters = sum(map(len, words))
        side = max(round(1.5 * max(map(len, words))), ceil(sqrt(2 * letters)))
        laid = scattered(words, side, rng)
        return Puzzle(laid, side, size.names, rng)


class Puzzle(Board):
    """A square of letters, and the words that were found."""

    def __init__(
        self, laid: tuple[Placed, ...], side: int, names: bool, rng: random.Random
    ) -> None:
        self.laid = laid
        self.side = side
        self.names = names
        self.letters = rng.choices(ascii_lowercase, k=side * side)
        self.ends: dict[tuple[Square, Square], str] = {}
        for placed in laid:
            squares = placed.squares()
            self.ends[squares[0], squares[-1]] = placed.word
            for (row, column), letter in zip(squares, placed.word, strict=True):
                self.letters[row * side + column] = letter
        self.found_words: set[str] = set()
        self.tried: set[tuple[Square, Square]] = set()
        self.listed = segments(side, tuple(sorted({len(placed.word) for placed in laid})))

    def rules(self) -> str:
        words = sorted(placed.word for placed in self.laid)
        what = ", ".join(words) if self.names else f"{len(words)} words"
        lengths = ", ".join(sorted({str(len(word)) for word in words}))
        return (
            f"Word search: find {what}, of {lengths} letters, which run across or down. A move is"
            " ROW COLUMN ROW COLUMN, the first and the last letter; rows and columns are 0 to"
            f" {self.side - 1}. Letters of words that you have found are large."
        )

    def text(self) -> str:
        side = self.side
        letters = list(self.letters)
        for placed in self.laid:
            if placed.word in self.found_words:
                for row, column in placed.squares():
                    letters[row * side + column] = letters[row * side + column].upper()
        lines = [" ".join(letters[row : row + side]) for row in range(0, side * side, side)]
        return "\n".join([*lines, f"Found: {len(self.found_words)} of {len(self.laid)}."])

    def secret(self) -> str:
        return f"The words were {', '.join(placed.word for placed in self.laid)}."

    def moves(self) -> tuple[str, ...] | None:
        return self.listed

    def move(self, *parts: str) -> Outcome:
        row, column, last_row, last_column = map(int, parts)
        name = f"{row} {column} to {last_row} {last_column}"
        if max(row, column, last_row, last_column) >= self.side:
            return Outcome(f"{name} is beyond 0 to {self.side - 1}.")
        ends = ((row, column), (last_row, last_column))
        if ends in self.tried:
            return Outcome(f"{name} has been tried before.")
        self.tried.add(ends)
        word = self.ends.get(ends) or self.ends.get(ends[::-1])
        if word is None:
            straight = row == last_row or column == last_column
            why = "is no hidden word" if straight else "runs neither across nor down"
            return Outcome(f"{name} {why}.")
        self.found_words.add(word)
        # a word that is found again from its other end is paid again, as in GEM
        paid = 1 / len(self.laid)
        if len(self.found_words) == len(self.laid):
            return Outcome("All words are found.", paid, "win")
        return Outcome(f"{name} is {word}.", paid)


@lru_cache(maxsize=64)
def segments(side: int, lengths: tuple[int, ...]) -> tuple[str, ...] | None:
    """The runs of these lengths, across and down; None where they are more than an Ask should
    list."""
    moves = [
        f"{line} {start} {line} {start + length - 1}"
        if across
        else f"{start} {line} {start + length - 1} {line}"
        for across in (True, False)
        for length in lengths
        for line in range(side)
        for start in range(side - length + 1)
    ]
    return tuple(moves) if len(moves) <= LISTED else None


@lru_cache(maxsize=16)
def candidates(size: Size, path: str) -> tuple[str, ...]:
    """The words to draw from. Raises ConfigError where they are fewer than wanted."""
    # a user's own list is taken as it is, but for words of one or two letters
    lengths = range(3, 31) if path else range(size.shortest, size.longest + 1)
    return enough(all_words(path), lengths, size.number, path)
