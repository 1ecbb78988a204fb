"""How a text names the values of a shop: ids, reasons, payment methods and addresses, as mentions
and as verdicts on one value.

Pure functions of a text and a value; items are `naming_items`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter

from gem_ma.scenarios.service.desk.task import Wish
from gem_ma.scenarios.service.reading.phrases import (
    MISSING,
    RIGHT,
    WRONG,
    Mention,
    fold,
    labelled,
    names,
    plain,
)

from gem_ma.parsing.text import EMAIL_ADDRESS

PAYMENT = "modify_pending_order_payment"
# `W12-3` is a model number and no order.
_ORDER = re.compile(r"(?<!\w)#?(W\d+)\b(?!-\d)", re.IGNORECASE)
# `cancel all my orders` names no order, whatever number stands beside it.
_ORDERS = re.compile(r"\b(?:all|every|each|both)\b(?: of)?(?: \w+){0,2} orders?\b", re.IGNORECASE)
# `your total without the gift card` is not paid by it. Looked for in the 40 characters before.
_WITHOUT = re.compile(r"\b(?:without|no)(?: \w+){0,3} (?:to )?$")
# `remove Flat 2` takes a part away that it names. A digit in between is another address's.
_TAKEN = re.compile(
    r"\b(?:remov\w+|delet\w+|drop\w*|not|without|instead of|rather than)\b[^.;\n\d]{0,20}$"
)
_DIGIT = re.compile(r"\d")
_METHOD_ID = re.compile(r"\b(?:credit_card|gift_card|paypal|debit_card)_\d+\b", re.IGNORECASE)
_EMAIL = re.compile(EMAIL_ADDRESS)
# Not behind `$` or `#` and not before `.5`: those five digits are an amount or an order.
_ZIP = re.compile(r"(?<![\w#$.,*-])\d{5}(?:-\d{4})?(?![\w*-]|[.,]\d)")
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
# A second line of an address, which the first one may not have.
_EXTRA = re.compile(
    r"\b(?:apt|apartment|suite|ste|unit|flat|floor|house|studio|room|building|bldg)\b\.? ?#?[\w-]+"
)
# fmt: off
_STATES = {
    "al": "alabama", "ak": "alaska", "az": "arizona", "ar": "arkansas", "ca": "california",
    "co": "colorado", "ct": "connecticut", "de": "delaware", "fl": "florida", "ga": "georgia",
    "hi": "hawaii", "id": "idaho", "il": "illinois", "in": "indiana", "ia": "iowa",
    "ks": "kansas", "ky": "kentucky", "la": "louisiana", "me": "maine", "md": "maryland",
    "ma": "massachusetts", "mi": "michigan", "mn": "minnesota", "ms": "mississippi",
    "mo": "missouri", "mt": "montana", "ne": "nebraska", "nv": "nevada", "nh": "new hampshire",
    "nj": "new jersey", "nm": "new mexico", "ny": "new york", "nc": "north carolina",
    "nd": "north dakota", "oh": "ohio", "ok": "oklahoma", "or": "oregon", "pa": "pennsylvania",
    "ri": "rhode island", "sc": "south carolina", "sd": "south dakota", "tn": "tennessee",
    "tx": "texas", "ut": "utah", "vt": "vermont", "va": "virginia", "wa": "washington",
    "wv": "west virginia", "wi": "wisconsin", "wy": "wyoming", "dc": "district of columbia",
}
# fmt: on
# Either spelling is right: models abbreviate what the task spells out, and the other way round.
_ABBREVIATED = {
    "street": "st",
    "avenue": "ave",
    "road": "rd",
    "drive": "dr",
    "lane": "ln",
    "court": "ct",
    "boulevard": "blvd",
    "place": "pl",
    "close": "cl",
    "square": "sq",
    "highway": "hwy",
    "parkway": "pkwy",
    "terrace": "ter",
    "suite": "ste",
    "apartment": "apt",
    "building": "bldg",
    "floor": "fl",
}  # fmt: skip
_COUNTRIES = {
    "usa": ("usa", "us", "u.s.", "u.s.a.", "united states", "united states of america", "america")
}


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
        for hit in _ZIP.finditer(text):  # the customer's own, or a part of some address
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
    # A reason that is no listed one has no pattern of its own, so its words themselves must stand
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


def address_part(name: str, value: str, lines: str) -> str:
    """Whether a folded text names this part of an address; what stands behind `from` and before
    `to` is the old one."""
    # `from 1 Old Street 12345 to 2 New Street 54321`: only what stands behind `to` is proposed.
    # Both must hold a zip code, or `from Monday to Friday` would blank half of the text.
    moved = re.search(r"\bfrom\b[^\n]{0,120}?\d{5}[^\n]{0,40}?\bto\b(?=[^\n]{0,200}\d{5})", lines)
    lines = f"{lines[: moved.start()]} {lines[moved.end() :]}" if moved else lines
    # Two zip codes, and nothing says which one is new.
    if name == "zip" and value in lines and len({hit.group() for hit in _ZIP.finditer(lines)}) > 1:
        return MISSING
    if value and _TAKEN.search(lines[: max(0, lines.find(fold(value)))]):
        return WRONG
    if not value.strip():
        # The customer's new address has no second line; one in the text is somebody's mistake.
        street = _EXTRA.search(lines)
        labels = [
            other
            for other in labelled(name, lines)
            # How models write an empty field
            if other not in ("none", "n/a", "-", "empty", "(none)", '""', "''")
        ]
        return (
            WRONG
            if labels or (street and name == "address2" and "\n" not in street.group())
            else RIGHT
        )
    labels = labelled(name, lines)
    # A label decides: `address2: Flat 2` is clear wherever else the words stand.
    if labels:
        return RIGHT if any(_same(name, value, other) for other in labels) else WRONG
    flat = _street(lines)
    for form in map(_street, _forms(name, value)):
        # Two letters are often words of their own, so a state's code must stand as one.
        if names(form, flat) and (name != "state" or len(form) > 2 or _as_state(form, flat)):
            return RIGHT
    if name == "address2" and _EXTRA.search(lines):
        return WRONG
    if name == "zip":
        return WRONG if _ZIP.search(lines) else MISSING
    # Another address stands there, told by its zip code; without one the part is just not said.
    return WRONG if name in ("address1", "city") and _ZIP.search(lines) else MISSING


def _as_state(letters: str, flat: str) -> bool:
    """Whether two letters stand as a state does, before what follows it in an address: `me` and
    `or` are words as well."""
    return (
        re.search(
            rf"(?<!\w){letters}[\s,;.]*(?:\d{{5}}|\bzip|\busa?\b|\bu\.s|\bunited|\n|$)|\bstate(?:"
            rf" is| of|=|:)? {letters}\b",
            flat,
        )
        is not None
    )


def _same(name: str, value: str, other: str) -> bool:
    return any(_street(form) == _street(other) for form in _forms(name, value))


# The code and the name of a state are both right, as are the names of a country.
def _forms(name: str, value: str) -> tuple[str, ...]:
    folded = fold(value)
    if name == "state":
        return tuple(form for pair in _STATES.items() if folded in pair for form in pair) or (
            folded,
        )
    return _COUNTRIES.get(folded, (folded,)) if name == "country" else (folded,)


def _street(text: str) -> str:
    """A folded text with short forms for the usual words of an address, and without full stops
    behind them."""
    # `st.` and `street` become one; the point goes only where it ends a short form, not a sentence.
    return re.sub(
        r"[a-z]+\.?(?!\w)",
        lambda hit: _ABBREVIATED.get(
            hit.group().rstrip("."),
            hit.group() if hit.group()[:-1] not in _ABBREVIATED.values() else hit.group()[:-1],
        ),
        text,
    )
