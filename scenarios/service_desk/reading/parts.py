"""A message as clauses of sentences and rows of lists, each with the words that it is made of.

All is linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gem_ma.scenarios.service_desk.reading.values import numbers

INTRODUCES = 4  # words before a colon that are a sentence of their own
# The optional blank is possessive, or a row of blanks would be tried from each of them.
_ROW = re.compile(r"(?:(?<!\s)\s++)?(?:[-*+•>]\s|\||\d{1,2}[.)]\s)")
_NUMBERED = re.compile(r"^[ \t]*\d{1,2}[.)](?=\s)", re.MULTILINE)
# `Label: 5.00` on two lines or more is a table without marks. Bounded, so that a page of prose
# costs no more than its length.
_LABELLED = re.compile(
    r"\s*[^\s:–—.!?][^:–—.!?\n]{0,80}(?:[:–—]|\s-\s)\s*\**\$?[\d,]*\d(?:\.\d+)?\W*$"
)
_EQUALS = re.compile(r"\d\s?=\s?\$?\d")
# JSON that was pasted: nobody says it.
_RAW = re.compile(r"[{\[]\s*\"|\"\s*:")
CONCLUDES = re.compile(
    r"\b(?:total|sum|altogether|overall|difference|balance|cheapest|dearest|lowest|highest|(?:least"
    r"|most)"
    r" expensive|answer|result)\b",
    re.IGNORECASE,
)
# Where a sentence turns to its conclusion, the values before it are its basis.
_CLAUSE = re.compile(
    r"(?<=[.!?])\s+|;|[—=]|\s[-−]\s|,?\s(?=(?:so|therefore|thus|hence|(?:which|that)"
    r" (?:makes|comes)|while|whereas|but|compared)\b)",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\(([^()\n]{0,400})\)")
_WORD = re.compile(r"[A-Za-z][a-z']+")


@dataclass(frozen=True, slots=True)
class Part:
    """A clause of a sentence, or a row of a list. `frame`: its words without names; `block`:
    which list a row is of, -1 = none."""

    text: str
    frame: frozenset[str]
    words: int
    block: int = -1
    raw: bool = False  # a row of data, that nobody says

    @property
    def bare(self) -> int:
        """How many numbers it holds without words to hold them together; 0 where it has enough
        of them."""
        count = len(numbers(self.text))
        return count if count > 1 and self.words < count + 2 else 0


@lru_cache(maxsize=1024)
def parts_of(text: str) -> tuple[Part, ...]:
    """The clauses and rows of a message, in its order."""
    lines = [line for line in text.split("\n") if line.strip()]
    # the number of a row is none of its values
    numbered = len(_NUMBERED.findall(text)) > 1
    # One line with a label is a sentence; two are a table.
    labelled = sum(_LABELLED.match(line) is not None for line in lines) > 1
    parts: list[Part] = []
    block, inside = 0, False
    for line in lines:
        raw = _RAW.search(line) is not None
        row = (
            raw
            or any(pattern.match(line) for pattern in (_ROW, _LABELLED)[: 1 + labelled])
            or _EQUALS.search(line) is not None
        )
        # Rows that follow each other are one list.
        block += row and not inside
        inside = row
        parts += (
            [part_of(_NUMBERED.sub("", line) if numbered else line, block, raw)]
            if row
            else [part_of(clause) for clause in _clauses(line) if clause.strip()]
        )
    return tuple(parts)


def _clauses(line: str) -> list[str]:
    """The clauses of a line of prose. What stands in brackets is one of its own, unless it is a
    mere number."""
    # `(sizes: 5, 6)` says something of its own; `(5.00)` repeats what stands before it.
    asides = {
        inner: None
        for inner in _ASIDE.findall(line)
        if ":" in inner or len(_WORD.findall(inner)) > 2
    }
    line = _ASIDE.sub(lambda aside: " " if aside[1] in asides else aside[0], line)
    clauses = [*asides]
    for clause in _CLAUSE.split(line):
        before, colon, after = clause.partition(": ")
        words = len(_WORD.findall(before)) if colon else 0
        # `The prices are:` introduces; `Total: 5` is one clause with its value.
        own = words >= INTRODUCES or (words > 1 and numbers(before))
        clauses += [before, after] if own else [clause]
    return clauses


def part_of(text: str, block: int = -1, raw: bool = False) -> Part:
    """A text as a part, with its frame."""
    words = _WORD.findall(text)
    # Words in small letters: names of things differ from row to row, the pattern does not.
    frame = {word for word in words if word[0].islower()} | {
        cue.casefold() for cue in CONCLUDES.findall(text)
    }
    return Part(text, frozenset(frame), len(words), block, raw)
