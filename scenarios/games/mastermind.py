"""Mastermind: find a code from black and white marks. Type `gem-ma run mastermind`."""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import permutations, product
from math import perm
from operator import eq
from typing import NamedTuple

from gem_ma.scenarios.games.solo import LISTED, Board, Form, Outcome, Solo, ladder

Code = tuple[int, ...]


class Size(NamedTuple):
    """`length` places, each with a digit from 1 to `digits`; `repeats`: a digit may stand twice."""

    length: int
    digits: int
    turns: int
    repeats: bool = False


class Mastermind(Solo):
    """One agent finds a secret code; each guess is marked with the digits that are right."""

    levels = {
        "easy": (Size(2, 6, 10),),
        "hard": (Size(4, 8, 30),),
        "random": (Size(2, 4, 10), Size(4, 6, 20), Size(4, 8, 30)),
    }
    form = Form(r"(\d+(?:\s+\d+)*)")
    example = "1 2"
    baseline_casts = ladder("mastermind", lowest="mastermind_random")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        length: int | None = None,
        digits: int | None = None,
        turns: int | None = None,
        repeats: bool | None = None,
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        parts = {"length": length, "digits": digits, "turns": turns, "repeats": repeats}
        super().__init__(level, rewards, foul, **parts)

    def problem(self, size: Size) -> str:
        if size.length < 1 or size.digits < 2:
            return f"a code has 1 place and 2 digits at least; got {size.length} and {size.digits}"
        if size.digits < size.length and not size.repeats:
            return f"{size.length} different digits are more than {size.digits}"
        return ""

    def board(self, size: Size, rng: random.Random) -> Board:
        return Pegs(size, rng)


class Pegs(Board):
    """A secret code, and the codes that have been tried."""

    def __init__(self, size: Size, rng: random.Random) -> None:
        self.size = size
        digits = range(1, size.digits + 1)
        draw = rng.choices if size.repeats else rng.sample
        self.code: Code = tuple(draw(digits, k=size.length))
        self.tried: set[Code] = set()
        self.best = 0  # most blacks so far: GEM pays for more than that
        self.listed = listed_codes(size)

    def rules(self) -> str:
        length, digits, _, repeats = self.size
        kind = "digits" if repeats else "different digits"
        return (
            f"Mastermind: find the secret code of {length} {kind} from 1 to {digits}."
            " A guess gets a black mark for each right digit in its place, and a white mark for"
            " each right digit in another place."
        )

    def text(self) -> str:
        return ""

    def secret(self) -> str:
        return f"The code was {name_of(self.code)}."

    def moves(self) -> tuple[str, ...] | None:
        # tried codes too: a tuple that stays the same is checked once
        return self.listed

    def move(self, *parts: str) -> Outcome:
        digits_of = parts[0].split()
        guess = tuple(map(int, digits_of))
        name = " ".join(digits_of)
        length, digits, _, _ = self.size
        if len(guess) != length:
            return Outcome(f"{name} has {len(guess)} digits; the code has {length}.")
        if min(guess) < 1 or max(guess) > digits:
            return Outcome(f"{name} has a digit beyond 1 to {digits}.")
        if guess in self.tried:
            return Outcome(f"{name} has been tried before.")
        self.tried.add(guess)
        black, white = marks(self.code, guess)
        paid = 0.0
        if black > self.best:
            paid = (black - self.best) / length
            self.best = black
        if black == length:
            return Outcome(f"{name} is the code.", paid, "win")
        return Outcome(f"{name}: {black} black, {white} white.", paid)


def marks(secret: Code, guess: Code) -> tuple[int, int]:
    """(black, white): right digits in their place, and right digits elsewhere.

    >>> marks((1, 2, 2), (2, 2, 3))
    (1, 1)
    """
    # `map` and a plain loop: players mark thousands of codes
    black = sum(map(eq, secret, guess))
    common = 0
    for digit in set(guess):
        common += min(secret.count(digit), guess.count(digit))
    return black, common - black


def name_of(code: Code) -> str:
    """The code as it is typed."""
    return " ".join(map(str, code))


@lru_cache(maxsize=64)
def listed_codes(size: Size) -> tuple[str, ...] | None:
    """Every code as it is typed; None where they are more than an Ask should list."""
    count = size.digits**size.length if size.repeats else perm(size.digits, size.length)
    if count > LISTED:
        return None
    return tuple(name_of(code) for code in codes(size.length, size.digits, size.repeats))


def codes(length: int, digits: int, repeats: bool) -> list[Code]:
    """Every code of this size, in order."""
    choices = range(1, digits + 1)
    return list(product(choices, repeat=length) if repeats else permutations(choices, length))
