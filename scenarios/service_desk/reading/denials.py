"""Which values a text denies or leaves open: `it is certainly not $5.00`, `I am not sure, but 5`.

A closed list of plain words around a value. Every value is looked at within a bounded distance, so
that a text costs no more than its length.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gem_ma.scenarios.service_desk.reading.phrases import plain

REACH = 120  # characters before a value in which it may be denied
_SENTENCE = re.compile(r"(?:[^.!?\n]|[.](?=\S))*(?:[.!?]+|\n|$)")
_BREAK = re.compile(r"[,;:()?!]|\.(?=\s)|\s[-–—]\s|\b(?:and|but|so|because|which|while)\b")
# before a value, with a few words between
_DENIES = re.compile(
    r"(?:\b(?:not(?! only)|never|neither|nor|no|without|hardly|instead of|rather than|far from"
    r"|anything but|other than)|n't)\b(?:\W+[\w'$]+){0,6}\W*$"
)
# right before a value
_MAYBE = re.compile(
    r"\b(?:(?:might|may|could|should)(?: \w+)? (?:be|mean|come to|have been)|maybe|perhaps"
    r"|possibly|probably|presumably|supposedly|allegedly)(?: \w+){0,2} \W*$"
)
# behind a value
_IS_NOT = re.compile(
    r" {0,2}(?:would be|is|was|are|were|seems|looks|must be|'s)?(?: \w+ly)? ?(?:not\b|n't"
    r"|(?:is|was|are|were)n't|wrong|incorrect|false|impossible|unlikely|out of the question)"
)
_UNSURE = re.compile(
    r"(?:\bnot|n't)(?: \w+){0,2} (?:sure|certain|confident|convinced|positive)\b|\b(?:un(?:sure"
    r"|certain)|no idea|(?:i|we) (?:really )?(?:do(?:n't| not)|can(?:'t| ?not))(?: really)?"
    r" (?:know|say|tell|confirm|vouch)|(?:don't|do not) quote me|doubt\w*|(?:could|may|might) be"
    r" wrong|guess\w*)\b"
)
# the sentence behind takes back what was said
_TAKES_BACK = re.compile(
    r"\W*(?:(?:actually|sorry|wait|oh|well)\W+)*(?:(?:no|nope|wrong|false|incorrect)(?=[,.!?;]|$)"
    r"|scratch that|forget (?:it|that)|just kidding|i (?:lied|made that up)"
    r"|(?:that|this|it)(?:'s| is| was)(?:(?: \w+ly)? (?:wrong|false|incorrect|a (?:lie|joke"
    r"|mistake))|(?:n't| not)(?: \w+ly)? (?:right|true|correct|so))\b)"
)
_VALUE = re.compile(
    r"[$€£]?\b\d(?:[\w,.]*\w)?|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:thir|four|fif|six|seven|eigh|nine)teen|twenty)\b"
)


@lru_cache(maxsize=1024)
def asserted(text: str, phrase: str = "") -> str:
    """The text with the values blanked that it does not assert; `phrase`: words that are a value,
    too.

    >>> asserted("It is $5.00, not $6.00.")
    'It is $5.00, not      .'
    >>> asserted("I am not sure, but 7.")
    'I am not sure, but  .'
    """
    folded = plain(text)
    sentences = [found.span() for found in _SENTENCE.finditer(folded) if found.group().strip()]
    values = re.compile(f"{_VALUE.pattern}|{re.escape(plain(phrase))}") if phrase else _VALUE
    blanked = list(text)
    for place, (start, end) in enumerate(sentences):
        behind = folded[end : end + REACH]
        unsure = _UNSURE.search(folded[start:end]) is not None
        unsure = unsure or (place + 1 < len(sentences) and _TAKES_BACK.match(behind) is not None)
        for value in values.finditer(folded, start, end):
            before = _BREAK.split(folded[max(start, value.start() - REACH) : value.start()])[-1]
            if (
                unsure
                or _DENIES.search(before)
                or _MAYBE.search(before)
                or _IS_NOT.match(folded, value.end())
            ):
                blanked[value.start() : value.end()] = " " * (value.end() - value.start())
    return "".join(blanked)
