"""What was shown in a talk, and by whom: what the assistant can know, and what it made up."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

from gem_ma.scenarios.service_desk.reading.founded import Basis, worked_out
from gem_ma.scenarios.service_desk.reading.phrases import fold
from gem_ma.scenarios.service_desk.reading.values import numbers

from gem_ma import ToolCall

LONG = 10_000  # a number of so many digits may be that of an id
# How people tell a card by its last digits: `ending in 0447`, `****0447`.
_ENDING = re.compile(r"(?i)(?:\bend(?:ing|s) (?:in|with)\b|[*•…x]{2}|\.{3})\W{0,5}(\d{3,9})(?!\w)")
_BARE = re.compile(r"#?([A-Za-z]{0,2}(\d{5,}))")
LARGE = 100  # a smaller whole number may be a count of anything
HUGE = 10**9  # a larger number is an id, and looked for as one


@dataclass(slots=True)
class Knowledge:
    """What was shown so far. Texts are taken as they were written."""

    basis: Basis = field(default_factory=Basis)  # results, the customer's texts, the briefing
    catalogue: Basis = field(default_factory=Basis)  # results that anybody may see
    foreign: Basis = field(default_factory=Basis)  # results on somebody else's records
    own_data: Basis = field(default_factory=Basis)  # all others
    customer: list[str] = field(default_factory=list)  # the customer's texts, folded

    def brief(self, text: str) -> None:
        """Takes in what the assistant knows from the start."""
        self.basis.add(text)
        self.own_data.add(text)

    def hear(self, text: str) -> None:
        """Takes in a message of the customer."""
        self.brief(text)
        self.customer.append(fold(text))

    def take(self, result: str, *, foreign: bool, catalogue: bool) -> None:
        """Takes in the result of a call; `foreign`: it is on somebody else's record."""
        self.basis.add(result)
        (self.foreign if foreign else self.own_data).add(result)
        if catalogue:
            self.catalogue.add(result)

    # Bounded words, so that `12` was not said with `123`.
    def was_given(self, value: Any) -> bool:
        """Whether the customer said a value, as words of their own."""
        wanted = fold(str(value))
        return not wanted or any(
            re.search(rf"(?<![^\W_]){re.escape(wanted)}(?![^\W_])", text)
            for text in self.customer
            if wanted in text
        )

    def invented(self, call: ToolCall, id_arguments: Collection[str]) -> list[str]:
        """The ids in a call that nothing has shown."""
        arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
        parts = (
            part
            for name, value in arguments.items()
            if name in id_arguments
            for part in (value if isinstance(value, list) else [value])
        )
        return [
            part for part in parts if isinstance(part, str) and part and not self._was_shown(part)
        ]

    def _was_shown(self, value: str) -> bool:
        """Whether an id was shown; a customer may leave out the mark and the letter before its
        digits, or write them small."""
        # As people shorten ids: without the mark in front, or the digits alone.
        bare = _BARE.fullmatch(value)
        forms = (value, *bare.groups()) if bare else (value,)
        return any(self.basis.holds(form) or self.was_given(form) for form in forms)

    def tells_catalogue(self, text: str) -> bool:
        """Whether a text tells a number that a public result holds and the customer did not
        say."""
        return bool(self.catalogue.texts) and any(
            self.catalogue.holds(str(number))
            and not any(number in numbers(said) for said in self.customer)
            for number in _telling(text)
        )

    def foreign_value(self, text: str, ids: re.Pattern[str]) -> str:
        """The first value of a text that only somebody else's record holds, "" for none."""
        if not self.foreign.texts:
            return ""
        # Sorted, so that the same value is named in every process.
        values = sorted(set(ids.findall(text)) | set(map(str, _telling(text))))
        theirs = (
            value
            for value in values
            if self.foreign.holds(value) and not self.own_data.holds(value)
        )
        return next(theirs, "")

    def unfounded(self, text: str, ids: re.Pattern[str]) -> Iterator[str]:
        """What a text tells that nothing shown leads to."""
        for value in dict.fromkeys(ids.findall(text)):
            if not self._was_shown(value):
                yield f"{value} was never shown"
        text = _ENDING.sub(lambda found: " " if self._ends(found[1]) else found[0], text)
        wild = {
            number
            # Ids are looked for as ids above.
            for number in numbers(text)
            if number < HUGE and not self.basis.reaches(number) and not self._inside(number)
        }
        # A sum that is written out is not an invention.
        wild -= worked_out([text], wild) if wild else set()
        for number in sorted(wild):
            yield f"{number} is in no result and follows from none in one step"

    def _ends(self, digits: str) -> bool:
        """Whether a long number that was shown ends so."""
        return any(run.endswith(digits) for text in self.basis.texts for run in _digits(text))

    def _inside(self, number: Decimal) -> bool:
        """Whether the digits of a long number are those of an id that was shown: people tell ids
        without their words."""
        return number >= LONG and any(str(number) in _digits(text) for text in self.basis.texts)


def _telling(text: str) -> set[Decimal]:
    """The numbers of a text that are hardly counts: broken or large ones."""
    return {number for number in numbers(text) if number % 1 or number >= LARGE}


@lru_cache(maxsize=4096)
def _digits(text: str) -> frozenset[str]:
    """The long runs of digits in a text."""
    return frozenset(re.findall(r"\d{5,}", text))
