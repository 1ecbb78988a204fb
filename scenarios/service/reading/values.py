"""Typed values in texts: which are told, and which are founded in what was shown. Which are answers
says `stated`.

Numbers are tokens with bounds (`$`, thousands commas, decimals) and compared by value; ids
exactly; phrases on word boundaries. A value is *founded* where something shown holds it, or
where one calculator step leads to it: a sum, a difference or a product of two shown numbers, a
count of entries of a shown record, the total of one field of some of them.
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

from gem_ma.scenarios.service.desk.facts import folded

GUESSES = 3  # numbers that may be told without having been shown, such as one's own sums
# what a value is, so that only its like can be guesses at it
FRACTION, WHOLE, ID, PHRASE = "fraction", "whole", "id", "phrase"
# 256 sums of eight entries; each further one doubles them.
FEW = 8  # entries of which any may be added up in one step
SWAPS = 20_000  # sums of differences that are looked at
STEPS = 4000  # shown numbers beyond which no pairs are tried
# Not behind a `#` or a letter and not before `%`: those are ids, sizes and shares.
_NUMBER = re.compile(r"(?<![\w#.,])-?\$?-?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w%]|[.,]\d)")
# `1)` is a mark anywhere, `1.` only before a line: inside one it may end a sentence.
_MARK = re.compile(r"(?<!\S)\d{1,2}\)(?=\s)|^[ \t]*\d{1,2}\.(?=\s)", re.MULTILINE)
_VALUE = re.compile(r"\$?\d{1,9}(\.\d+)?")
# Two digits, so that equal amounts are one Decimal in a set.
_CENT = Decimal("0.01")
_MEASURE = re.compile(  # how large a thing is: no price and no count
    r"(?<![\w$])\d+(?:\.\d+)?(?:-[a-z]|\s?(?:mm|cm|m|km|in|inch|inches|ft|ml|l|g|kg|lb|oz|mb|gb|tb"
    r"|w|kw|v|mah|h|hours?|minutes?|days?)\b)",
    re.IGNORECASE,
)
_AMOUNT = r"\$?\d[\d,]*+(?:\.\d+)?+"
# a whole chain of terms, so that none is read twice; the group is what it comes to
_SUM = re.compile(rf"(?<![\w.,]){_AMOUNT}(?:(?:\s*+[-+]\s*+{_AMOUNT})++(\s*+=\s*+{_AMOUNT})?+)?+")
_TERMS = 41  # of a chain that counts as a sum, the last ones of a longer one
_TERM = re.compile(r"(?:([-+=])\s*+)?\$?(\d[\d,]*(?:\.\d+)?)")
# fmt: off
_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)
# fmt: on
# "one" is seldom a number
_WORD = {word: Decimal(number) for number, word in enumerate(_WORDS) if number > 1}
_LETTERS = re.compile(r"[a-z]+")


# -- told ----------------------------------------------------------------------------------------


def told(output: str, texts: Sequence[str]) -> bool:
    """Whether some text tells this value: a number by its value, an id exactly, words on their
    boundaries. Marks of a list are no numbers.

    >>> told("625.60", ["It costs $625.6."]), told("10", ["number #1002345, 10.99"])
    (True, False)
    >>> told("10", ["there are ten"])
    True
    """
    wanted = output.strip()
    if not wanted:
        return True
    # Digits and at most two places; whatever else is looked for as words.
    if _VALUE.fullmatch(wanted):
        number = Decimal(wanted.lstrip("$"))
        word = (
            _WORDS[int(number)] if number == number.to_integral_value() and number <= 20 else None
        )
        return any(
            number in numbers(text) or (word is not None and _has_phrase(text, word))
            for text in map(unmarked, texts)
        )
    return any(_has_phrase(text, wanted) for text in map(unmarked, texts))


def kind_of(output: str) -> str:
    """FRACTION, WHOLE (a number that may be a count), ID (longer digits, or letters and digits
    in one word) or PHRASE."""
    wanted = output.strip().replace(",", "")
    if _VALUE.fullmatch(wanted):
        return WHOLE if Decimal(wanted.lstrip("$")) % 1 == 0 else FRACTION
    # Four digits in a row: a shorter one is a model's name, such as `A4`.
    return ID if re.fullmatch(r"#?\w+", wanted) and re.search(r"\d{4}", wanted) else PHRASE


def like(output: str, text: str) -> set[Any]:
    """The distinct values of a text that could be guesses at this one: numbers as whole or as
    broken as it is, ids of the same form."""
    kind = kind_of(output)
    if kind == ID:
        return set(_form(output.strip().replace(",", "")).findall(text))
    if kind == PHRASE:
        return set()
    # Sizes and weights are no prices, though they are broken numbers.
    text = _MEASURE.sub(" ", unmarked(text))
    if kind == FRACTION:
        return {number for number in numbers(text) if number % 1}
    # Beyond a billion it is an id.
    return {number for number in numbers(text) if not number % 1 and number < 10**9} | worded(text)


@lru_cache(maxsize=1024)
def _form(value: str) -> re.Pattern[str]:
    """Whatever has digits and letters where this value has them."""
    inner = "".join(
        r"\d" if char.isdigit() else "[A-Za-z]" if char.isalpha() else re.escape(char)
        for char in value
    )
    return re.compile(rf"(?<!\w){inner}(?!\w)")


def numbers(text: str) -> frozenset[Decimal]:
    """The numbers in a text, by value."""
    return _numbers(text)


@lru_cache(maxsize=4096)
def _numbers(text: str) -> frozenset[Decimal]:
    return frozenset(
        Decimal(whole.replace(",", "") + part)
        for whole, part in _NUMBER.findall(text)
        # Longer ones are no amounts, and Decimal would work on them for long.
        if len(whole) < 40
    )


def worded(text: str) -> set[Decimal]:
    """The numbers from two to twenty that a text has as words."""
    return {_WORD[word] for word in _LETTERS.findall(text.casefold()) if word in _WORD}


def unmarked(text: str) -> str:
    """The text without the marks `1)` and, before a line, `1.` where there are several."""
    # One mark alone may be the end of a sentence.
    return _MARK.sub(" ", text) if len(_MARK.findall(text)) > 1 else text


def _has_phrase(text: str, phrase: str) -> bool:
    return _has_folded(folded(text), folded(phrase))


def _has_folded(text: str, phrase: str) -> bool:
    # The plain search first: it fails mostly, and costs next to nothing.
    return phrase in text and re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) is not None


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
        basis = Shown(held)
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
class Shown:
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
        if _VALUE.fullmatch(wanted):
            return self.reaches(Decimal(wanted.lstrip("$")))
        phrase = folded(output)
        # A long text is folded only where it may hold the phrase.
        # folding is slow: only texts that hold the first word are folded
        word = phrase.split(" ", 1)[0]
        return any(
            word in text.casefold() and _has_folded(folded(text), phrase)
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
    """Whether a text holds a value that is no part of a longer word or number."""
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
