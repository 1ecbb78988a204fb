"""Arithmetic on a text, with Python's numbers and Python's error texts, without running the text.

The compiler is asked only whether the text is a valid expression (so that its error texts are
kept); the value is found by an operator stack of our own, which is not recursive and refuses
work that would never end. Beyond the bounds the answer is the error that Python would give after
its long work: an integer that no float can hold.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

ALPHABET = "0123456789+-*/(). "
# Bits that a value may have, and work in squared words over one expression. Without them `9**9**9`
# would run for hours.
MAX_LENGTH, MAX_BITS, MAX_WORK = 100_000, 200_000, 200_000_000
# Longest first: `...` is one constant, `2.` a number, `**` no two stars.
_TOKEN = re.compile(r"\.\.\.|\d+\.\d*|\.\d+|\d+|\*\*|//|[-+*/()]")
# Python's own ranks; a sign binds less than a power, so -2**2 is -4.
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "plus": 3, "minus": 3, "**": 4}
_UNARY: dict[str, Callable[[Any], Any]] = {"plus": operator.pos, "minus": operator.neg}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": operator.pow,
}


def calculate(expression: Any) -> str:
    """The value as text, rounded to cents, or `Error: ...`. Raises TypeError for what cannot be
    walked character by character."""
    if not all(char in ALPHABET for char in expression):
        return "Error: invalid characters in expression"
    try:
        # To cents as float, as tau-bench rounds: 0.125 becomes 0.12.
        return str(round(float(evaluate(expression)), 2))
    except Exception as error:
        return f"Error: {error}"


def evaluate(expression: Any) -> Any:
    """The value of an arithmetic expression; raises what Python would raise."""
    # What `eval` says of other types.
    if not isinstance(expression, str):
        raise TypeError("eval() arg 1 must be a string, bytes or code object")
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"expression is longer than {MAX_LENGTH} characters")
    expression = expression.lstrip(" ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # such as "'int' object is not callable"
        compile(expression, "<string>", "eval")
    return _Machine().run(_TOKEN.findall(expression))


class _Machine:
    """Two stacks: values, and operators that wait for their right operand."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.waiting: list[str] = []
        self.work = 0

    def run(self, tokens: list[str]) -> Any:
        operand_next = True
        for place, token in enumerate(tokens):
            if operand_next:
                operand_next = self._operand(
                    token, tokens[place + 1] if place + 1 < len(tokens) else ""
                )
            elif token == ")":
                self._close()
            elif token == "(":
                # `2(3)` is valid Python and an error only when it is run.
                self.waiting.append("call")
                operand_next = True
                if tokens[place + 1] == ")":
                    self._call(())
            else:
                # One more for a power: it groups from the right, 2**3**2 is 2**9.
                self._reduce(_RANK[token] + (token == "**"))
                self.waiting.append(token)
                operand_next = True
        self._reduce(0)
        return self.values.pop()

    def _operand(self, token: str, following: str) -> bool:
        """Takes a token where an operand is due; tells whether one is still due."""
        if token == "(":
            if following == ")":
                self.values.append(())
                self.waiting.append("empty")
                return False
            self.waiting.append("(")
        elif token in ("*", "**"):  # a starred argument of a call
            self.waiting[-1] += token
        elif token in ("+", "-"):
            self.waiting.append("plus" if token == "+" else "minus")
        else:
            self.values.append(_constant(token))
            return False
        return True

    def _close(self) -> None:
        self._reduce(0)
        opened = self.waiting.pop()
        if opened.startswith("call"):
            self._call((self.values.pop(),), opened[len("call") :])

    def _call(self, arguments: tuple[Any, ...], star: str = "") -> None:
        """No number can be called; which error it is depends on how the argument was starred."""
        called = self.values.pop()
        if star == "**":
            raise TypeError(
                f"{called} argument after ** must be a mapping, not {type(arguments[0]).__name__}"
            )
        if star == "*" and not isinstance(arguments[0], tuple):
            raise TypeError(
                f"{called} argument after * must be an iterable, not {type(arguments[0]).__name__}"
            )
        raise TypeError(f"'{type(called).__name__}' object is not callable")

    def _reduce(self, rank: int) -> None:
        # Brackets and calls have no rank and stop the reduction.
        while self.waiting and _RANK.get(self.waiting[-1], -1) >= max(rank, 1):
            name = self.waiting.pop()
            right = self.values.pop()
            if name in _UNARY:
                self.values.append(_UNARY[name](right))
            else:
                left = self.values.pop()
                self._bound(name, left, right)
                self.values.append(_BINARY[name](left, right))

    def _bound(self, name: str, left: Any, right: Any) -> None:
        # Floats are bounded by themselves: they become infinite or raise.
        if not (isinstance(left, int) and isinstance(right, int)):
            return
        # -1, 0 and 1 stay small at any power.
        if name == "**":
            bits = left.bit_length() * right if right > 0 and left not in (-1, 0, 1) else 0
        elif name in ("*", "//"):
            bits = left.bit_length() + right.bit_length()
        else:
            return
        # Small numbers cost nothing, and most expressions hold no others.
        if bits < 4096:
            return
        # Python multiplies in words of 30 bits, each with each.
        self.work += (bits // 30) ** 2
        if bits > MAX_BITS or self.work > MAX_WORK:
            raise OverflowError("int too large to convert to float")


def _constant(token: str) -> Any:
    if token == "...":
        return ...
    # The compiler lets 000 pass and refuses 012, so only zeros lead here.
    return int(token.lstrip("0") or 0) if token.isdigit() else float(token)
