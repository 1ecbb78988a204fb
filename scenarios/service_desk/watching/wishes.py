"""What a wish wants as calls, and what texts and wishes have in common: pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.reading.phrases import fold, plain


def chain(wish: Wish) -> Iterable[Wish]:
    """A wish and what is wanted in its place once it is refused, and so on."""
    each: Wish | None = wish
    while each is not None:
        yield each
        each = each.instead


def spoken_of(wish: Wish) -> list[Wish]:
    """A wish, what is wanted in its place, and what the customer wants first."""
    return [*chain(wish), *([wish.before_change] if wish.before_change else [])]


def keys_of(wish: Wish) -> list[str]:
    """The writes that serve a wish, as keys."""
    return [call_key(wish.kind, {**wish.arguments, **choice}) for choice in ({}, *wish.choices)]


def call_key(name: str, arguments: Any) -> str:
    """A call without regard to the order in its lists; words of a choice are not arguments."""
    values = [
        (key, sorted(map(str, value)) if isinstance(value, (list, tuple)) else value)
        for key, value in arguments.items()
        if key != "words"
    ]
    return f"{name} {sorted(values, key=str)}"


def is_count(output: str, text: str, asked: bool) -> bool:
    """Whether a number that was found can be the answer: a small one has to be `asked` for before,
    and is not a count of days."""
    # A count is told in passing all the time: `3 to 5 days`, `2 items`.
    if not (output.isdigit() and len(output) < 3):
        return True
    return asked and not re.search(
        rf"\b{output}[ \t]?(?:-|to|–)?[ \t]?\d{{0,4}}[ \t]?(?:business |working )?days\b"
        rf"|\d[ \t]?(?:-|to|–)[ \t]?{output}\b",
        text,
    )


def lines_of(text: str) -> list[str]:
    """The sentences and lines of a text, folded."""
    return [fold(line) for line in re.split(r"(?<=[.!?])\s+|\n", text) if line.strip()]


@lru_cache(maxsize=1024)
def content_words(text: str) -> frozenset[str]:
    # Short words are those that all requests share.
    return frozenset(word for word in re.findall(r"[\w#@]+", plain(text)) if len(word) > 3)
