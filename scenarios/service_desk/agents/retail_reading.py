"""What a retail customer asks for, as far as patterns can tell: the requests of a message, and
their kinds.

Pure functions of a text. What it says about money, addresses and orders is read in
`retail_details`, about items in `retail_items`. Nothing here knows a task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gem_ma.scenarios.service_desk.agents.retail_talk import ORDER

# Capitals tell a name from `I am looking for`.
NAME = re.compile(
    r"(?:[Mm]y (?:full )?name is|[Mm]y name's|I am|I'm|[Tt]his"
    r" is|[Nn]ame:)\s+(?:called\s+)?([A-Z][\w'-]*)\s+([A-Z][\w'-]*)"
)
POSTCODE = re.compile(r"(?<![\w#])\d{5}(?!\w)")
# requests of one message that are taken up; nobody wants more at once, and each is held against all
# others
MOST = 32
# A line is a sentence as well: customers write lists.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
# `e-mail address` is none that anything is sent to.
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
    # A row of patterns and not one with gaps: `.*` between words is tried from each place.
    hit = row[0].search(text)
    while hit is not None:
        start, end = hit.end(), text.find("\n", hit.end())
        end = len(text) if end < 0 else end
        for other in row[1:]:
            behind = other.search(text, start, end)
            if behind is None:
                break
            start = behind.end()
        else:
            return True
        # The next line: within this one nothing stands behind the first words.
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
# `can you cancel it?` asks for a change, though it is a question.
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


@dataclass(frozen=True, slots=True)
class Errand:
    """One thing that a message asks for. `kind`: cancel, return, swap, payment, address or
    question."""

    kind: str
    text: str

    @property
    def order_id(self) -> str:
        """The last order that the text names, "" where it names none."""
        return (ORDER.findall(self.text) or [""])[-1]


def requests(text: str) -> list[Errand]:
    """The first requests of a message in order; a sentence that tells more of one belongs to it.

    >>> text = "Please cancel order #W1. The reason: ordered by mistake."
    >>> [request.kind for request in requests(f"{text} How much did I pay for #W2?")]
    ['cancel', 'question']
    """
    # (kind, sentences): joined once, since a message may hold thousands
    parts: list[tuple[str, list[str]]] = []
    last_order = ""
    for sentence in _SENTENCE.split(text):
        if not sentence or sentence.isspace():
            continue
        orders = ORDER.findall(sentence) if "#W" in sentence else ()
        kind, order = kind_of(sentence), orders[-1] if orders else ""
        same = (
            # More of the same kind and of no other order is the same request.
            bool(parts)
            and kind == parts[-1][0]
            and kind != "question"
            and (not order or not last_order or order == last_order)
        )
        # What asks for nothing adds to the request before it.
        if parts and (not kind or same or _GOES_ON.search(sentence.casefold())):
            parts[-1][1].append(sentence)
            last_order = order or last_order
        elif kind:
            if len(parts) == MOST:
                break
            parts.append((kind, [sentence]))
            last_order = order
    return [Errand(kind, " ".join(sentences)) for kind, sentences in parts]


def kind_of(sentence: str) -> str:
    """What a sentence asks for; "" where it asks for nothing."""
    folded = sentence.casefold()
    if not _CUE.search(folded):
        return ""
    # An address of mail would read as one to ship to.
    if "@" in folded or "mail" in folded:
        folded = _MAIL.sub(" ", folded)
    asks = _ASK_START.match(folded) or _ASKS.stands_in(folded)
    if asks and not ("can " in folded and in_line(_CAN_I, folded)):
        return "question"
    # In the order of the table: an address may be changed, sent or updated.
    for kind, cue in _VERBS:
        if (kind == "payment" and _pays(folded)) or cue.stands_in(folded):
            return kind
    return ""


def _pays(folded: str) -> bool:
    """Whether a line speaks of paying, and behind its last such word not of a difference to
    come."""
    for line in folded.split("\n") if "pay" in folded else ():
        behind = -1
        for word in _PAY.finditer(line):
            behind = word.end()
        # `pay the difference with` belongs to a swap.
        if behind >= 0 and ("difference" not in line or not _DIFFERENCE.search(line, behind)):
            return True
    return False


def wants_human(text: str) -> bool:
    """Whether a message asks for a person."""
    return _HUMAN.search(text.casefold()) is not None


def changes_mind(text: str) -> bool:
    """Whether a message takes something back."""
    return _TURN.search(text.casefold()) is not None
