"""A customer's situation in words: the kinds of fields that its sentences have, each written and
read back. The sentences themselves are `situation_sentences`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gem_ma.scenarios.service_desk.reading.sentences import Bank, Kind
from gem_ma.scenarios.service_desk.retail.shop.situation_sentences import LINKS, SENTENCES
from gem_ma.scenarios.service_desk.retail.shop.words import (
    COUNTRY,
    EXCUSES,
    EXTRAS,
    FRIENDS,
    MATTERS,
)
from gem_ma.scenarios.service_desk.retail.store.tasks import Item
from gem_ma.scenarios.service_desk.retail.store.tools import REASONS

# -- kinds of fields ------------------------------------------------------------------------------

_TIES = {
    "cheapest": ", the cheapest such one",
    "dearest": ", the dearest such one",
    "any": ", whichever is at hand",
}
_KEEP, _LIKED, _NEXT, _FOR = (
    ", otherwise as close to the old one as possible",
    ", if there is a choice ",
    " and then ",
    ", wanted instead: ",
)
_ITEM = re.compile(r"([^()]+) \(([^()]*)\)(?:, wanted instead: (.+))?")
_PLACE = re.compile(
    rf"([^,]+)(?:, ({'|'.join(extra for extra in EXTRAS if extra)}))?, ([^,]+), ([A-Z]{{2}})"
    rf" (\d{{5}}), {COUNTRY}"
)
_NAME = r"[A-Z]\w*(?: [A-Z]\w*)*"


def _write_options(
    options: Mapping[str, str] | Sequence[tuple[str, str]], between: str = ", "
) -> str:
    return between.join(f"{name}: {value}" for name, value in dict(options).items())


def _read_options(text: str, between: str = ", ") -> dict[str, str]:
    return dict(part.split(": ", 1) for part in text.split(between))


def write_item(item: Item) -> str:
    """An item, and what is wanted in its place.

    >>> box = {"shape": "box", "line": "30 m"}
    >>> write_item(Item("Kite", box, {"shape": "delta"}, (("line", "60 m"),), "cheapest"))
    'Kite (shape: box, line: 30 m), wanted instead: shape: delta, if there is a choice line: 60
    m, the cheapest such one'
    """
    text = f"{item.name} ({_write_options(item.options)})"
    if item.wanted is None:
        return text
    liked = f"{_LIKED}{_write_options(item.prefers, _NEXT)}" if item.prefers else ""
    tie = _TIES.get(item.tie, "" if item.wanted.keys() == item.options.keys() else _KEEP)
    return f"{text}{_FOR}{_write_options(item.wanted)}{liked}{tie}"


def read_item(text: str) -> Item:
    """The item of a text; one that makes no sense has no options."""
    match = _ITEM.fullmatch(text)
    if match is None:
        return Item(text, {})
    name, options, wanted = match.groups()
    if wanted is None:
        return Item(name, _read_options(options))
    rule = next((tie for tie, words in _TIES.items() if wanted.endswith(words)), "keep")
    wanted = wanted.removesuffix(_TIES.get(rule, _KEEP))
    required, _, liked = wanted.partition(_LIKED)
    prefers = tuple(_read_options(liked, _NEXT).items()) if liked else ()
    return Item(name, _read_options(options), _read_options(required), prefers, rule)


def _write_place(place: Mapping[str, str]) -> str:
    parts = [
        place["address1"],
        place["address2"],
        place["city"],
        f"{place['state']} {place['zip']}",
        place["country"],
    ]
    return ", ".join(part for part in parts if part)


def _read_place(text: str) -> dict[str, str]:
    match = _PLACE.fullmatch(text)
    if match is None:
        return {"address1": text}
    address1, address2, city, state, postcode = match.groups()
    return {
        "address1": address1,
        "address2": address2 or "",
        "city": city,
        "country": COUNTRY,
        "state": state,
        "zip": postcode,
    }


def to_you(text: str) -> str:
    """What is mine as yours.

    >>> to_you("my gift card"), to_you("a friend of mine")
    ('your gift card', 'a friend of yours')
    """
    return re.sub(r"\bmine\b", "yours", re.sub(r"\bmy\b", "your", text))


def to_me(text: str) -> str:
    """What is yours as mine; undoes `to_you`."""
    return re.sub(r"\byours\b", "mine", re.sub(r"\byour\b", "my", text))


def _any_of(texts: Sequence[str]) -> str:
    return "|".join(re.escape(text) for text in texts)


KINDS = {
    "name": Kind(r"[A-Z][\w'-]* [A-Z][\w'-]*"),
    "email": Kind(r"[\w.+-]+@[\w.-]+\w"),
    "zip": Kind(r"\d{5}"),
    "order": Kind(rf"order #W\d+|the order with an? {_NAME}(?: and an? {_NAME})*"),
    "reason": Kind(_any_of((*REASONS, *EXCUSES))),
    "method": Kind(
        r"your gift card|your PayPal account|your credit card ending in \d{4}", to_you, to_me
    ),
    "friend": Kind(_any_of([to_you(friend) for friend in FRIENDS]), to_you, to_me),
    "product": Kind(_NAME),
    "matter": Kind(_any_of(MATTERS)),
    "address": Kind(r".+", _write_place, _read_place),
    "items": Kind(
        r"[^.]*(?:\.\d[^.]*)*",
        lambda items: "; ".join(write_item(item) for item in items),
        lambda text: tuple(read_item(part) for part in text.split("; ")),
    ),
}
BANK = Bank(SENTENCES, KINDS, LINKS)
