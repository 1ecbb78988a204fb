"""What the kinds of our own tasks are written with: a draft, names to draw, and parts of checks.

What is expected stands in the check alone. Parts compare by what bash has built in, so that no
expected text is an argument of a process.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    "amber basil cedar delta ember fern gale hazel iris juniper koala lotus maple nettle olive"
    " poppy quartz river sage thistle umber violet willow yarrow zinnia"
)
PEOPLE = _words("Ada Ben Cleo Dana Eli Fay Gus Hana Ivo Jana Kai Lea Milo Nora Otto Pia")
CITIES = _words("Aarhus Bergen Cork Delft Essen Faro Ghent Havre Izmir Jena Kiel Lyon")


@dataclass(frozen=True, slots=True)
class Draft:
    """`checks`: parts of a script that all have to hold. `solution`: a command a line."""

    words: str
    files: Mapping[str, str | bytes]
    checks: Sequence[str]
    solution: str
    run: str = ""


def says(path: str, value: object) -> str:
    """A file holds this value, with any white space around it."""
    return f'[ "$(tr -d "[:space:]" < {quote(path)})" = {quote(str(value))} ]'


def holds(path: str, text: str) -> str:
    """A plain file holds this text; line ends at its end do not count."""
    name = quote(path)
    return f'[ -f {name} ] && [ ! -L {name} ] && [ "$(cat {name})" = {quote(text.rstrip())} ]'


def paths(expected: Sequence[str], folder: str = ".") -> str:
    """A folder holds these files and no others, at any depth."""
    listed = "\n".join(sorted(expected))
    find = f"find {quote(folder)} -mindepth 1 ! -type d -printf '%P\\n' | LC_ALL=C sort"
    return f'[ "$({find})" = {quote(listed)} ]'


def some(rng: random.Random, words: Sequence[str], least: int, most: int) -> list[str]:
    """Different words, so many."""
    return rng.sample(list(words), rng.randint(least, most))


def log_lines(rng: random.Random, number: int) -> list[tuple[str, str, str, int]]:
    """Lines of a log: an address, a level, a word, a duration."""
    return [
        (
            f"10.0.{rng.randint(0, 3)}.{rng.randint(1, 9)}",
            rng.choice(("INFO", "WARN", "ERROR", "DEBUG")),
            rng.choice(NAMES),
            rng.randint(10, 990),
        )
        for _ in range(number)
    ]


def log_text(lines: Sequence[tuple[str, str, str, int]]) -> str:
    """Them as the text of a file."""
    return "".join(
        f"2025-03-{1 + place // 40:02} {address} {level} {word} took {took} ms\n"
        for place, (address, level, word, took) in enumerate(lines)
    )
