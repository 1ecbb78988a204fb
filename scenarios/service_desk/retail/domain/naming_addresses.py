"""How a text names an address: by labels, or as on a letter, with the usual short forms.

`address_part` gives a verdict on one part of it. Texts come folded, line by line.
"""

from __future__ import annotations

import re

from gem_ma.scenarios.service_desk.reading.phrases import (
    MISSING,
    RIGHT,
    WRONG,
    fold,
    labelled,
    names,
)

# Not behind `$` or `#` and not before `.5`: those five digits are an amount or an order.
ZIP = re.compile(r"(?<![\w#$.,*-])\d{5}(?:-\d{4})?(?![\w*-]|[.,]\d)")
# `remove Flat 2` takes a part away that it names. A digit in between is another address's.
_TAKEN = re.compile(
    r"\b(?:remov\w+|delet\w+|drop\w*|not|without|instead of|rather than)\b[^.;\n\d]{0,20}$"
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


def address_part(name: str, value: str, lines: str) -> str:
    """Whether a folded text names this part of an address; what stands behind `from` and before
    `to` is the old one."""
    # `from 1 Old Street 12345 to 2 New Street 54321`: only what stands behind `to` is proposed.
    # Both must hold a zip code, or `from Monday to Friday` would blank half of the text.
    moved = re.search(r"\bfrom\b[^\n]{0,120}?\d{5}[^\n]{0,40}?\bto\b(?=[^\n]{0,200}\d{5})", lines)
    lines = f"{lines[: moved.start()]} {lines[moved.end() :]}" if moved else lines
    # Two zip codes, and nothing says which one is new.
    if name == "zip" and value in lines and len({hit.group() for hit in ZIP.finditer(lines)}) > 1:
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
        return WRONG if ZIP.search(lines) else MISSING
    # Another address stands there, told by its zip code; without one the part is just not said.
    return WRONG if name in ("address1", "city") and ZIP.search(lines) else MISSING


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
