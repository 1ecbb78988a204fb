"""What a message of a customer allows where it is no clear yes as a whole: a part of what was
proposed, or a change that it orders in so many words.

Like all that is read from words, this decides no certain finding: it only keeps an honest write
from being called unasked.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gem_ma.scenarios.service.reading import cues
from gem_ma.scenarios.service.reading.answers import READ, sentences
from gem_ma.scenarios.service.reading.phrases import Phrasebook, fold, plain

# `we keep the other one`: what is not said yes to stands apart.
_APART = re.compile(
    r"\b(?:others?|rest|remaining|second|third|first|last|latter|former|keep|leave)\b"
)
# `just asking` allows nothing.
_ONLY = re.compile(
    r"^\W*(?:(?:yes|ok(?:ay)?|fine|sure)\W+)?(?:only|just)\b"
    r" (?!(?:asking|wondering|curious|checking|a (?:moment|second|minute|sec)))"
)
# An order is often wrapped in politeness; what is to be done stands behind it.
_LEADS = re.compile(
    r"^\W*(?:(?:yes|ok(?:ay)?|fine|sure|alright|right|then|so|and|please|kindly|just|also|now|go"
    r" ahead and|do|let's|(?:you|u) (?:can|may|should)"
    r"|i(?:'d| would) like you to|i want you to|(?:stick|stay|go|continue) with|take)\b\W*)+"
)
# Sentences about somebody or something order nothing.
_STATEMENT = re.compile(
    r"^(?:i|we|my|our|he|she|they|it|this|that|there|what|why|how|when|if|is|are|was|can|could|would|will|did|does)\b"
)
_HELD = re.compile(
    r"\b(?:not|don't|never|wait|hold|before|unless|until|if|instead|maybe|think|no)\b"
)
# Four letters: shorter words join sentences rather than tell things apart.
_WORD = re.compile(r"[^\W_]{4,}")
NEXT = 5  # words behind the lead of an order that must say what is to be done


def partly(text: str) -> str:
    """The sentences that allow a part of what was proposed, while others keep the rest of it back;
    "" where there are not both.

    >>> partly("Only the chair, please. We'll keep the other one.")
    'only the chair, please.'
    >>> partly("Yes. But wait, not yet.")
    ''
    """
    allowed: list[str] = []
    apart = False
    for sentence, reading in sentences(text):
        # A yes may speak of the others too, so it keeps nothing back.
        if _APART.search(sentence) and reading != "yes":
            apart = True
        # A doubt leaves the whole open, parts included.
        elif reading in ("hold", "doubt", "no"):
            return ""
        elif reading == "yes" or (_ONLY.search(sentence) and "?" not in sentence):
            allowed.append(sentence.strip())
    return " ".join(allowed) if apart else ""


def ordered(text: str, book: Phrasebook) -> frozenset[str]:
    """The kinds of writes that a message orders in so many words, such as `Please cancel it
    too`."""
    kinds = frozenset[str]()
    for sentence, reading in sentences(text):
        if reading in ("hold", "doubt", "no") or "?" in sentence:
            continue
        lead = _LEADS.match(sentence)
        # Only the next words: a write that is named later in the sentence is often a reason or a
        # story.
        rest = " ".join(sentence[lead.end() if lead else 0 :].split()[:NEXT])
        if not (_STATEMENT.search(rest) or _HELD.search(sentence)):
            kinds |= book.writes(rest)
    return kinds


def narrowed(proposal: str, part: str) -> tuple[str, str]:
    """A proposal without the entries of its list that `part` does not mean, and those; all of it
    where no entry is told apart."""
    lines = proposal.splitlines()
    entries = [line for line in lines if cues.ITEM.match(line)]
    # Words of every entry tell none apart.
    shared = frozenset.intersection(*map(content, entries)) if entries else frozenset[str]()
    apart = {line for line in entries if not (content(line) - shared) & content(part)}
    # All apart would leave nothing of the proposal: the part was said in words that no entry has.
    if len(apart) == len({*entries}):
        return proposal, ""
    return "\n".join(line for line in lines if line not in apart), "\n".join(
        line for line in lines if line in apart
    )


@lru_cache(maxsize=256)
def content(text: str) -> frozenset[str]:
    """The words of a text that may tell one thing from another, folded."""
    return frozenset(_WORD.findall(fold(plain(text[:READ]))))
