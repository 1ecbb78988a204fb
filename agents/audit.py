"""A free check of what somebody playing a part is about to say: no model, no knowledge beyond what
the speaker itself was shown.

Each finding is `kind: evidence`: `invented` (a value that stands neither in the part nor in the
talk), `recited` (words in a row of the part: eight that
speak to whoever plays it, or twenty others), `role_flip` (offers help, writes like a
program, or for both sides), `aside` (speaks of its part, or gives a stage direction),
`token_leak` (a mark such as `###STOP###`), `loop` (said before, word by word).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gem_ma.agents.marks import has_marks

from gem_ma import Malformed, Message, ToolCall
from gem_ma.kernel.parsing.text import EMAIL_ADDRESS

RECITED = 8  # words in a row of a part that say "you"
LONG_ROW = 20  # words in a row without one: a wish is told in its own words
SHORT = 12  # words of an answer that may be given twice
_ADDRESSED = {"you", "your", "yours", "yourself", "you're", "you’re", "you'd", "you’d", "you've"}
# Longest first: an address of mail holds digits too, and is one value.
_VALUE = re.compile(
    rf"{EMAIL_ADDRESS}|(?<![\w-])#?[\w-]*\d[\w-]*(?:[.,]\d+)*|(?<=[\w-])#[\w-]*\d[\w-]*(?:[.,]\d+)*"
)
# Answers that people repeat without being in a loop.
_AGAIN = re.compile(r"(?:yes|no|ok|okay|sure|right|correct|thanks|thank you|please go ahead)\b")
_FLIPS = re.compile(
    r"\bhow (?:can|may) i (?:help|assist)\b|\bis there anything else (?:i can|you need|you would"
    r" like)\b"
    r"|\bi(?: can|['’]ll be happy to| am here to) assist you\b"
    r"|</?tool_call>|\{\s*\"name\"\s*:|^[^\S\n]*(?:action|observation)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
# A line under the name of a speaker, also behind the end of a sentence.
_SPEAKER = re.compile(
    r"(?:^|(?<=[.!?\"”] ))[ \t>#*_\[(<|]{0,6}(?P<name>(?:(?:the|ai|customer|support|sales) )?"
    r"(?:assistant|agent|representative|rep|support|service|system|bot|chatbot|ai|human|user"
    r"|customer|client|you|me))(?: \(?\w{1,20}\)?)?[ \t*_\])]{0,6}(?::(?!//)|\|>)"
    r"|<\|im_start\|>|\[/?INST\]|[\"']role[\"']\s?:",
    re.IGNORECASE | re.MULTILINE,
)
_OWN_NAMES = frozenset({"user", "customer", "client", "human", "me"})
# What nobody says who is in a talk: a thought, a stage direction, words about the own part.
_ASIDES = re.compile(
    "|".join(
        (
            r"^[ \t*_#>]{0,6}(?:thoughts?|reasoning|reflection|analysis|note to self)[ \t*_]{0,4}:",
            r"^[ \t]*(?:\([^()\n]{1,200}\)|\[[^\[\]\n]{1,200}\]|\*(?!\*)[^*\n]{1,200}\*)[ \t]*$",
            r"\b(?:we|i) (?:have|got|was given|were given) instructions\b",
            r"\b(?:my|the|these|our) instructions (?:say|state|tell|are|mention|require)\b(?! no)",
            r"\b(?:according to|per|based on) (?:my|our) (?:instructions?|persona|scenario|role)\b",
            r"\b(?:i am|i['’]m|we are|we['’]re) (?:not )?(?:the user|the assistant|an ai\b"
            r"|playing|simulating|acting as|role-?playing)\b",
            r"\bnot (?:as )?the assistant\b",
            r"\bthe (?:simulated )?user (?:is|wants|asks|asked|has|should|needs|will|would|must)\b",
            r"\b(?:system prompt|user simulat\w{2,5}|role-?playing|as an ai\b)",
            r"\b(?:in|out of|stay in) character\b",
            r"\b(?:my|the) next (?:message|response|reply|turn|line) (?:should|must|will|is|as)\b",
            r"\b(?:i|we) (?:should|need to|must|will) (?:now )?(?:respond|reply|answer|output) "
            r"(?:as|only|in (?:role|character)|with (?:a|one|only))\b",
        )
    ),
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """What is about to be said. `raw` is what the model wrote, `text` and `calls` what would be
    sent; `situation` is the speaker's briefing; `heard` and `own_texts` are what the other side and
    the speaker said so far, `talk` is both."""

    text: str
    raw: str = ""
    calls: tuple[ToolCall | Malformed, ...] = ()
    situation: str = ""
    heard: tuple[str, ...] = ()
    own_texts: tuple[str, ...] = ()
    talk: tuple[Message, ...] = ()


def audit(draft: Draft) -> tuple[str, ...]:
    """What is wrong with a draft; () where nothing is.

    >>> audit(Draft("My order is #W9999.", situation="You want to cancel order #W1234."))
    ('invented: #w9999',)
    """
    # What the other side said may be said back, whoever made it up.
    known = {
        _key(value)
        for value in _values("\n".join((draft.situation, *draft.heard, *draft.own_texts)))
    }
    findings = [f"invented: {value}" for value in _values(draft.text) if _key(value) not in known]
    recited = _recited(draft.text, draft.situation)
    findings += [f"recited: {recited}"] if recited else []
    flip = _FLIPS.search(draft.text)
    findings += [f"role_flip: {flip[0].strip()}"] if flip else []
    if not flip and (other := _both_sides(draft.text)):
        findings.append(f"role_flip: {other}")
    aside = _ASIDES.search(draft.text)
    findings += [f"aside: {aside[0].strip()}"] if aside else []
    # Of the raw text: what the model wrote counts, even where it would be removed before it is
    # sent.
    findings += ["token_leak: a marked-up word"] if has_marks(draft.raw) else []
    findings += ["loop: said before"] if _repeats(draft) else []
    return tuple(findings)


def _both_sides(text: str) -> str:
    """The label of a line that somebody else would say; "" where there is none. The own name in
    front of all is a habit, and says nothing."""
    for label in _SPEAKER.finditer(text):
        name = (label["name"] or "").casefold().removeprefix("the ")
        if name not in _OWN_NAMES or text[: label.start()].strip():
            return label[0].strip()
    return ""


def _repeats(draft: Draft) -> bool:
    """Whether the draft was said before; a short yes, no or thanks may be said again."""
    words = _folded(draft.text)
    if not words or draft.calls or (_AGAIN.match(words) and words.count(" ") < SHORT):
        return False
    return words in map(_folded, draft.own_texts)


def _values(text: str) -> list[str]:
    """Values that can be invented: addresses of mail, and what holds three digits or more; each
    once, folded."""
    values = [value.casefold().strip(".,-_") for value in _VALUE.findall(text)]
    return list(
        dict.fromkeys(
            # Two digits are a count or a size; a value that identifies something has more.
            value
            for value in values
            if "@" in value or sum(char.isdigit() for char in value) >= 3
        )
    )


def _key(value: str) -> str:
    """What of a value must agree: its digits, as people leave out letters and signs; a price by
    its amount."""
    if "@" in value:
        return value
    if price := re.fullmatch(r"(\d[\d,]*)\.(\d+)", value):
        # $5.00, 5 and 5.0 are one price.
        return f"{price[1]}.{price[2]}".replace(",", "").rstrip("0").rstrip(".")
    return re.sub(r"\D", "", value)


def _recited(text: str, situation: str) -> str:
    """A row of words of the part, as prose: what is listed may be told as it stands, so signs and
    words with digits break a row."""
    for length in (RECITED, LONG_ROW):
        # A set, since a briefing may hold hundreds of rows and each row of the draft is looked up.
        rows = set(_rows(situation, length))
        for row in _rows(text, length):
            if row in rows and (length == LONG_ROW or not _ADDRESSED.isdisjoint(row)):
                return " ".join(row)
    return ""


def _rows(text: str, length: int) -> Iterator[tuple[str, ...]]:
    # Bounded before the digit: a word of thousands of letters would be tried from each of them.
    for part in re.split(r"[.,:;()+?!\n]|(?<![^\s.,:;()+?!])\S{0,64}\d\S*", text.casefold()):
        words = re.findall(r"(?<![\w'’-])[\w'’-]*\w", part)
        yield from (tuple(words[at : at + length]) for at in range(len(words) - length + 1))


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
