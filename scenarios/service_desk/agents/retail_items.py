"""Which items of an order a retail customer means, and which option values a text names.

Pure functions of a text and of records that the tools have shown. Nothing here knows a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.scenarios.service_desk.agents.retail_details import ORDER_WITH

Record = Mapping[str, Any]
Mark = tuple[int, int, str]  # where a text names a product: from, to, which
# Words behind which the new item is described.
_INTO = re.compile(r"\b(?:for|to|into|with|by|instead|but|rather)\b|->|=>|→")
_EVERY = re.compile(r"\b(?:all|every(?:thing)?|whole|entire|both)\b")
_ARTICLE = re.compile(r"\W*(?:an?|another|some)\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Named:
    """An item of an order that a text means, and what the text says after it, up to the next
    one."""

    item: Record
    about: str
    into: str  # the part that says what is wanted instead, "" where there is none


def items(text: str, order: Record) -> tuple[list[Named], str]:
    """The items of an order that a text means, in the order of the text; and "" or what is
    unclear."""
    # The words of an order are names of items that nobody wants anything for.
    text = ORDER_WITH.sub("order", text)
    folded = text.casefold()
    held: Sequence[Record] = order["items"]
    # `all of it`, unless items are named as well: then those are meant.
    if _EVERY.search(folded) and not any(mentions(item["name"], folded) for item in held):
        return [Named(item, text, "") for item in held], ""
    marks = _marks(text, held)
    meant: list[Named] = []
    used: set[int] = set()
    for number, (start, end, name) in enumerate(marks):
        stop = marks[number + 1][0] if number + 1 < len(marks) else len(text)
        about = text[end:stop]
        old, into = split(about)
        last = meant[-1] if meant else None
        if last is not None and _ARTICLE.fullmatch(last.into):
            # "the kite for a lantern": the lantern is what is wanted instead, its article with it
            meant[-1] = Named(last.item, last.about + text[start:stop], text[start - 2 : stop])
            continue
        same = [
            place for place, item in enumerate(held) if item["name"] == name and place not in used
        ]
        # An item that is not in the order, or is used up.
        if not same:
            if last is not None and last.item["name"] == name and not last.into:
                # "exchange the kite for a kite with ..."
                meant[-1] = Named(last.item, last.about + about, into or about)
            continue
        # Up to the name: `the red kite` says its option first.
        before = _before(folded, marks[number - 1][1] if number else 0, start)
        chosen = _fitting(held, same, text[start:stop], f"{before} {old}")
        if len({held[place]["item_id"] for place in chosen}) > 1:
            if any(name == later for _, _, later in marks[number + 1 :]):
                # The items themselves follow, each with its own options.
                continue  # "both kites: the red kite and ..."
            choice = " / ".join(_listed(held[place]) for place in chosen)
            return meant, f"Which {name} do you mean? Please name its options: {choice}."
        # The first of equal ones: two of the same item are one or the other.
        used.add(chosen[0])
        meant.append(Named(held[chosen[0]], about, into))
    return meant, ""


def _marks(text: str, held: Sequence[Record]) -> list[Mark]:
    """Where a text names one of the products, or one of the items by its id; in its order."""
    folded = text.casefold()
    names = dict.fromkeys(item["name"] for item in held)
    marks = [mark for name in names for mark in mentions(name, folded)]
    for item in held:
        start = where(item["item_id"], text)
        # Ids are looked for as words: an id may be a part of a longer number.
        if start >= 0:
            marks.append((start, start + len(item["item_id"]), item["name"]))
    return sorted(marks)


def _fitting(held: Sequence[Record], places: Sequence[int], named: str, words: str) -> list[int]:
    """Of items of one product those that a text means: by their id, else by most of their
    options."""
    exact = [place for place in places if held[place]["item_id"] in named]
    # By id there is nothing to weigh.
    if exact:
        return exact
    scores = {place: _score(held[place], words) for place in places}
    return [place for place in places if scores[place] == max(scores.values())]


def where(word: str, text: str, start: int = 0) -> int:
    """Where a text holds a word that is not part of a longer word or number, from `start` on; -1
    where it does not. Both are in one case.

    >>> where("1", "1.5 or 10 or 1."), where("steel", "carbon-steels"), where("", "x")
    (13, -1, -1)
    """
    place = text.find(word, start) if word else -1
    while place >= 0:
        end = place + len(word)
        before, after = text[max(0, place - 2) : place], text[end : end + 2]
        joined = (
            _in_word(before[-1:])
            or _in_word(after[:1])
            or (before[-1:] == "." and before[:1].isdigit())
            or (after[:1] == "." and after[1:].isdigit())
        )
        if not joined:
            return place
        place = text.find(word, place + 1)
    return -1


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def split(about: str) -> tuple[str, str]:
    """What a text says of the old item, and of the new one."""
    # Blanked at the same length: brackets hold options, and an option may hold `with`.
    outside = re.sub(r"\([^()]*\)", lambda inner: "\0" * len(inner.group()), about)
    turn = _INTO.search(outside)
    return (about[: turn.start()], about[turn.end() :]) if turn else (about, "")


def named_values(options: Mapping[str, Sequence[str]], text: str) -> dict[str, list[str]]:
    """The values of each option that a text names, longest first: `carbon steel` is not also
    `steel`."""
    folded = text.casefold()
    named: dict[str, list[str]] = {}
    for name, values in options.items():
        rest = folded
        for value in sorted(values, key=len, reverse=True):
            word, place = value.casefold(), where(value.casefold(), rest)
            if place >= 0:
                named.setdefault(name, []).append(value)
            while place >= 0:  # taken out, so that no shorter value is read in it
                rest = f"{rest[:place]} {rest[place + len(word) :]}"
                place = where(word, rest)
    return named


def _before(folded: str, start: int, end: int) -> str:
    """The words that stand before a name and belong to it: those after the last comma, `and` or
    full stop."""
    return re.split(r",|\band\b|[.;:!?+]", folded[start:end])[-1]


def _score(item: Record, text: str) -> int:
    folded = text.casefold()
    return sum(where(str(value).casefold(), folded) >= 0 for value in item["options"].values())


def mentions(name: str, folded: str) -> list[Mark]:
    """Where a text names a product, one or several of it: (start, end, name)."""
    marks = []
    # Plurals too, and all of them: places are sorted in the end.
    for word in (name.casefold(), f"{name.casefold()}s", f"{name.casefold()}es"):
        start = where(word, folded)
        while start >= 0:
            end = start + len(word)
            marks.append((start, end, name))
            start = where(word, folded, end)
    return sorted(marks)


def _listed(item: Record) -> str:
    return ", ".join(f"{name} {value}" for name, value in item["options"].items())
