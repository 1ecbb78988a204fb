"""What a retail customer's words mean, as far as patterns can tell: requests, and what they say
about an order, items, money and addresses.

Pure functions of a text and of records that the tools have shown. Nothing here knows a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.agents.retail_talk import ADDRESS, METHOD, ORDER

Record = Mapping[str, Any]
NAME = re.compile(
    r"(?:[Mm]y (?:full )?name is|[Mm]y name's|I am|I'm|[Tt]his"
    r" is|[Nn]ame:)\s+(?:called\s+)?([A-Z][\w'-]*)\s+([A-Z][\w'-]*)"
)
POSTCODE = re.compile(r"(?<![\w#])\d{5}(?!\w)")
# requests of one message that are taken up; nobody wants more at once, and each is held against all
# others
MOST = 32
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_MAIL = re.compile(r"\be-?mail(?: address)?\b|(?<![^\s:,;(<])\S{1,64}@\S+")
_CUE = re.compile(  # the beginnings of all words by which a kind is told: most sentences hold none
    r"how |what|which|where|when|there|tracking number|balance|tell me|let me know|to"
    r" know|wondering"
    r"|find out|check|address|deliver|ship|send|pay|paid|charge|cancel|call off|return|get rid"
    r" of|give"
    r"|bring|take|exchang|swap|replac|switch|upgrad|trade|chang|modif|alter"
)


@dataclass(frozen=True, slots=True)
class _Cue:
    """Words that tell a kind: `first`, or words of one of the `rows` in one line, in that order."""

    first: re.Pattern[str] | None
    rows: tuple[tuple[re.Pattern[str], ...], ...] = ()

    def stands_in(self, folded: str) -> bool:
        """Whether a folded text holds them."""
        if self.first is not None and self.first.search(folded):
            return True
        return bool(self.rows) and any(in_line(row, folded) for row in self.rows)


def in_line(row: tuple[re.Pattern[str], ...], text: str) -> bool:
    """Whether a line of a text holds the first words, behind them the second, and so on.

    >>> send, back = re.compile("send"), re.compile("back")
    >>> in_line((send, back), "send it back"), in_line((send, back), "back, send")
    (True, False)
    """
    hit = row[0].search(text)
    while hit is not None:
        at, end = hit.end(), text.find("\n", hit.end())
        end = len(text) if end < 0 else end
        for other in row[1:]:
            behind = other.search(text, at, end)
            if behind is None:
                break
            at = behind.end()
        else:
            return True
        hit = row[0].search(text, end)
    return False


def _row(*parts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, parts))


_ASK_START = re.compile(
    r"\W*(?:(?:and|also|then|so|first|next|oh|hi|hello|one more thing|another thing)\W+)*"
    r"(?:how (?:much|many)|what|which|where|when|is there|are there)\b"
)
_ASKS = _Cue(
    re.compile(r"\b(?:tracking number|balance)\b"),
    (
        _row(
            r"\b(?:tell me|let me know|(?:want|like|need) to know|wondering|find out|check)\b",
            r"\b(?:how|what|which|where|whether|if|tracking|balance|price|total)\b",
        ),
    ),
)
_CAN_I = _row(r"\b(?:cancel|return|exchange|swap)\b", r"\bcan (?:i|you)\b")
_PAY, _DIFFERENCE = re.compile(r"\bpay(?:ing|ment)?\b"), re.compile(r"\bdifference\b")
_SENT = _row(r"\b(?:deliver|ship|send)\w*\b", r"\bto\b", r"\binstead\b")
_PAID = _row(r"\bpaid\b", r"\b(?:with|by|using)\b")
_BACK = _row(r"\b(?:send|give|bring|take)\w*\b", r"\bback\b")
_SWAP = re.compile(r"\b(?:(?:exchang|swap|replac|switch|upgrad|chang|modif|alter)\w*|trade)\b")
_VERBS = (  # the first that fits is meant
    ("address", _Cue(re.compile(r"address1:|\baddress\b"), (_SENT,))),
    ("payment", _Cue(None, (_PAID, _row(r"\bcharge\b", r"\binstead\b")))),
    ("cancel", _Cue(re.compile(r"\bcancel\w*\b|\bcall off\b"))),
    ("return", _Cue(re.compile(r"\breturn(?:ed|ing)?\b|\bget rid of\b"), (_BACK,))),
    ("swap", _Cue(_SWAP)),
)
_GOES_ON = re.compile(  # a sentence that tells more of the request before it
    r"^\W*(?:please )?(?:(?:use|put|charge|refund|take)\b|(?:the|my|a|any)"
    r" (?:reason|refund|difference|money|price)\b|for the difference"
    r"|it (?:is|was|should)\b|because\b|since\b|if (?:not|that|it|there)\b|as for\b|everything"
    r" else\b|the rest\b)"
)
_HUMAN = re.compile(
    r"\b(?:human|real person|supervisor|manager|representative|somebody else|someone else)\b"
)
_TURN = re.compile(
    r"\b(?:actually|changed my mind|on second thou?ghts?|rather|forget (?:that|it)|scratch"
    r" that|instead of that|not that)\b"
)
_INTO = re.compile(r"\b(?:for|to|into|with|by|instead|but|rather)\b|->|=>|→")


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that a message asks for. `kind`: cancel, return, swap, payment, address or
    question."""

    kind: str
    text: str

    @property
    def order_id(self) -> str:
        """The last order that the text names, "" where it names none."""
        return (ORDER.findall(self.text) or [""])[-1]


def requests(text: str) -> list[Request]:
    """The first requests of a message in order; a sentence that tells more of one belongs to it.

    >>> [request.kind for request in requests("Please cancel order #W1. The reason: ordered by mistake. How much did I pay for #W2?")]
    ['cancel', 'question']
    """
    # (kind, sentences): joined once, since a message may hold thousands
    found: list[tuple[str, list[str]]] = []
    last_order = ""
    for sentence in _SENTENCE.split(text):
        if not sentence or sentence.isspace():
            continue
        orders = ORDER.findall(sentence) if "#W" in sentence else ()
        kind, order = kind_of(sentence), orders[-1] if orders else ""
        same = (
            bool(found)
            and kind == found[-1][0]
            and kind != "question"
            and (not order or not last_order or order == last_order)
        )
        if found and (not kind or same or _GOES_ON.search(sentence.casefold())):
            found[-1][1].append(sentence)
            last_order = order or last_order
        elif kind:
            if len(found) == MOST:
                break
            found.append((kind, [sentence]))
            last_order = order
    return [Request(kind, " ".join(sentences)) for kind, sentences in found]


def kind_of(sentence: str) -> str:
    """What a sentence asks for; "" where it asks for nothing."""
    folded = sentence.casefold()
    if not _CUE.search(folded):
        return ""
    if "@" in folded or "mail" in folded:
        folded = _MAIL.sub(" ", folded)
    asks = _ASK_START.match(folded) or _ASKS.stands_in(folded)
    if asks and not ("can " in folded and in_line(_CAN_I, folded)):
        return "question"
    for kind, cue in _VERBS:
        if (kind == "payment" and _pays(folded)) or cue.stands_in(folded):
            return kind
    return ""


def _pays(folded: str) -> bool:
    """Whether a line speaks of paying, and behind its last such word not of a difference to
    come."""
    for line in folded.split("\n") if "pay" in folded else ():
        at = -1
        for word in _PAY.finditer(line):
            at = word.end()
        if at >= 0 and ("difference" not in line or not _DIFFERENCE.search(line, at)):
            return True
    return False


def wants_human(text: str) -> bool:
    """Whether a message asks for a person."""
    return _HUMAN.search(text.casefold()) is not None


def changes_mind(text: str) -> bool:
    """Whether a message takes something back."""
    return _TURN.search(text.casefold()) is not None


# -- details -------------------------------------------------------------------------------------


def reason(text: str) -> str:
    """The reason to cancel that a text gives: one of the shop's two, other words as they are, or
    "".

    >>> reason("I bought it by accident"), reason("because I found it cheaper")
    ('ordered by mistake', 'I found it cheaper')
    """
    folded = text.casefold()
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
    other = re.search(
        r"\b(?:because|since|reason(?: is| for it is)?:?)\s+([^.!?]+)", text, re.IGNORECASE
    )
    return other.group(1).strip() if other else ""


def method(text: str, methods: Record) -> str | None:
    """The payment method that a text names: its id; "" where it names one that the account does
    not have, None where it names none for sure."""
    said, folded = METHOD.findall(text), text.casefold()
    if said:
        return said[-1] if said[-1] in methods else ""
    digits = re.findall(
        r"(?:ending (?:in|with)|last four(?: digits)?(?: are)?|(?<!\*)\*++|(?<!x)x{2,}+)\s*(\d{4})",
        folded,
    )
    if digits:
        return next(
            (key for key, entry in methods.items() if entry.get("last_four") == digits[-1]), ""
        )
    places = {
        source: max(folded.rfind(words) for words in names) for source, names in _SOURCES.items()
    }
    source = max(places, key=lambda name: places[name])
    if places[source] < 0:
        return None
    fits = [key for key, entry in methods.items() if entry["source"] == source]
    branded = [key for key in fits if methods[key].get("brand", "\0").casefold() in folded]
    fits = branded or fits
    return fits[0] if len(fits) == 1 else None if fits else ""


_SOURCES = {
    "gift_card": ("gift card", "giftcard"),
    "paypal": ("paypal",),
    "credit_card": ("credit card", "my card", "visa", "mastercard"),
}


# a street with its number, and where what follows its comma begins; two may overlap
_HEAD = re.compile(r"(?<![\w#])(?=(\d{1,10}+[^,.;:\n]{0,80}+),\s{0,8}+())\d")
_TOWN = re.compile(r"\b([A-Z]{2}),?\s{1,8}(\d{5})\b")
_COUNTRY = re.compile(r",\s{0,8}([A-Z][\w .]{0,60}\w)")
_BETWEEN = 60  # characters at most between a street and its state


def address(text: str) -> dict[str, str]:
    """The parts of an address that a text gives, with labels or written as on a letter."""
    labelled = dict(
        re.findall(
            r"\b(address1|address2|city|state|country|zip): ?([^;]*)",
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


# -- items ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """An item of an order that a text means, and what the text says after it, up to the next
    one."""

    item: Record
    about: str
    into: str  # the part that says what is wanted instead, "" where there is none


_ORDER_WITH = re.compile(
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
    found = _ORDER_WITH.findall(text)
    return found[-1].strip() if found else ""


def items(text: str, order: Record) -> tuple[list[Named], str]:
    """The items of an order that a text means, in the order of the text; and "" or what is
    unclear."""
    text = _ORDER_WITH.sub("order", text)
    folded = text.casefold()
    held: Sequence[Record] = order["items"]
    if re.search(r"\b(?:all|every(?:thing)?|whole|entire|both)\b", folded) and not any(
        mentions(item["name"], folded) for item in held
    ):
        return [Named(item, text, "") for item in held], ""
    ids = [number for number, item in enumerate(held) if where(item["item_id"], text) >= 0]
    marks: list[tuple[int, int, str]] = [
        span
        for name in dict.fromkeys(item["name"] for item in held)
        for span in mentions(name, folded)
    ]
    for number in ids:
        at = where(held[number]["item_id"], text)
        marks.append((at, at + len(held[number]["item_id"]), held[number]["name"]))
    marks.sort()
    found: list[Named] = []
    used: set[int] = set()
    for number, (start, end, name) in enumerate(marks):
        stop = marks[number + 1][0] if number + 1 < len(marks) else len(text)
        before = _before(folded, marks[number - 1][1] if number else 0, start)
        about = text[end:stop]
        old, into = split(about)
        if found and re.fullmatch(r"\W*(?:an?|another|some)\W*", found[-1].into, re.IGNORECASE):
            # "the kite for a lantern"
            found[-1] = Named(
                found[-1].item, found[-1].about + text[start:stop], text[start - 2 : stop]
            )
            continue
        same = [
            place for place, item in enumerate(held) if item["name"] == name and place not in used
        ]
        if not same:
            if found and found[-1].item["name"] == name and not found[-1].into:
                # "exchange the kite for a kite with ..."
                found[-1] = Named(found[-1].item, found[-1].about + about, into or about)
            continue
        exact = [place for place in same if held[place]["item_id"] in text[start:stop]]
        scores = {place: _score(held[place], f"{before} {old}") for place in same}
        best = [place for place in same if scores[place] == max(scores.values())]
        chosen = exact or best
        if len({held[place]["item_id"] for place in chosen}) > 1:
            if any(name == later for _, _, later in marks[number + 1 :]):
                continue  # "both kites: the red kite and ..."
            return (
                found,
                (
                    f"Which {name} do you mean? Please name its options:"
                    f" {' / '.join(_listed(held[place]) for place in chosen)}."
                ),
            )
        used.add(chosen[0])
        found.append(Named(held[chosen[0]], about, into))
    return found, ""


def where(word: str, text: str, start: int = 0) -> int:
    """Where a text holds a word that is no part of a longer word or number, from `start` on; -1
    where it does not. Both are in one case.

    >>> where("1", "1.5 or 10 or 1."), where("steel", "carbon-steels"), where("", "x")
    (13, -1, -1)
    """
    at = text.find(word, start) if word else -1
    while at >= 0:
        end = at + len(word)
        before, after = text[max(0, at - 2) : at], text[end : end + 2]
        joined = (
            _in_word(before[-1:])
            or _in_word(after[:1])
            or (before[-1:] == "." and before[:1].isdigit())
            or (after[:1] == "." and after[1:].isdigit())
        )
        if not joined:
            return at
        at = text.find(word, at + 1)
    return -1


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def split(about: str) -> tuple[str, str]:
    """What a text says of the old item, and of the new one."""
    outside = re.sub(r"\([^()]*\)", lambda found: "\0" * len(found.group()), about)
    turn = _INTO.search(outside)
    return (about[: turn.start()], about[turn.end() :]) if turn else (about, "")


def named_values(options: Mapping[str, Sequence[str]], text: str) -> dict[str, list[str]]:
    """The values of each option that a text names, longest first: `carbon steel` is not also
    `steel`."""
    folded = text.casefold()
    found: dict[str, list[str]] = {}
    for name, values in options.items():
        rest = folded
        for value in sorted(values, key=len, reverse=True):
            word, at = value.casefold(), where(value.casefold(), rest)
            if at >= 0:
                found.setdefault(name, []).append(value)
            while at >= 0:
                rest = f"{rest[:at]} {rest[at + len(word) :]}"
                at = where(word, rest)
    return found


def _before(folded: str, start: int, end: int) -> str:
    """The words that stand before a name and belong to it: those after the last comma, `and` or
    full stop."""
    return re.split(r",|\band\b|[.;:!?+]", folded[start:end])[-1]


def _score(item: Record, text: str) -> int:
    folded = text.casefold()
    return sum(where(str(value).casefold(), folded) >= 0 for value in item["options"].values())


def mentions(name: str, folded: str) -> list[tuple[int, int, str]]:
    """Where a text names a product, one or several of it: (start, end, name)."""
    found = []
    for word in (name.casefold(), f"{name.casefold()}s", f"{name.casefold()}es"):
        at = where(word, folded)
        while at >= 0:
            found.append((at, at + len(word), name))
            at = where(word, folded, at + len(word))
    return sorted(found)


def _listed(item: Record) -> str:
    return ", ".join(f"{name} {value}" for name, value in item["options"].items())
