"""Which values a talk states as answers, and which it only shows beside them: lists, tables and
sums are the basis of an answer.

An answer *stands* in a sentence, or in a row of a list that concludes it (its total, a row in
bold); in another row only where nothing else states a value. Of several values that a message
states the last one is its answer, one a wanted fact: what it denies or leaves open is none, what
it works the answer out from is none either, and what it calls something else (a refund beside a
total) is another fact. Whoever states many values states none: sentences of one pattern with ever
new values are a list as well, and what is stated until the answer is counted over the whole talk.
A message next to a write is about that write, and its values are not rivals of later ones.

All is a function of the texts, linear in their length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

from gem_ma.scenarios.service_desk.reading.denials import asserted
from gem_ma.scenarios.service_desk.reading.parts import CONCLUDES, Part, part_of, parts_of
from gem_ma.scenarios.service_desk.reading.phrases import plain
from gem_ma.scenarios.service_desk.reading.values import (
    FRACTION,
    ID,
    PHRASE,
    WHOLE,
    amounts,
    in_order,
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
CLAUSE = 3  # values of a kind in one clause that is not a list; or as many as are asked for
# whole numbers beyond that are not guesses at another one: years and house numbers at a count,
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
BASIS = 40  # values that an answer may be worked out from
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
    together are not a list that hides one of them; `since`: the first text behind the question,
    from which on what is answered first counts."""

    output: str
    talk: Sequence[Saying]
    needed: int = 1
    others: int = 0
    wanted: Sequence[str] = ()
    since: int | None = None
    kind: str = ""
    counts: bool = False  # a whole number that no text tells as an amount
    texts: list[str] = field(default_factory=list)  # without what they deny
    # of each text, the parts that state values
    stated: list[list[Part]] = field(default_factory=list)
    # patterns that are said of ever new numbers
    lists: set[frozenset[str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kind = kind_of(self.output)
        phrase = self.output if self.kind == PHRASE else ""
        self.texts = [asserted(text, phrase) for text, _ in self.talk]
        if phrase:
            return
        told_as_amount = any(tells(self.output, (amounts(text),)) for text in self.texts)
        self.counts = self.kind == WHOLE and not told_as_amount
        frames: dict[frozenset[str], set[str]] = {}
        for text, (_, about_write) in zip(self.texts, self.talk, strict=True):
            # A message next to a write holds its values, and those are not rivals.
            for part in () if about_write else parts_of(text):
                if (
                    not part.raw
                    and numbers(part.text)
                    # What states a wanted value is not a pattern that could hide it.
                    and not any(tells(one, (part.text,)) for one in (self.output, *self.wanted))
                ):
                    frames.setdefault(part.frame, set()).add(part.text.strip())
        # Said of more numbers than are asked for, a pattern is a list in sentences.
        self.lists = {frame for frame, texts in frames.items() if len(texts) > max(1, self.needed)}
        self.stated = [
            [part for part in self._stating(text) if part.frame not in self.lists]
            for text in self.texts
        ]

    def like(self, text: str) -> set[Any]:
        """The values of a text that could be guesses at the output."""
        values = like(self.output, text)
        if self.kind != WHOLE:
            return values
        size = Decimal(self.output.strip().lstrip("$").replace(",", ""))
        prices = numbers(amounts(text)) if self.counts else frozenset()
        return {
            number
            # A rival is of the same size: nobody takes a year for a count.
            for number in values - prices
            if size <= TENFOLD * number and number <= max(SMALL, TENFOLD * size)
        }

    def stands(self, place: int) -> bool:
        """Whether the text at this place tells the output as an answer."""
        text = self.texts[place]
        if not tells(self.output, (text,)):
            return False
        if self.kind == PHRASE:
            return True
        # Twice what is asked for, since an answer may name what it compares.
        most = max(LIMIT, 2 * self.needed)
        since = place if self.since is None else self.since
        if any(self._answers_wrongly(number) for number in range(since, place)):
            return False
        before = [
            number
            for number in range(place + 1)
            if number == place or not self.talk[number].about_write
        ]
        # What is stated until here, over the whole talk: spreading a list over messages does not
        # help.
        if stated := self.stated[place]:
            values = {
                value
                for number in before
                for part in self.stated[number]
                for value in self.like(part.text)
            }
            # A row that concludes a list beside an answer in a sentence is what that one rests on.
            clauses = [part for part in stated if part.block < 0]
            if any(tells(self.output, (part.text,)) for part in clauses):
                stated = clauses
            return len(values) <= most + EACH * self.others and self._is_last(place, stated)
        # Else the answer stands in a row; then all values of the kind count, stated or shown.
        rows = [
            part
            for part in parts_of(text)
            if part.block >= 0 and not part.raw and part.frame not in self.lists
        ]
        shown = {value for number in before for value in self.like(self.texts[number])}
        return len(shown) <= most and self._is_last(place, rows)

    def _answers_wrongly(self, place: int) -> bool:
        """Whether the text at this place states values, and no wanted one as its last."""
        # A text about a record by its number answers no question for a count.
        about_record = self.kind == WHOLE and _RECORD.search(self.texts[place]) is not None
        if self.talk[place].about_write or about_record:
            return False
        parts = [part for part in self.stated[place] if part.block < 0]
        parts = parts or [part for part in parts_of(self.texts[place]) if _BARE.match(part.text)]
        # `Kite ($5.00), Lantern ($6.00)` names things, with what they cost.
        parts = [
            replace(part, text=_BRACKETS.sub(" ", part.text))
            for part in parts
            if not self._priced(part)
        ]
        labels = self._values_of(parts)
        right = {in_order(self.output, one)[0][0] for one in self._alike}
        return bool(labels) and list(labels)[-1] not in right

    def _priced(self, part: Part) -> bool:
        """Whether a part holds a price where a count is wanted: beside it stand sizes."""
        return self.counts and bool(amounts(part.text))

    @property
    def _alike(self) -> list[str]:
        """The wanted outputs of the kind."""
        return [one for one in (self.output, *self.wanted) if kind_of(one) == self.kind]

    def _is_last(self, place: int, parts: Sequence[Part]) -> bool:
        """Whether the output is among the last values of parts, as many as are wanted and told."""
        wanted = in_order(self.output, self.output)[0][0]
        labels = self._values_of(parts)
        if wanted not in labels:
            return False
        values = list(labels)
        later = [
            value
            for value in values[values.index(wanted) + 1 :]
            # What is called something else is another fact.
            if not labels[value] or not labels[wanted] or labels[value] == labels[wanted]
        ]
        room = sum(tells(one, (self.texts[place],)) for one in set(self._alike))
        # A message next to a write tells what the write comes to as well.
        room += self.talk[place].about_write
        if len(later) < room or not self.stated[place]:
            return len(later) < room
        shown = self.like(self.texts[place])
        # $100.00 does not rival 54.04, and may be what it comes from.
        shown |= numbers(amounts(self.texts[place])) if self.kind == FRACTION else frozenset()
        return _comes_to(wanted, shown) and not _OTHERWISE.search(self.texts[place])

    def _values_of(self, parts: Sequence[Part]) -> dict[Any, str]:
        """The values of parts, each where it stands last, with what they are called."""
        wanted = in_order(self.output, self.output)[0][0]
        labels: dict[Any, str] = {}
        for part in parts:
            rivals = self.like(part.text) | {wanted}
            if self._priced(part):
                rivals = {wanted}
            for value, start in in_order(self.output, part.text):
                # `10 out of 12` says 10.
                if value in rivals and not (value != wanted and _OF.search(part.text, 0, start)):
                    # Said once more, it stands where it was said last.
                    labels.pop(value, None)
                    labels[value] = _label_at(part.text, start)
        return labels

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
        stated = self._without_runs(clauses)
        for block in sorted({part.block for part in parts if part.block >= 0}):
            rows = [part for part in parts if part.block == block and not part.raw]
            stated += self._concluding(rows)
        places = {id(part): place for place, part in enumerate(parts)}
        return sorted(stated, key=lambda part: places.get(id(part), len(parts)))

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
        # A last row that is the sum of all others is the total, whatever it is called: one before
        # it may be the price that the others part. Half of everything, since it is counted too.
        totals = [
            replace(row, frame=TOTAL)
            for row, value in alone
            if (row is rows[-1] or CONCLUDES.search(row.text))
            and len(rows) > 2
            and self.kind != ID
            and 2 * value == everything
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
        return [*best, part_of(sums[-1].rpartition("=")[2], rows[-1].block)] if sums else best


_OTHER_FACTS = re.compile(
    r"\b(?:(total|sum|altogether)|(refund|price|cost|balance|difference|shipping|delivery|fee|tax"
    r"|discount|deposit))(?:s|ed|ing)?\b"
)


_BARE = re.compile(r"\s{0,9}[-*•]?\W{0,5}\d[\d.,]*(?:\s[^=+|]*)?$")  # a row that begins with it
_BRACKETS = re.compile(r"\([^()]{0,400}\)")
_RECORD = re.compile(r"#\w*\d|_\d|\d{5}")
_OF = re.compile(r"\bof (?:the |all |our )?$", re.IGNORECASE)
_OTHERWISE = re.compile(
    r"\b(?:or|rather|otherwise|alternatively|instead|correction|wait|sorry|guess|either)\b",
    re.IGNORECASE,
)


def _label_at(text: str, start: int) -> str:
    """What a text calls the value at a place: the last such word before it, else the first behind
    it; "" where there is none."""
    folded = plain(text)
    before = list(_OTHER_FACTS.finditer(folded, 0, start))
    found = before[-1] if before else _OTHER_FACTS.search(folded, start)
    return (found[2] or "total") if found else ""


def _comes_to(wanted: Any, values: set[Any]) -> bool:
    """Whether a value is the sum of all others that a text shows, or the sum or difference of two:
    then they are what it rests on."""
    others = values - {wanted}
    if not 1 < len(others) <= BASIS or not isinstance(wanted, Decimal):
        return False
    return wanted == sum(others) or any(
        other != one and (wanted - one == other or one - wanted == other)
        for one in others
        for other in others
    )
