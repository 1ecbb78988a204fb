"""What games of a hidden word have in common: its length, and the list that it is drawn from."""

from __future__ import annotations

from typing import NamedTuple

from gem_ma.scenarios.games.solo import Solo
from gem_ma.scenarios.games.words import words_of


class Size(NamedTuple):
    """A word of `length` letters."""

    length: int
    turns: int


class HiddenWord(Solo):
    """One agent finds a hidden word. `words`: a file of words in place of our own list."""

    def __init__(
        self,
        level: str = "easy",
        length: int | None = None,
        turns: int | None = None,
        words: str = "",
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        self.words = str(words)
        super().__init__(level, rewards, foul, length=length, turns=turns)

    def problem(self, size: Size) -> str:
        words_of(size.length, self.words)  # raises for an unknown word
        return ""
