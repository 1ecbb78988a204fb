"""Wordle: find a word from marks on its letters. Type `gem-ma run wordle`."""

from __future__ import annotations

import random

from gem_ma.scenarios.games.hidden_word import HiddenWord, Size
from gem_ma.scenarios.games.solo import LISTED, Board, Form, Outcome, ladder
from gem_ma.scenarios.games.words import words_of


class Wordle(HiddenWord):
    """One agent finds a secret word; every guess gets a mark for each of its letters."""

    levels = {
        "easy": (Size(3, 15),),
        "hard": (Size(5, 25),),
        "random": (Size(3, 15), Size(4, 20), Size(5, 25)),
    }
    form = Form("([a-z]+)", boxed=r"([a-z]+(?:\s+[a-z]+)*)")
    example = "word"
    baseline_casts = ladder("wordle")
    default_cast = baseline_casts["simple"]

    def board(self, size: Size, rng: random.Random) -> Board:
        return Letters(words_of(size.length, self.words), rng)


class Letters(Board):
    """A secret word, and the guesses so far."""

    def __init__(self, words: tuple[str, ...], rng: random.Random) -> None:
        self.word = rng.choice(words)
        self.listed = words if len(words) <= LISTED else None
        self.tried: set[str] = set()
        self.green: set[int] = set()  # places that were right once: GEM pays for each once

    def rules(self) -> str:
        return (
            f"Wordle: find the secret word of {len(self.word)} letters. Each letter of a guess is"
            " marked: G right, Y in the word at another place, X not in the word."
        )

    def text(self) -> str:
        return ""

    def secret(self) -> str:
        return f"The word was {self.word}."

    def moves(self) -> tuple[str, ...] | None:
        # any word of the length is read, also one that is not in the list
        return self.listed

    def move(self, *parts: str) -> Outcome:
        guess = "".join(parts[0].split()).lower()
        length = len(self.word)
        if len(guess) != length:
            return Outcome(f"{guess} has {len(guess)} letters; the word has {length}.")
        if guess in self.tried:
            return Outcome(f"{guess} has been tried before.")
        self.tried.add(guess)
        answer = marks(self.word, guess)
        new = {place for place, mark in enumerate(answer) if mark == "G"} - self.green
        self.green |= new
        paid = 0.5 * len(new) / length
        if guess == self.word:
            return Outcome(f"{guess} is the word.", paid + 0.5, "win")
        return Outcome(f"{guess}: {' '.join(answer)}", paid)


def marks(word: str, guess: str) -> str:
    """A mark for each letter of a guess; a letter is not counted oftener than the word has it.

    >>> marks("apple", "paper")
    'YYGYX'
    """
    free = [letter for letter, other in zip(word, guess, strict=True) if letter != other]
    answer = ""
    for letter, other in zip(word, guess, strict=True):
        if letter == other:
            answer += "G"
        elif other in free:
            free.remove(other)
            answer += "Y"
        else:
            answer += "X"
    return answer
