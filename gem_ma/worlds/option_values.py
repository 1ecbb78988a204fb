"""Options that adapters share, checked by their names before an adapter reads them: whoever types
`turns: "5"` learns it here, and not in the middle of a play.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.text import fold


class Wish(NamedTuple):
    """What an option wants, in words, and whether a value is that."""

    words: str
    fits: Callable[[Any], bool]


MOST = 1_000_000  # tasks of a split, which are listed


def _count(least: int, most: float = math.inf) -> Callable[[Any], bool]:
    # a bool is an int for Python, and `turns: yes` is a slip
    return lambda value: type(value) is int and least <= value <= most


def _amount(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf


def _names(value: Any) -> bool:
    """Different texts, as they differ to who reads an answer."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        return False
    return len({*map(fold, value)} - {""}) == len(value)


_SWITCH = Wish("true or false", lambda value: isinstance(value, bool))
_AMOUNT = Wish("a finite number", _amount)
WISHES = {
    "turns": Wish("a whole number, 1 or more", _count(1)),
    "games": Wish(f"a whole number, 1 to {MOST:,}", _count(1, MOST)),
    "size": Wish(f"a whole number, 1 to {MOST:,}", _count(1, MOST)),
    "players": Wish("a whole number, 1 or more", _count(1)),
    "listed": Wish("a whole number, 0 or more", _count(0)),
    "foul": _AMOUNT,
    "worst": _AMOUNT,
    "chance": _SWITCH,
    "zero_sum": _SWITCH,
    "brief": Wish("a text", lambda value: isinstance(value, str)),
    "actions": Wish("a list of texts that differ", _names),
}


def parameters_of(adapter: type) -> dict[str, inspect.Parameter]:
    """What can be typed for an adapter, of its parents too."""
    makers = [vars(each)["__init__"] for each in adapter.__mro__ if "__init__" in vars(each)]
    return {
        name: parameter
        for maker in reversed(makers)
        for name, parameter in inspect.signature(maker).parameters.items()
    }


def check(adapter: type, title: str, options: Mapping[str, Any]) -> None:
    """Raises ConfigError, which begins with the title, for an option of the adapter that cannot be
    what it should. What goes on to the environment is the library's to judge."""
    parameters = parameters_of(adapter)
    for name in options.keys() & WISHES.keys() & parameters.keys():
        value = options[name]
        (words, fits) = WISHES[name]
        # annotations are texts here, as `int | None`
        if value is None and "None" in str(parameters[name].annotation):
            continue
        if not fits(value):
            got = " ".join(repr(value).split())[:80]
            raise ConfigError(f"{title}: {name} wants {words}; got {got}")
