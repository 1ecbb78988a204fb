"""What a retail customer's words say about money, a reason, an address, and an order without its
number.

Pure functions of a text and of records that the tools have shown. Nothing here knows a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.agents.retail_talk import METHOD
from gem_ma.scenarios.service_desk.retail.domain.kinds import ADDRESS

Record = Mapping[str, Any]

# Up to what follows the description; lazy, so that it takes no more than that.
ORDER_WITH = re.compile(
    r"\border (?:with|that (?:has|holds)|containing|of) (?:an?|the|some|my)"
    r" ([^:.;,?!]*?)(?=[:.;,?!]|\b(?:to|with my|for)\b|$)",
    re.IGNORECASE,
)


def order_described(text: str) -> str:
    """The words by which a text tells an order without its number, as in `the order with a kite and
    a lantern`; "" where it does not.

    >>> order_described("Please change the address of the order with a Kite and a Lantern to: ...")
    'Kite and a Lantern'
    """
    # The last one is the newest: texts of a form are joined in their order.
    orders = ORDER_WITH.findall(text)
    return orders[-1].strip() if orders else ""


def reason(text: str) -> str:
    """The reason to cancel that a text gives: one of the shop's two, other words as they are, or
    "".

    >>> reason("I bought it by accident"), reason("because I found it cheaper")
    ('ordered by mistake', 'I found it cheaper')
    """
    folded = text.casefold()
    # A mistake is often told with a need beside it: `by accident, I don't need two`.
    if re.search(
        r"\b(?:mistake\w*|accident\w*|wrong (?:item|order)|did(?:n't| not) mean)\b", folded
    ):
        return "ordered by mistake"
    if re.search(
        r"\bno longer (?:need|want)\w*|\b(?:do(?:n't| not)|did(?:n't| not)) need|\bnot"
        r" need\w*|\bdo(?:n't| not) want (?:it|them|this)\b",
        folded,
    ):
        return "no longer needed"
    # Other words as they are: the tool refuses them, and the policy says why.
    other = re.search(
        r"\b(?:because|since|reason(?: is| for it is)?:?)\s+([^.!?]+)", text, re.IGNORECASE
    )
    return other.group(1).strip() if other else ""


def method(text: str, methods: Record) -> str | None:
    """The payment method that a text names: its id; "" where it names one that the account does
    not have, None where it names none for sure."""
    ids, folded = METHOD.findall(text), text.casefold()
    if ids:
        return ids[-1] if ids[-1] in methods else ""
    # Possessive marks: a row of stars is walked once.
    digits = re.findall(
        r"(?:ending (?:in|with)|last four(?: digits)?(?: are)?|(?<!\*)\*++|(?<!x)x{2,}+)\s*(\d{4})",
        folded,
    )
    # "" for a card that the account does not have, which is a refusal and no question.
    if digits:
        return next(
            (key for key, entry in methods.items() if entry.get("last_four") == digits[-1]), ""
        )
    places = {
        source: max(folded.rfind(words) for words in names) for source, names in _SOURCES.items()
    }
    # The kind that is named last: `not PayPal but my gift card`.
    source = max(places, key=lambda name: places[name])
    if places[source] < 0:
        return None
    fits = [key for key, entry in methods.items() if entry["source"] == source]
    # A brand picks among several cards.
    branded = [key for key in fits if methods[key].get("brand", "\0").casefold() in folded]
    fits = branded or fits
    return fits[0] if len(fits) == 1 else None if fits else ""


_SOURCES = {
    "gift_card": ("gift card", "giftcard"),
    "paypal": ("paypal",),
    "credit_card": ("credit card", "my card", "visa", "mastercard"),
}


# a street with its number, and where what follows its comma begins; two may overlap
# A lookahead, so that two streets may overlap: `12, 34 Mill Bank`.
_HEAD = re.compile(r"(?<![\w#])(?=(\d{1,10}+[^,.;:\n]{0,80}+),\s{0,8}+())\d")
_TOWN = re.compile(r"\b([A-Z]{2}),?\s{1,8}(\d{5})\b")
_COUNTRY = re.compile(r",\s{0,8}([A-Z][\w .]{0,60}\w)")
_BETWEEN = 60  # characters at most between a street and its state


def address(text: str) -> dict[str, str]:
    """The parts of an address that a text gives, with labels or written as on a letter."""
    labelled = dict(
        re.findall(
            r"\b(address1|address2|city|state|country|zip): ?([^;]*)",
            # The last value has no semicolon behind it, but the sentence's own full stop.
            text.rstrip().removesuffix("."),
        )
    )
    if labelled:
        return {part: value.strip() for part, value in labelled.items()}
    written = _letter(text)
    if not written:
        return {}
    street, middle, state, postcode, country = written
    between = [part.strip() for part in middle.split(",") if part.strip()]
    if not between:
        return {}
    # What is long is not a country but the rest of the sentence.
    country = country if country and len(country) < 30 else "USA"
    return dict(
        zip(
            ADDRESS,
            (street.strip(), ", ".join(between[:-1]), between[-1], state, country, postcode),
            strict=True,
        )
    )


def _letter(text: str) -> tuple[str, str, str, str, str | None] | None:
    """Street, what follows it, state, postcode and country of the first address as on a letter.

    States with a postcode are looked for first: what may stand between a street and them is short.
    """
    towns = _TOWN.finditer(text)
    town = next(towns, None)
    for head in _HEAD.finditer(text) if town else ():
        start = head.start(2)
        while town and town.start() < start:
            town = next(towns, None)
        if town is None:
            return None
        middle = text[start : town.start()] if town.start() - start <= _BETWEEN else "\n"
        if "\n" not in middle:
            country = _COUNTRY.match(text, town.end())
            return head[1], middle, town[1], town[2], country[1] if country else None
    return None
