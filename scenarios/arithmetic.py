"""Generated arithmetic: numbers and operations between them, drawn for each task. The smallest
scenario in which a tool is worth more than weights.

A tiny model cannot compute products in its head, but it can learn to ask `python`:
`configs/arithmetic.yaml`. Behind it, `agents.solver.tools=[]` shows how it fails alone.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence

from gem_ma import Ask, Episode, Reward, Scenario
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

SIGNS = {"+": 1, "-": -1}
OPERATIONS = (*SIGNS, "*")
QUESTION = "{expression} = ?"
NUMBER = re.compile(r"-? ?\d+")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
MARK = re.compile(r"=|\banswer\b", re.IGNORECASE)  # what stands before an answer
HELD_OUT = 5  # one expression in so many is asked in exams alone


class Arithmetic(Scenario):
    """One agent is asked for the value of an expression; 1 for the right one.

    The number behind the last `=` or the last "answer" counts, where one of them is there.
    """

    version = 2  # 1 wanted a number alone
    agents = ("solver",)
    chance = False
    ends_within = 1
    rates = ("return *",)
    default_cast = {"solver": "calculator"}

    def __init__(
        self,
        operations: Sequence[str] = OPERATIONS,
        numbers: int = 2,
        digits: int = 2,
        tasks: int = 2000,
    ) -> None:
        """`operations`: of +, - and *. `numbers` of so many `digits` in an expression. `tasks`:
        questions to learn from; a quarter as many others are held out."""
        listed = isinstance(operations, Sequence) and bool(operations)
        if not listed or any(sign not in OPERATIONS for sign in operations):
            raise ConfigError(
                f"scenario.operations: a list of {', '.join(OPERATIONS)}; got {operations!r}"
            )
        whole = all(type(count) is int for count in (numbers, digits, tasks))
        if not whole or not (2 <= numbers <= 9 and 1 <= digits <= 9 and tasks >= 4):
            raise ConfigError(
                "scenario: 2 to 9 numbers of 1 to 9 digits, and at least 4 tasks; got"
                f" numbers {numbers!r}, digits {digits!r} and tasks {tasks!r}"
            )
        self.operations = tuple(operations)
        self.numbers = numbers
        self.digits = digits
        self.sizes = {"train": tasks, "test": tasks // 4}

    def tasks(self, split: str) -> Sequence[str]:
        if split not in self.sizes:
            raise ConfigError(f"scenario.split: there are train and test; got {split!r}")
        return [f"{split}:{index}" for index in range(self.sizes[split])]

    def expression(self, task: str) -> str:
        """What is to be computed, as `47 * 86`; no expression is in both splits."""
        rng = random.Random(f"arithmetic/{task}")
        held_out = task.startswith("test")
        low = 10 ** (self.digits - 1)
        high = 10**self.digits - 1
        while True:
            text = str(rng.randint(low, high))
            for _ in range(self.numbers - 1):
                text += f" {rng.choice(self.operations)} {rng.randint(low, high)}"
            # by a checksum of its text: the same wherever it is drawn
            if (zlib.crc32(text.encode()) % HELD_OUT == 0) is held_out:
                return text

    def answers(self, rng: random.Random, task: str) -> tuple[str, ...]:
        return (str(value(self.expression(task))),)

    def play(self, rng: random.Random, task: str) -> Play:
        text = self.expression(task)
        actions = yield Ask({"solver": QUESTION.format(expression=text)})
        right = _number(actions["solver"].text) == value(text)
        yield Reward({"solver": float(right)}, why="answer")

    def success(self, episode: Episode) -> bool | None:
        # what a tool cost or paid is not part of the answer
        if not episode.end.scored:
            return None
        return any(entry.why == "answer" and entry.value == 1.0 for entry in episode.ledger)


def value(expression: str) -> int:
    """What an expression comes to, as Python computes it: products first.

    >>> value("7 - 2 * 3 * 4 + 1")
    -16
    """
    words = expression.split()
    total = 0
    product = int(words[0])
    sign = 1
    for operation, word in zip(words[1::2], words[2::2], strict=True):
        if operation == "*":
            product *= int(word)
        else:
            total = total + sign * product
            product = int(word)
            sign = SIGNS[operation]
    return total + sign * product


def _number(text: str) -> int | None:
    """The number of an answer; None where there is none, or several.

    >>> _number("47 * 86 = 4,042"), _number("the answer is 3 or 4")
    (4042, None)
    """
    numbers = NUMBER.findall(THOUSANDS.sub("", MARK.split(text)[-1]))
    # Python refuses to read a number of thousands of digits.
    if len(numbers) != 1 or len(numbers[0]) > 20:
        return None
    return int(numbers[0].replace(" ", ""))
