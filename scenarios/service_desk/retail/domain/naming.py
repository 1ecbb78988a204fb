"""How a text names the values of a shop: ids, reasons and payment methods, as mentions and as
verdicts on one value.

Pure functions of a text and a value; items are `naming_items`, addresses `naming_addresses`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter

from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.reading.phrases import (
    MISSING,
    RIGHT,
    WRONG,
    Mention,
    fold,
    names,
    plain,
)
from gem_ma.scenarios.service_desk.retail.domain.kinds import PAYMENT
from gem_ma.scenarios.service_desk.retail.domain.naming_addresses import ZIP

from gem_ma.kernel.parsing.text import EMAIL_ADDRESS

# `W12-3` is a model number and no order.
_ORDER = re.compile(r"(?<!\w)#?(W\d+)\b(?!-\d)", re.IGNORECASE)
# `cancel all my orders` names no order, whatever number stands beside it.
_ORDERS = re.compile(r"\b(?:all|every|each|both)\b(?: of)?(?: \w+){0,2} orders?\b", re.IGNORECASE)
# `your total without the gift card` is not paid by it. Looked for in the 40 characters before.
_WITHOUT = re.compile(r"\b(?:without|no)(?: \w+){0,3} (?:to )?$")
_DIGIT = re.compile(r"\d")
_METHOD_ID = re.compile(r"\b(?:credit_card|gift_card|paypal|debit_card)_\d+\b", re.IGNORECASE)
_EMAIL = re.compile(EMAIL_ADDRESS)
# `my zip code is` makes it the customer's own; behind a semicolon it is a part of a listed address.
_OWN_ZIP = re.compile(
    r"(?<!; )\b(?:zip|postal|post ?code|postcode)\b\W*(?:code|area)?\W*(?:is|in|of|was|as|should"
    r" be)?\W*$",
    re.IGNORECASE,
)
ITEM = re.compile(r"(?<![\w#])\d{10}(?!\w)")
_DIGITS = re.compile(
    # Possessive marks in `****1234`: with a plain `+` a long row of stars is tried from each of its
    # places.
    r"(?:ending(?: in| with)?:?|ends (?:in|with)|last (?:four|4)(?: digits)?(?:"
    r" (?:are|is|of))?:?|(?<!\*)\*{2,}+"
    r"|(?<!x)x{3,}+|(?<!•)•++|(?<!\.)\.{3,}+|…)[ -]*#?(\d{4})(?!\d)|\((?:\*+|\.+|x+)?(\d{4})\)",
    re.IGNORECASE,
)
# Capital letters tell a name from `I am looking for`.
_NAME = re.compile(
    r"(?:\b[Mm]y (?:full )?name is|\b[Mm]y name's|\b[Tt]his is|\bI"
    r" am|\bI'm|\b[Nn]ame:)\s+([A-Z][\w'-]+)\s+([A-Z][\w'-]+)"
)
_REASONS = {
    "no longer needed": re.compile(
        r"\bno longer (?:need|want|require)\w*|\b(?:do|did|does)(?:n't| not) (?:need|want)"
        r" (?:it|them|this"
        r"|the order|that)\b|\bnot needed\b|\bunneeded\b"
    ),
    "ordered by mistake": re.compile(
        r"\bby (?:mistake|accident)\b|\bmistaken\w*|\baccident\w*|\border(?:ed|ing)? (?:it |them"
        # `my mistake, it is order W1` corrects a word and gives no reason.
        r" |this )?(?:in error"
        r"|wrong)|(?<!my )(?<!\ba )\bmistake\b"
    ),
}
# A text without all of them gives no such reason
_REASON_WORDS = {  # a text without all of them gives no such reason
    "no longer needed": ("need", "want", "require"),
    "ordered by mistake": ("mistake", "accident", "error", "wrong"),
}
_OLD = re.compile(
    # What stands behind these words is the method that the order has, as in `instead of the card
    # ending in 1234`; `to` or `with` turns to the new one.
    r"(?:\bfrom|\binstead of|\brather than|\bcurrent\w*(?: payment)?(?: method)?(?:"
    r" is|:)?|\boriginal\w*(?: payment)?(?: method)?(?: is|:|,)?"
    r"|\bprevious\w*|\bold|\b(?:was|were|originally|currently) paid (?:with|by|using|for)|\baway"
    r" from|\breplac\w+|\bnot|\bwas on)\b"
    r"(?:(?!\b(?:to|with|using|use|for)\b)[^.;:\n,]){0,40}$"
)
_SOURCES = (
    ("paypal", re.compile(r"\bpay ?pal\b")),
    ("gift_card", re.compile(r"\bgift ?-?card\b")),
    (
        "credit_card",
        re.compile(r"\b(?:credit|debit)[ -]?card\b|\bvisa\b|\bmaster ?card\b|\bamex\b"),
    ),
)


@lru_cache(maxsize=512)
def mentions(text: str) -> tuple[Mention, ...]:
    """The values that stand in a text, in its order."""
    values: list[Mention] = []
    # Most messages hold no digit, and five patterns would be run over them for nothing.
    if _DIGIT.search(text):
        values += [
            Mention("order_id", f"#{hit[1].upper()}", *hit.span()) for hit in _ORDER.finditer(text)
        ]
        values += [
            Mention("payment_method_id", hit[0].lower(), *hit.span())
            for hit in _METHOD_ID.finditer(text)
        ]
        for hit in ZIP.finditer(text):  # the customer's own, or a part of some address
            own = _OWN_ZIP.search(text[max(0, hit.start() - 40) : hit.start()])
            values.append(
                Mention("zip" if own else "postcode", hit.group(), hit.start(), hit.end())
            )
        values += [
            Mention("item_id", hit.group(), hit.start(), hit.end()) for hit in ITEM.finditer(text)
        ]
        values += [
            Mention("last_four", hit.group(1) or hit.group(2), hit.start(), hit.end())
            for hit in _DIGITS.finditer(text)
        ]
    if "@" in text:
        # The full stop is that of the sentence; the pattern takes it since addresses hold points.
        values += [
            Mention("email", hit.group().rstrip("."), hit.start(), hit.end())
            for hit in _EMAIL.finditer(text)
        ]
    if name := _NAME.search(text):
        values += [
            Mention(slot, name.group(part), name.start(part), name.end(part))
            for part, slot in ((1, "first_name"), (2, "last_name"))
        ]
    folded = plain(text)
    for reason, pattern in _REASONS.items():
        # A plain search first: the patterns of reasons are long, and this runs on each message.
        if any(word in folded for word in _REASON_WORDS[reason]):
            values += [
                Mention("reason", reason, hit.start(), hit.end())
                for hit in pattern.finditer(folded)
            ]
    return tuple(sorted(values, key=itemgetter(2, 3, 0)))


def order_id(value: str, text: str) -> str:
    """Whether a text names this order and no other."""
    orders = {f"#{hit.group(1).upper()}" for hit in _ORDER.finditer(text)}
    if value.upper() in orders:
        # The order among others is not clear enough for a yes, and not wrong either.
        return RIGHT if len(orders) == 1 and not _ORDERS.search(text) else MISSING
    return WRONG if orders else MISSING


def reason(value: str, folded: str) -> str:
    """Whether a folded text gives this reason and no other."""
    reasons = {given for given, pattern in _REASONS.items() if pattern.search(folded)}
    # A reason that is not listed has no pattern of its own, so its words themselves must stand
    # there.
    if value not in _REASONS:
        return RIGHT if names(value, folded) else WRONG if reasons else MISSING
    if reasons == {value}:
        return RIGHT
    return MISSING if not reasons or value in reasons else WRONG


def method(wish: Wish, value: str, text: str) -> str:
    """Whether a text names this payment method, by id or in words, apart from one that it is to
    replace."""
    words, low = fold(str(wish.words.get("method", ""))), text.lower()
    digits = re.search(r"\d{4}$", words)
    # A card is known by its last four digits only where the customer's own words for it hold them.
    own_digits = digits.group() if digits and words != value.lower() else ""
    source, ambiguous = value.rsplit("_", 1)[0], words == value.lower()
    places: list[tuple[int, str]] = []
    exact: list[tuple[int, str]] = []  # where an id or digits stand, and of which kind
    for hit in _METHOD_ID.finditer(low):
        places.append((hit.start(), RIGHT if hit.group() == value.lower() else WRONG))
        exact.append((hit.start(), hit.group().rsplit("_", 1)[0]))
    # Digits mean a card of that number; a card without digits in the customer's words may be any.
    for hit in _DIGITS.finditer(low):
        unknown = source == "credit_card" and not own_digits  # the customer named no digits
        verdict = (
            RIGHT if (hit.group(1) or hit.group(2)) == own_digits else MISSING if unknown else WRONG
        )
        places.append((hit.start(), verdict))
        exact.append((hit.start(), "credit_card"))
    for name, pattern in _SOURCES:
        for hit in pattern.finditer(low):
            if any(
                # `my Visa ending in 1234`: the digits say more than the word before them.
                kind == name
                and 0 <= start - hit.start() < 60
                and "\n" not in low[hit.start() : start]
                for start, kind in exact
            ):
                continue  # its id or its digits follow and say more
            places.append(
                (
                    hit.start(),
                    WRONG if name != source else MISSING if ambiguous or own_digits else RIGHT,
                )
            )
    # To do without a method is the opposite of naming it.
    if any(_WITHOUT.search(low[max(0, start - 40) : start]) for start, _ in places):
        return WRONG
    # The method that is replaced is named on the way: `from PayPal to the gift card`.
    now = [verdict for start, verdict in places if not _OLD.search(low[max(0, start - 60) : start])]
    # A refund or a difference replaces nothing, so there `the original card` is the one that is
    # meant.
    if wish.kind != PAYMENT and not now:
        now = [verdict for _, verdict in places]
    if RIGHT in now:
        return MISSING if WRONG in now else RIGHT
    return WRONG if WRONG in now else MISSING
