"""The budget of one rendering of a chat template: loop turns, calls and characters take from it.

What is charged is charged *before* it is made where it could be great: afterwards the memory is
gone. No clock and no second process: a template that does not fit fails at the same place on every
machine. Knows values; knows no template language.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from gem_ma.kernel.errors import EngineError

# loop turns, calls and characters of one rendering; a talk of 400 turns with ten tools takes about
# 200,000
BUDGET = 5_000_000
# units of a call and of a filter, by the time that they take
CALL = 60
FILTER = 10
GREATEST_BITS = 100_000  # of a whole number
_WIDTH = re.compile(r"\d{5,}|\*|(?<=[:.<>^=]){")  # of a field in a format


class TemplateLimit(EngineError):
    """A chat template asks for more than its budget."""


class _Purse(threading.local):  # templates are rendered in several threads at once
    left = BUDGET


_PURSE = _Purse()


def charge(units: int) -> None:
    """Takes from the budget of the rendering. Raises TemplateLimit where it is spent."""
    _PURSE.left -= units
    if _PURSE.left < 0:
        raise TemplateLimit(f"it takes more than {BUDGET} loop turns, calls and characters")


def refill() -> None:
    """A rendering begins."""
    _PURSE.left = BUDGET


def weight(value: Any) -> int:
    """Characters that a value may take up as text, shared parts counted as often as they are
    shown; no more than just beyond the budget."""
    if isinstance(value, str):
        return len(value)
    # A stack and no recursion: a template can nest lists as deep as it likes. It is left as soon
    # as the budget would be spent, so lists that share their parts cost no more than the budget.
    total = 0
    waiting = [value]
    while waiting and total <= _PURSE.left:
        item = waiting.pop()
        total += len(item) if isinstance(item, str) else 4
        if isinstance(item, Mapping):
            total += 4 * len(item)
            waiting += [*item.keys(), *item.values()] if len(item) <= _PURSE.left else []
        elif isinstance(item, (list, tuple)):
            total += len(item)
            waiting += item if len(item) <= _PURSE.left else []
        elif isinstance(item, range):
            total += len(item)
        elif isinstance(item, int):
            total += item.bit_length() // 3
    return total


def size(value: Any) -> int:
    """The length of a text or a container, 0 of anything else."""
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict, range)) else 0


def each(value: Any) -> Iterator[Any]:
    """The items of something without a length; each is paid for as it comes."""
    for item in value:
        charge(1)
        yield item


def charge_result(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Charges what a filter or a method of a text could make of its value: its length, times
    every number and every length among its arguments."""
    most = max(1, size(value))
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, int):
            most *= max(1, min(abs(argument), BUDGET + 1))
        elif isinstance(argument, str) and len(argument) > 1:
            most *= len(argument)
    # an upper bound: what fits the budget all the same is charged by its true length afterwards
    if most > BUDGET:
        charge(most)


def widths(form: Any) -> int:
    """Characters that the fields of a format ask for; one that takes its width from an argument
    asks for more than there is."""
    fields = _WIDTH.findall(str(form))
    return sum(BUDGET + 1 if width in "*{" or len(width) > 8 else int(width) for width in fields)


def charge_operator(operator: str, left: Any, right: Any) -> None:
    """Charges what `left operator right` makes, for the operators that make something great."""
    if operator == "%" and isinstance(left, (str, bytes)):
        charge(weight(right) + len(left) + widths(left))
    elif operator == "+":
        charge(size(left) + size(right))
    elif operator == "*" and isinstance(left, int) and isinstance(right, int):
        charge((left.bit_length() + right.bit_length() > GREATEST_BITS) * (BUDGET + 1))
    elif operator == "*":
        numbers = [min(factor, BUDGET + 1) for factor in (left, right) if isinstance(factor, int)]
        charge(max(size(left), size(right)) * max([0, *numbers]))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        charge((left.bit_length() * max(0, right) > GREATEST_BITS) * (BUDGET + 1))
