"""What a method's bytecode tells: whether it can reach anything but its own values."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from random import Random
from typing import Any

import pytest

from gem_ma.worlds.purity import is_pure

NUMBER = re.compile(r"\d+")
SHARED = Random(0)
TABLE = {"add": lambda a, b: a + b}
LOUD = {"say": lambda text: print(text)}
COUNT = 0


class Kind(Enum):
    ONE = 1


class Pair:
    def __init__(self, left: int) -> None:
        self.left = left

    @staticmethod
    def of(text: str) -> Pair:
        return Pair(len(text))


class Teller:
    def __init__(self) -> None:
        print("told")


class Heir(Teller):
    pass


def helper(text: str) -> float:
    return math.sqrt(len(text))


def draws() -> float:
    return random.random()


class Task:
    """Methods of a task as libraries write them: `pure_...` and `impure_...`."""

    seed, seen = 3, 0

    def pure_number(self, answer: str) -> float:
        found = NUMBER.findall(answer)
        return 1.0 if found and int(found[-1]) == self.seed else helper(answer)

    def pure_own_generator(self, index: int) -> list[int]:
        rng = Random(self.seed + index)
        return [rng.randint(0, 9) for _ in range(3)]

    def pure_generator_of_the_module(self, index: int) -> int:
        return random.Random(self.seed + index).randrange(9)

    def pure_failure(self, answer: str) -> float:
        try:
            return float(json.loads(answer)[0])
        except (ValueError, IndexError, json.JSONDecodeError):
            raise AssertionError("no list") from None

    def pure_classes_and_tables(self, answer: str) -> int:
        return Pair(len(answer)).left + TABLE["add"](Kind.ONE.value, self.pure_seed)

    @property
    def pure_seed(self) -> int:
        return self.seed

    def pure_import(self, answer: str) -> str:
        import string

        return answer.strip(string.punctuation)

    def impure_draw(self) -> float:
        return random.random()

    def impure_draw_far_away(self, answer: str) -> float:
        return sum(sorted([draws() for _ in answer]))

    def impure_shared_generator(self) -> float:
        return SHARED.random()

    def impure_print(self, answer: str) -> None:
        print(answer)

    def impure_table(self, answer: str) -> None:
        LOUD["say"](answer)

    def impure_class(self) -> Any:
        return Teller()

    def impure_heir(self) -> Any:
        return Heir()

    def impure_property(self) -> float:
        return self.luck

    @property
    def luck(self) -> float:
        return random.random()

    def impure_evaluation(self, answer: str) -> Any:
        return eval(answer)

    def impure_import(self) -> float:
        import random as dice

        return dice.random()

    def impure_file(self) -> str:
        return os.getcwd()

    def impure_memory(self) -> None:
        self.seen += 1

    def impure_global(self) -> None:
        global COUNT
        COUNT += 1

    def impure_stranger(self, rng: Any) -> Any:
        return rng.roll()

    def impure_inner(self, answer: str) -> list[Any]:
        def said(text: str) -> Any:
            return open(text)

        return [said(part) for part in answer]

    def impure_built_in(self) -> Any:
        return __import__("random").random()


@pytest.mark.parametrize(
    "method",
    [len, cache(helper), partial(helper), Pair],
    ids=["built in", "cached", "partial", "class"],
)
def test_what_shows_no_bytecode_is_not(method: Any) -> None:
    assert not is_pure(method, Task)


def methods(start: str) -> list[Callable[..., Any]]:
    found = [value for name, value in vars(Task).items() if name.startswith(start)]
    return [value.fget if isinstance(value, property) else value for value in found]


@pytest.mark.parametrize("method", methods("pure"), ids=lambda m: m.__name__)
def test_what_only_computes_is_pure(method: Any) -> None:
    assert is_pure(method, Task)


@pytest.mark.parametrize("method", methods("impure"), ids=lambda m: m.__name__)
def test_what_reaches_further_is_not(method: Any) -> None:
    assert not is_pure(method, Task)
