"""Hangman: find a word by its letters. Type `gem-ma run hangman`."""

from __future__ import annotations

import random
from functools import lru_cache
from string import ascii_lowercase

from gem_ma.scenarios.games.hidden_word import HiddenWord, Size
from gem_ma.scenarios.games.solo import LISTED, Board, Form, Outcome, ladder
from gem_ma.scenarios.games.words import words_of


class Hangman(HiddenWord):
    """One agent asks for letters of a secret word, and wins by saying the word."""

    levels = {
        "easy": (Size(3, 10),),
        "hard": (Size(7, 20),),
        "random": (Size(3, 10), Size(5, 15), Size(7, 20)),
    }
    form = Form("([a-z]+)")
    example = "e"
    baseline_casts = ladder("hangman")
    default_cast = baseline_casts["simple"]

    def board(self, size: Size, rng: random.Random) -> Board:
        return Gallows(words_of(size.length, self.words), rng)


class Gallows(Board):
    """A secret word, and the letters that were asked for."""

    def __init__(self, words: tuple[str, ...], rng: random.Random) -> None:
        self.word = rng.choice(words)
        self.listed = letters_and(words)
        self.tried: set[str] = set()

    def rules(self) -> str:
        return (
            f"Hangman: find the secret word of {len(self.word)} letters. A move is a letter, or"
            " the whole word. You win when you say the word."
        )

    def text(self) -> str:
        return " ".join([letter if letter in self.tried else "_" for letter in self.word])

    def secret(self) -> str:
        return f"The word was {self.word}."

    def moves(self) -> tuple[str, ...] | None:
        return self.listed

    def move(self, *parts: str) -> Outcome:
        guess = parts[0].lower()
        length = len(self.word)
        if len(guess) > 1:
            # a word of one letter is never won in GEM either: one letter is a letter
            if guess == self.word:
                hidden = sum(letter not in self.tried for letter in self.word)
                return Outcome(f"{guess} is the word.", 0.5 + 0.5 * hidden / length, "win")
            if len(guess) != length:
                return Outcome(f"{guess} has {len(guess)} letters; the word has {length}.")
            return Outcome(f"{guess} is not the word.")
        if guess in self.tried:
            return Outcome(f"{guess} has been tried before.")
        self.tried.add(guess)
        count = self.word.count(guess)
        if not count:
            return Outcome(f"{guess} is not in the word.")
        return Outcome(f"{guess} is in the word.", 0.5 * count / length)


@lru_cache(maxsize=64)
def letters_and(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """All letters and these words; None where they are more than an Ask should list."""
    moves = (*ascii_lowercase, *words)
    return moves if len(moves) <= LISTED else None
