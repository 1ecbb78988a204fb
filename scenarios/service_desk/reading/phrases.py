"""What a domain must say about its language, so that the parser, the ledger and the scripted
customer can be used in it.

A phrasebook knows words and nothing of a talk: it never sees whose turn it is or what was said
before. It looks at texts, and at wishes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

from gem_ma.scenarios.service_desk.desk.task import Wish

RIGHT, WRONG, MISSING = "right", "wrong", "missing"
DOUBTFUL = "doubtful"  # it reads as wrong, and natural words may read so
Pick = Callable[..., str]  # chooses one of several ways to say a thing


class Mention(NamedTuple):
    """A value that stands in a text, in its canonical form; `start` and `end` are the place of
    its words."""

    slot: str
    value: str
    start: int
    end: int


class Phrasebook(Hashable, Protocol):
    """The language of one domain, as one object for a whole run, so that readings can be kept by
    it.

    Texts come as they were written; patterns are searched in case-folded text.
    """

    name: str
    asked: Mapping[str, re.Pattern[str]]  # slot -> the words by which it is asked for
    # `Wish.reason` -> the words by which that reason is given
    reasons: Mapping[str, re.Pattern[str]]
    refusing: re.Pattern[str]  # ways to refuse in words of the domain, beside the general ones
    finished: re.Pattern[str]  # ways to say that a write has been made
    # what sounds like a write that has been made and only says how things are
    states: re.Pattern[str]
    single: frozenset[str]  # slots of which a customer has one value in a talk
    # slots, of the same name as an argument, that say which record a write is about
    anchors: frozenset[str]

    def writes(self, sentence: str) -> frozenset[str]:
        """The kinds of writes that a sentence may speak of; several where the words leave it
        open, none for everything else."""

    def kinds(self, wish: Wish) -> frozenset[str]:
        """The kinds of writes that would serve a wish; of an impossible one, those that were
        meant."""

    def mentions(self, text: str) -> tuple[Mention, ...]:
        """The values in a text that can be told without knowing the task: ids, addresses of
        mail, and the like. In the order of the text."""

    def judge(self, wish: Wish, text: str) -> Mapping[str, str]:
        """How a text names the arguments of a write: each RIGHT, WRONG, DOUBTFUL or
        MISSING; what no customer can check is left out."""

    def details(self, wish: Wish) -> tuple[str, ...]:
        """The parts that a request for the wish has, by the names of slots; the first cannot be
        left out."""

    def request(self, wish: Wish, details: Collection[str], pick: Pick) -> str:
        """The wish in a customer's words, with these details only."""

    def detail(self, wish: Wish, slot: str, pick: Pick) -> str:
        """One detail of a wish as a sentence; "" where the wish has none of that name."""

    def give(self, slots: Mapping[str, str], pick: Pick) -> str:
        """Values that a customer knows, as sentences."""

    def offered(self, wish: Wish, text: str) -> str:
        """Which of several things that a text offers serves the wish, as a sentence; "" where it
        offers no choice, or none of them."""

    def label(self, slot: str) -> str:
        """What a slot or an argument is called among people."""

    def mistaken(self, slot: str, value: str) -> str:
        """A value of this slot as somebody mistypes it; "" where it cannot be mistyped."""


# -- finding values ------------------------------------------------------------------------------


# Talks repeat their sentences, and each is folded by several readers.
@lru_cache(maxsize=4096)
def fold(text: str) -> str:
    """A text for comparing: case-folded, single-spaced, with plain quotes and dashes.

    >>> fold("The  “Kite” – RED")
    'the "kite" - red'
    """
    return " ".join(text.translate(_PLAIN).casefold().split())


_PLAIN = str.maketrans(
    # A blank that does not break and a dash that does not: models write both.
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "\u00a0": " ", "‑": "-"}
)


def plain(text: str) -> str:
    """A text of the same length, case-folded, with plain quotes and dashes and without the marks
    of Markdown: places in it are places in the text."""
    # Of ASCII both give the same, and no letter of it grows.
    folded = text.lower() if text.isascii() else text.casefold()
    if len(folded) != len(text):  # some grow when they are folded, as ß does
        grown = {ord(char): char.casefold()[0] for char in set(text) if len(char.casefold()) > 1}
        folded = text.translate(grown).casefold()
    return folded.translate(_PLAIN).replace("*", " ").replace("`", " ").replace("|", " ")


def names(value: str, folded: str) -> bool:
    """Whether a folded text holds a value as words of its own, as no part of a longer word, number
    or address of mail.

    >>> names("30 m", "line: 30 m"), names("30 m", "line: 30 mm")
    (True, False)
    >>> names("ann", "ann.lee@example.com")
    False
    """
    value = fold(value)
    start = folded.find(value) if value else -1
    # Two characters on each side decide: `.5` goes on a number, `. ` ends a sentence.
    while start >= 0:
        before, after = (
            folded[max(0, start - 2) : start],
            folded[start + len(value) : start + len(value) + 2],
        )
        if not (_joins_left(before) or _joins_right(after) or _in_mail(folded, start + len(value))):
            return True
        start = folded.find(value, start + 1)
    return False


def places(name: str, folded: str) -> list[tuple[int, int]]:
    """Where a folded text holds a name as words of its own, in the singular or the plural:
    (start, end) of each."""
    spans, start = [], folded.find(name)
    while start >= 0:
        end = start + len(name)
        # Plurals in `es` before those in `s`, since both fit `boxes`.
        end += next((len(plural) for plural in ("es", "s") if folded.startswith(plural, end)), 0)
        if not (folded[start - 1 : start].isalnum() or folded[end : end + 1].isalnum()):
            spans.append((start, end))
        # On from the end: what overlaps names nothing twice.
        start = folded.find(name, end)
    return spans


def _joins_left(before: str) -> bool:
    last = before[-1:]
    return (
        last.isalnum()
        or last in ("_", "@")
        # `a-b` and `a.b` are one word, but a dash behind a blank is a dash.
        or (last in (".", "-") and before[:1].isalnum() and len(before) == 2)
    )


def _joins_right(after: str) -> bool:
    first = after[:1]
    return (
        first.isalnum()
        or (first in ("_", "@") and first != "")
        or (first == "." and after[1:2].isdigit())
        or (first == "-" and after[1:2].isalnum())
    )


def _in_mail(folded: str, end: int) -> bool:
    # The name in front of `@` and the domain behind it are not words of the text.
    return folded[end : end + 1] in (".", "-") and "@" in folded[end:].split(" ", 1)[0]


def labelled(label: str, folded: str) -> list[str]:
    """The values that a folded text gives after `label:` or `label =`, up to the end of that part.

    >>> labelled("line", "kite (shape: box, line: 60 m)")
    ['60 m']
    """
    return (
        [found.strip() for found in _label(label).findall(folded) if found.strip()]
        # A pattern per label is costly, and most texts hold none of them.
        if label in folded
        else []
    )


@lru_cache(maxsize=1024)
def _label(label: str) -> re.Pattern[str]:
    return re.compile(
        # A lazy group up to the end of that part; a point ends it only before a blank.
        rf"(?<!\w){re.escape(label)}\s*[:=]\s*([^,;)(\n/]+?)(?=\s*(?:[,;)(\n/]|->|→|$|\.(?:\s|$)))"
    )


def pairs(marks: list[tuple[str, bool]]) -> list[tuple[str, str]] | None:
    """Old and new values joined as their order in a text says; None where it does not say. A mark
    is (value, whether it is a new one).

    >>> pairs([("a", False), ("b", True), ("c", False), ("d", True)])
    [('a', 'b'), ('c', 'd')]
    >>> pairs([("a", False), ("c", False), ("b", True), ("d", True)])
    [('a', 'b'), ('c', 'd')]
    """
    order = "".join("n" if new else "o" for _, new in marks)
    values = [value for value, _ in marks]
    half = len(values) // 2
    if len(values) % 2 or not values:
        # An odd one has no partner, and guessing which would read a wrong yes.
        return None
    if order == "on" * half:
        return list(zip(values[::2], values[1::2], strict=True))
    if order == "no" * half:
        return list(zip(values[1::2], values[::2], strict=True))
    if order == "o" * half + "n" * half:
        return list(zip(values[:half], values[half:], strict=True))
    if order == "n" * half + "o" * half:
        return list(zip(values[half:], values[:half], strict=True))
    return None
