"""Which values are founded in what was shown, and which numbers are guesses.

A value is *founded* where something shown holds it, or where one calculator step leads to it: a
sum, a difference or a product of two shown numbers, a count of entries of a shown record, the
total of one field of some of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

from gem_ma.scenarios.service_desk.desk.facts import folded
from gem_ma.scenarios.service_desk.reading.values import (
    VALUE,
    has_folded,
    numbers,
    unmarked,
    worded,
)

GUESSES = 3  # numbers that may be told without having been shown, such as one's own sums
# 256 sums of eight entries; each further one doubles them.
FEW = 8  # entries of which any may be added up in one step
SWAPS = 20_000  # sums of differences that are looked at
STEPS = 4000  # shown numbers beyond which no pairs are tried
# Two digits, so that equal amounts are one Decimal in a set.
_CENT = Decimal("0.01")
_AMOUNT = r"\$?\d[\d,]*+(?:\.\d+)?+"
# a whole chain of terms, so that none is read twice; the group is what it comes to
_SUM = re.compile(rf"(?<![\w.,]){_AMOUNT}(?:(?:\s*+[-+]\s*+{_AMOUNT})++(\s*+=\s*+{_AMOUNT})?+)?+")
_TERMS = 41  # of a chain that counts as a sum, the last ones of a longer one
_TERM = re.compile(r"(?:([-+=])\s*+)?\$?(\d[\d,]*(?:\.\d+)?)")


# -- guesses -------------------------------------------------------------------------------------


def guessed(outputs: Sequence[str], texts: Sequence[str], sources: Iterable[str]) -> set[Decimal]:
    """The numbers told that nothing shown holds or leads to; the wanted ones aside. More than
    `GUESSES` are a spray."""
    wild = {number for text in texts for number in numbers(unmarked(text)) | worded(text)}
    wild -= {number for output in outputs for number in numbers(output)}
    if len(wild) > GUESSES:  # seldom; what was shown is long
        held = list(sources)
        wild -= {number for text in held for number in numbers(text)}
    if len(wild) > GUESSES:
        basis = Basis(held)
        # sums beside an answer; counts are guessed too easily
        wild = {number for number in wild if not (number % 1 and basis.reaches(number))}
    # Written out in full, a sum shows where its result comes from.
    return wild - worked_out(texts, wild) if len(wild) > GUESSES else wild


def worked_out(texts: Sequence[str], wild: set[Decimal]) -> set[Decimal]:
    """Those of the numbers that come out of sums which are written down in full, from numbers
    that were shown or came out of such sums."""
    known: set[Decimal] = set()
    for written in (match.group() for text in texts for match in _SUM.finditer(text) if match[1]):
        # The last terms of an endless chain, so that the cost is bounded.
        (_, first), *others = _TERM.findall(written)[-_TERMS - 1 :]
        signed = (("", first), *others)
        terms = [(sign, Decimal(number.replace(",", ""))) for sign, number in signed]
        result = terms[-1][1]
        # A wild number among the terms founds nothing.
        founded = all(number not in wild or number in known for _, number in terms[:-1])
        if (
            founded
            and sum((-number if sign == "-" else number for sign, number in terms[:-1]), Decimal(0))
            == result
        ):
            known.add(result)
    return known


# -- founded -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Basis:
    """What somebody was shown so far."""

    texts: list[str] = field(default_factory=list)
    # numbers, also those that a record holds by counting or adding up
    held: set[Decimal] = field(default_factory=set)
    behind: int = 0  # texts whose numbers are not in `held` yet

    def add(self, text: str) -> None:
        self.texts.append(text)

    def holds(self, value: str) -> bool:
        """Whether something shown holds this very value as a token of its own."""
        return any(value in text and has_token(value, text) for text in self.texts)

    def founds(self, output: str) -> bool:
        """Whether the value was shown or is one calculator step from what was."""
        wanted = output.strip().replace(",", "")
        if VALUE.fullmatch(wanted):
            return self.reaches(Decimal(wanted.lstrip("$")))
        phrase = folded(output)
        # A long text is folded only where it may hold the phrase.
        # folding is slow: only texts that hold the first word are folded
        word = phrase.split(" ", 1)[0]
        return any(
            word in text.casefold() and has_folded(folded(text), phrase)
            for text in reversed(self.texts)
        )

    def reaches(self, number: Decimal) -> bool:
        """Whether a number was shown, is counted or added up in a shown record, or is one sum,
        difference or product of two such numbers."""
        number, held = _cent(number), self.held
        # what was shown last is likeliest
        if number in held or any(
            number in derived(text) for text in reversed(self.texts[self.behind :])
        ):
            return True
        for text in self.texts[self.behind :]:
            held |= derived(text)
        self.behind = len(self.texts)
        # Beyond that the pairs would take longer than the talk.
        if len(held) > STEPS:
            return False
        if any(number - other in held or number + other in held for other in held):
            return True
        # A product by a count: the price of three is three times the price.
        small = [other for other in held if 1 < other <= 20 and not other % 1]
        if any(
            # Division may round, so the product is made again.
            _cent(number / other) in held and _cent(number / other) * other == number
            for other in small
        ):
            return True
        swapped = _swapped(tuple(self.texts))
        return number in swapped or -number in swapped


@lru_cache(maxsize=8192)
def _cent(number: Decimal) -> Decimal:
    # Longer ones are ids, and far beyond that `quantize` raises.
    return number.quantize(_CENT) if abs(number) < 10**15 else number


@lru_cache(maxsize=2048)
def derived(text: str) -> frozenset[Decimal]:
    """The numbers of a text to the cent and, where it is JSON, the counts of its entries (all,
    and by each field's value) and totals by field."""
    amounts = {_cent(number) for number in numbers(text)}
    # Only results are JSON, and parsing is what costs.
    if text[:1] in "{[":
        try:
            stack: list[Any] = [json.loads(text)]
        except (ValueError, RecursionError):
            # Text that only begins like JSON has its numbers and nothing more.
            return frozenset(amounts)
        while stack:
            value = stack.pop()
            children = (
                list(value.values())
                if isinstance(value, dict)
                else value
                if isinstance(value, list)
                else []
            )
            if children:
                amounts.add(Decimal(len(children)))
                amounts |= _tallied([child for child in children if isinstance(child, dict)])
                stack += [child for child in children if isinstance(child, (dict, list))]
    return frozenset(amounts)


def _tallied(entries: Sequence[dict[str, Any]]) -> set[Decimal]:
    """Counts of the entries by each field's value, and totals by field: of all entries and, of
    few, of any of them."""
    counts: Counter[tuple[str, str]] = Counter()
    amounts: dict[str, list[Decimal]] = {}
    for entry in entries:
        # One level down too: options stand inside an item.
        flat = [
            *entry.items(),
            *(
                pair
                for inner in entry.values()
                if isinstance(inner, dict)
                for pair in inner.items()
            ),
        ]
        for name, value in flat:
            if isinstance(value, (str, bool)):
                counts[(name, str(value))] += 1
            elif isinstance(value, (int, float)) and abs(value) < 10**12:
                amounts.setdefault(name, []).append(_cent(Decimal(repr(value))))
    tallies = {Decimal(count) for count in counts.values()}
    for column in amounts.values():
        # Any of few may be meant; of many only all of them.
        sums = {Decimal(0)}
        for amount in column if len(column) <= FEW else ():
            sums |= {one + amount for one in sums}
        tallies |= sums | {sum(column, Decimal(0))}
    return tallies


@lru_cache(maxsize=64)
def _swapped(texts: tuple[str, ...]) -> frozenset[Decimal]:
    """What it comes to when entries of a shown list give way to others: an entry's amounts
    against those of its like in the record that shares a field with it, such as the product that
    both name; over some of the entries, as one expression of a calculator adds them up."""
    # Results that are records; lists have no field to share.
    records = [record for record in map(_record, texts) if record]
    amounts: set[Decimal] = set()
    for record in records:
        for entries in record.values():
            if not isinstance(entries, list) or not 1 < len(entries) <= FEW:
                continue
            sums = {Decimal(0)}
            for entry in entries:
                moves = _moves(entry, records) if isinstance(entry, dict) else set()
                # Too many sums are not looked at: what comes out of them is hardly the customer's
                # question.
                if len(sums) * len(moves) <= SWAPS:
                    sums |= {one + move for one in sums for move in moves}
            amounts |= sums
    return frozenset(amounts)


def _record(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if text[:1] == "{" else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _moves(entry: dict[str, Any], records: Sequence[dict[str, Any]]) -> set[Decimal]:
    """The differences between an entry's amounts and those of what may stand in its place."""
    amounts, moves = _amounts(entry), set[Decimal]()
    for record in records:
        # A record that shares a text with the entry, such as the id of its product, offers what may
        # replace it.
        if any(
            isinstance(value, str) and entry.get(name) == value for name, value in record.items()
        ):
            for children in record.values():
                for child in (
                    children.values()
                    if isinstance(children, dict)
                    else children
                    if isinstance(children, list)
                    else ()
                ):
                    others = _amounts(child) if isinstance(child, dict) else {}
                    moves |= {
                        others[name] - amount for name, amount in amounts.items() if name in others
                    }
    return moves


def _amounts(entry: dict[str, Any]) -> dict[str, Decimal]:
    return {
        name: _cent(Decimal(repr(value)))
        for name, value in entry.items()
        # `type`, since a flag is an int.
        if type(value) in (int, float) and abs(value) < 10**12
    }


def has_token(value: str, text: str) -> bool:
    """Whether a text holds a value that is not part of a longer word or number."""
    place = text.find(value)
    while place >= 0:
        before, after = (
            text[place - 1 : place] if place else "",
            text[place + len(value) : place + len(value) + 1],
        )
        if not (before.isalnum() or before == "_") and not (after.isalnum() or after == "_"):
            return True
        place = text.find(value, place + 1)
    return False
