"""Which values a talk states as answers, and which it only shows beside them: lists, tables and
sums are the basis of an answer.

An answer *stands* in a sentence, or in a row of a list that concludes it (its total, a row in
bold); in another row only where the talk shows few values of the kind at all. Whoever states many
values states none: sentences of one pattern with ever new values are a list as well, and what is
stated until the answer is counted over the whole talk. A message next to a write is about that
write, and its values are no rivals.

All is a function of the texts, linear in their length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

from gem_ma.scenarios.service.reading.parts import CONCLUDES, Part, part_of, parts_of
from gem_ma.scenarios.service.reading.values import (
    FRACTION,
    ID,
    PHRASE,
    WHOLE,
    kind_of,
    like,
    numbers,
    tells,
)

# values of a kind that a talk may state until its answer; or twice as many as are asked for
# Four prices a customer can still compare; more are a list, whoever says them.
LIMIT = 4
EACH = 2  # further ones for each other wish of the customer
TOTAL = frozenset(("=",))  # the frame of a row that is the sum of the others, whatever its words
CLAUSE = 3  # values of a kind in one clause that is no list; or as many as are asked for
# whole numbers beyond that are no guesses at another one: years and house numbers at a count,
# counts at a postcode
TENFOLD = 10
SMALL = 100  # which all counts may be
# Bold that holds a number, on one line.
_BOLD = re.compile(r"(?:\*\*|__)[^*_\d\n]{0,80}\d[\d,.]{0,20}[^*_\n]{0,80}(?:\*\*|__)")
_BEFORE = {  # the word before a value
    FRACTION: re.compile(r"(?<![A-Za-z'])([A-Za-z']+)[^A-Za-z0-9]{0,6}\d[\d,]*\.\d\d"),
    WHOLE: re.compile(r"(?<![A-Za-z'])([A-Za-z']+)[^A-Za-z0-9]{0,6}\d"),
    # Four digits, since shorter ones are counts.
    ID: re.compile(r"(?<![A-Za-z'])([A-Za-z']+)[^A-Za-z0-9]{0,6}\d{4}"),
}
RUN = 3  # clauses in a row that say the same of one value after the other: a list in sentences


class Saying(NamedTuple):
    """A text of the assistant. `about_write`: it is the last one before a write, or the first
    one after it."""

    text: str
    about_write: bool = False


@dataclass(slots=True)
class Answers:
    """What stands in the texts of a talk for one output. `needed`: outputs of its kind;
    `others`: wishes of the customer beside them; `wanted`: all outputs of the task, which
    together are no list that hides one of them."""

    output: str
    talk: Sequence[Saying]
    needed: int = 1
    others: int = 0
    wanted: Sequence[str] = ()
    kind: str = ""
    # of each text, the parts that state values
    stated: list[list[Part]] = field(default_factory=list)
    # patterns that are said of ever new numbers
    lists: set[frozenset[str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kind = kind_of(self.output)
        if self.kind == PHRASE:
            return
        frames: dict[frozenset[str], set[str]] = {}
        for text, about_write in self.talk:
            # A message next to a write holds its values, and those are no rivals.
            for part in () if about_write else parts_of(text):
                if (
                    not part.raw
                    and numbers(part.text)
                    # What states a wanted value is no pattern that could hide it.
                    and not any(tells(one, (part.text,)) for one in (self.output, *self.wanted))
                ):
                    frames.setdefault(part.frame, set()).add(part.text.strip())
        # Said of more numbers than are asked for, a pattern is a list in sentences.
        self.lists = {frame for frame, texts in frames.items() if len(texts) > max(1, self.needed)}
        self.stated = [
            [part for part in self._stating(text) if part.frame not in self.lists]
            for text, _ in self.talk
        ]

    def like(self, text: str) -> set[Any]:
        """The values of a text that could be guesses at the output."""
        values = like(self.output, text)
        if self.kind != WHOLE:
            return values
        size = Decimal(self.output.strip().lstrip("$").replace(",", ""))
        return {
            number
            # A rival is of the same size: nobody takes a year for a count.
            for number in values
            if size <= TENFOLD * number and number <= max(SMALL, TENFOLD * size)
        }

    def stands(self, place: int) -> bool:
        """Whether the text at this place tells the output as an answer."""
        text = self.talk[place].text
        if not tells(self.output, (text,)):
            return False
        if self.kind == PHRASE:
            return True
        # Twice what is asked for, since an answer may name what it compares.
        most = max(LIMIT, 2 * self.needed) + EACH * self.others
        before = [
            number
            for number in range(place + 1)
            if number == place or not self.talk[number].about_write
        ]
        # What is stated until here, over the whole talk: spreading a list over messages does not
        # help.
        if any(tells(self.output, (part.text,)) for part in self.stated[place]):
            return (
                len(
                    {
                        value
                        for number in before
                        for part in self.stated[number]
                        for value in self.like(part.text)
                    }
                )
                <= most
            )
        # Else the answer stands in a row; then all values of the kind count, stated or shown.
        rows = (
            part
            for part in parts_of(text)
            if part.block >= 0 and not part.raw and part.frame not in self.lists
        )
        if not any(tells(self.output, (row.text,)) for row in rows):
            return False
        return len(
            {value for number in before for value in self.like(self.talk[number].text)}
        ) <= max(LIMIT, 2 * self.needed)

    def _stating(self, text: str) -> list[Part]:
        """The clauses of a text that state values of the kind, and the rows that conclude a
        list."""
        clauses: list[Part] = []
        parts = parts_of(text)
        for part in parts:
            if (
                part.block < 0
                and part.bare <= self.needed
                # A clause with more values than that is a list in itself.
                and 0 < len(self.like(part.text)) <= max(CLAUSE, self.needed)
            ):
                clauses.append(part)
        clauses = self._without_runs(clauses)
        for block in sorted({part.block for part in parts if part.block >= 0}):
            clauses += self._concluding(
                [part for part in parts if part.block == block and not part.raw]
            )
        return clauses

    def _without_runs(self, parts: Sequence[Part]) -> list[Part]:
        """The clauses without those that are a list in sentences; what says a value of the list
        once more is none of it."""
        runs: list[list[Part]] = []
        word, seen, left = "", set[Any](), list[Part]()
        for part in parts:
            values, named = self.like(part.text), _BEFORE[self.kind].findall(part.text)
            # The same value once more, or a conclusion, belongs to no run.
            if not named or CONCLUDES.search(part.text) or values <= seen:
                left.append(part)
                continue
            # The word before the value names what is told, so another word begins another list.
            if named[-1] != word or not runs:
                runs.append([])
                word, seen = named[-1], set()
            runs[-1].append(part)
            seen |= values
        # Short runs are ordinary sentences.
        singles = {
            id(part) for run in runs if len(run) < max(RUN, self.needed + 1) for part in run
        } | set(map(id, left))
        return [part for part in parts if id(part) in singles]

    def _concluding(self, rows: Sequence[Part]) -> list[Part]:
        """The rows that stand out of a list: its total, those with a word for it, those in bold;
        none where too many do."""
        values = [self.like(row.text) for row in rows]
        everything = (
            sum((number for held in values for number in held), Decimal(0))
            if self.kind in (FRACTION, WHOLE)
            else Decimal(-1)
        )
        alone = [
            (row, next(iter(held)))
            for row, held in zip(rows, values, strict=True)
            if len(held) == 1
        ]
        # A row that is the sum of all others is the total, whatever it is called. Half of
        # everything, since it is counted too.
        totals = [
            replace(row, frame=TOTAL)
            for row, value in alone
            if len(rows) > 2 and self.kind != ID and 2 * value == everything
        ]
        named = [
            row
            for row, held in zip(rows, values, strict=True)
            if held and CONCLUDES.search(row.text)
        ]
        bold = [
            row for row, held in zip(rows, values, strict=True) if held and _BOLD.search(row.text)
        ]
        # The clearest sign that singles out few rows; where all are bold, none is.
        best = next(
            (
                few
                for few in (totals, named, bold)
                if 0 < len(few) <= self.needed + 1 and len(few) < len(rows)
            ),
            [],
        )
        # What stands behind the last `=` is what the sums come to.
        sums = [row.text for row in rows if "=" in row.text]
        return [*best, part_of(sums[-1].rpartition("=")[2])] if sums else best
