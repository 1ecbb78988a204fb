"""Typed values in texts, and which of them are told. Which are answers says `stated`, which are
founded in what was shown `founded`.

Numbers are tokens with bounds (`$`, thousands commas, decimals) and compared by value; ids
exactly; phrases on word boundaries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from gem_ma.scenarios.service_desk.desk.facts import folded

# what a value is, so that only its like can be guesses at it
FRACTION, WHOLE, ID, PHRASE = "fraction", "whole", "id", "phrase"
# Not behind a `#` or a letter and not before `%`: those are ids, sizes and shares.
_NUMBER = re.compile(r"(?<![\w#.,])-?\$?-?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w%]|[.,]\d)")
# `1)` is a mark anywhere, `1.` only before a line: inside one it may end a sentence.
_MARK = re.compile(r"(?<!\S)\d{1,2}\)(?=\s)|^[ \t]*\d{1,2}\.(?=\s)", re.MULTILINE)
VALUE = re.compile(r"\$?\d{1,9}(\.\d+)?")
_MEASURE = re.compile(  # how large a thing is: no price and no count
    # `10 in stock` and `5.00 in total` do not measure inches.
    r"(?<![\w$.,])\d+(?:\.\d+)?(?:\s?(?:[-–]|to)\s?\d+)?(?:-[a-z]|\s?(?:mm|cm|m|km|in(?!\s+[a-z])"
    r"|inch|inches|ft|ml|l|g|kg|lb|oz|mb|gb|tb|w|kw|v|mah|h"
    r"|(?:business |working )?(?:hours?|minutes?|days?|weeks?|months?))\b)",
    re.IGNORECASE,
)
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


def tells(output: str, texts: Sequence[str]) -> bool:
    """Whether some text tells this value: a number by its value, an id exactly, words on their
    boundaries. Marks of a list are not numbers.

    >>> tells("625.60", ["It costs $625.6."]), tells("10", ["number #1002345, 10.99"])
    (True, False)
    >>> tells("10", ["there are ten"])
    True
    """
    wanted = output.strip()
    if not wanted:
        return True
    # Digits and at most two places; whatever else is looked for as words.
    if VALUE.fullmatch(wanted):
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
    if VALUE.fullmatch(wanted):
        return WHOLE if Decimal(wanted.lstrip("$")) % 1 == 0 else FRACTION
    # Four digits in a row: a shorter one is a model's name, such as `A4`.
    return ID if re.fullmatch(r"#?\w+", wanted) and re.search(r"\d{4}", wanted) else PHRASE


def like(output: str, text: str) -> set[Any]:
    """The distinct values of a text that could be guesses at this one: amounts, whole numbers, or
    ids of the same form."""
    kind = kind_of(output)
    if kind == ID:
        return set(_form(output.strip().replace(",", "")).findall(text))
    if kind == PHRASE:
        return set()
    # Sizes and weights are not prices, though they are broken numbers.
    text = _MEASURE.sub(" ", unmarked(text))
    if kind == FRACTION:
        return {number for number in numbers(text) if number % 1}
    # An amount, such as 10.00, is not a count.
    if "." in output or "$" in output:
        text = amounts(text)
    # Beyond a billion it is an id.
    return {number for number in numbers(text) if not number % 1 and number < 10**9} | worded(text)


def amounts(text: str) -> str:
    """The numbers of a text that have decimals or a sign, one after the other."""
    return " ".join(hit[0] for hit in _NUMBER.finditer(text) if hit[2] or "$" in hit[0])


def in_order(output: str, text: str) -> list[tuple[Any, int]]:
    """The values of a text that are of an output's kind, with their places, in its order."""
    if kind_of(output) == ID:
        return [
            (hit[0], hit.start()) for hit in _form(output.strip().replace(",", "")).finditer(text)
        ]
    marks = [
        (Decimal(hit[1].replace(",", "") + (hit[2] or "")), hit.start())
        for hit in _NUMBER.finditer(text)
        if len(hit[1]) < 40
    ]
    marks += [
        (_WORD[hit[0].casefold()], hit.start())
        for hit in re.finditer(r"[A-Za-z]+", text)
        if hit[0].casefold() in _WORD
    ]
    return sorted(marks, key=lambda mark: mark[1])


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
        # Longer ones are not amounts, and Decimal would work on them for long.
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
    return has_folded(folded(text), folded(phrase))


def has_folded(text: str, phrase: str) -> bool:
    """Whether a folded text holds a folded phrase as words of its own."""
    # The plain search first: it fails mostly, and costs next to nothing.
    return phrase in text and re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) is not None
