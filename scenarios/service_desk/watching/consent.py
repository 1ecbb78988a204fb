"""What is certain about whether a write was agreed to, by typed values and what is *not* there: no
message that the customer answered speaks of such a write, no text of either side names what it
changes, or the last that the customer said before it is a plain no, of a closed list.

Whether a proposal lists all details, and whether an answer is a yes, is not judged: that is free
English, and on natural talk most such findings were wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.domain import Domain, spoken
from gem_ma.scenarios.service_desk.reading import answers, cues
from gem_ma.scenarios.service_desk.reading.phrases import fold, plain

from gem_ma import ToolCall

SHORT = 3  # words of a no that may answer another question
_WORD = re.compile(r"[^\W_]+")
# Words of nearly every write of a desk.
_SAYS_LITTLE = frozenset(("order", "account", "ending", "longer", "needed", "ordered", "mistake"))
_YES = re.compile(r"\b(?:yes|go ahead)\b")
_QUESTION = re.compile(r"[^.!?\n]{1,400}\?")
# Asks for something beside a yes, or leaves a choice: a no to it may be a no to that.
_OTHER = re.compile(
    r"\b(?:else|more|other|another|rather|prefer|instead|keep|questions?|concerns?|which|what)\b"
)
_DENIES = re.compile(
    r"^\W*(?:please |just )?(?:don't|do not|stop|leave|keep)\b"
    r"|\b(?:don't|do not) (?:want|wish|agree|consent)\b"
    r"(?!.{0,80}\b(?:else|more|other|keep|questions?)\b)"
)
_WHY = re.compile(r"\breasons?\b|\bwhy\b")
_CLAUSE = re.compile(r"[,;:.!\n]|\b(?:so|and|but|then|please)\b")
# A clause that asks for nothing, whatever it speaks of.
_ASKS_NOT = re.compile(
    r"\b(?:not?|nor|never|none|without|stop|instead of|rather than|if|unless|why|whether|keep|leave"
    r"|before|until|after|wait|mind)\b|n't\b"
)
_LINE = re.compile(r"(?<=[.?!])\s|\n")


class Breach(NamedTuple):
    """What is wrong with a write: its code, and what shows it."""

    code: str
    evidence: str


def denies(text: str, asked: str) -> bool:
    """Whether a customer's text is a plain no to what the last message `asked`: some sentence is
    a no, and none a yes. A short one may answer whether there is anything else, a longer one a
    last question that leaves a choice, unless it denies in words of its own; and why it is wanted
    does not answer a message that asks for a reason."""
    told_why = _WHY.search(plain(asked)) is not None
    readings = {
        reading
        for sentence, reading in answers.sentences(text)
        if not (told_why and answers.REASON.search(sentence))
    }
    if "no" not in readings or "yes" in readings or _YES.search(plain(text)):
        return False
    if answers.is_partial(text):
        return False
    if (questions := _QUESTION.findall(plain(asked))) and _OTHER.search(questions[-1]):
        return any(_DENIES.search(clause) for clause in _CLAUSE.split(plain(text)))
    return len(text.split()) > SHORT or cues.MORE.search(plain(asked)) is None


def asks_for(text: str, write: str, domain: Domain) -> bool:
    """Whether a clause of a customer's text speaks of such a write, and neither denies it nor asks
    back: `Please cancel it. I don't need it` asks for it."""
    return any(
        write in domain.speaks_of(clause)
        for sentence, _ in answers.sentences(text)
        if "?" not in sentence
        for clause in asking(sentence)
    )


def asking(sentence: str) -> list[str]:
    """The clauses of a folded sentence that deny nothing and set no condition."""
    return [clause for clause in _CLAUSE.split(sentence) if not _ASKS_NOT.search(clause)]


@dataclass(slots=True)
class Conversation:
    """All that both sides said, for what no reading is needed: which kinds of writes were spoken
    of, and which values were named."""

    texts: list[str] = field(default_factory=list)
    # messages that the customer has answered, folded, with the kinds of writes
    answered: list[tuple[str, set[str]]] = field(default_factory=list)
    waiting: list[tuple[str, set[str]]] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)  # the kinds of writes that the customer spoke of

    def assistant(self, text: str, domain: Domain) -> None:
        self.texts.append(text)
        self.waiting.append((fold(text), self._kinds(text, domain)))

    def _kinds(self, text: str, domain: Domain) -> set[str]:
        """The writes that a message may speak of: `Shall I submit it?` speaks of what the
        customer asked for."""
        folded = fold(text)
        lines = [fold(line) for line in _LINE.split(text) if line.strip()]
        bare = domain.book is None or not any(map(domain.book.writes, lines))
        spoken_of = domain.speaks_of(folded)
        return spoken_of | (self.wanted if bare and cues.STRONG.search(folded) else set())

    def customer(self, text: str, domain: Domain) -> None:
        self.texts.append(text)
        self.wanted |= domain.speaks_of(fold(text))
        self.answered += self.waiting
        self.waiting = []

    def lacks(
        self, call: ToolCall, wish: Wish | None, domain: Domain, data: Overlay
    ) -> Breach | None:
        """Why no proposal that was shown can contain this write; None where one may."""
        # Only what was answered: a proposal in the last message was seen by nobody who could say
        # yes.
        ids = [
            fold(key) for table, key in domain.records(call) if domain.owners.get(table, "") != ""
        ]
        texts = [
            text
            for text, kinds in self.answered
            # A text about the very records may put what the customer wanted in words that no list
            # holds.
            if call.name in kinds or (call.name in self.wanted and all(key in text for key in ids))
        ]
        if not texts:
            what = f"no message that the customer answered speaks of such a change: {spoken(call)}"
            return Breach("CONSENT", what)
        words = _telling([call.arguments, wish.words if wish is not None else ()])
        if words and not any(word in text for text in texts for word in words):
            what = f"no message that the customer answered names anything of it: {spoken(call)}"
            return Breach("MISMATCH", what)
        if unnamed := domain.unnamed(call, data, self.texts):
            return Breach("MISMATCH", f"nobody named {', '.join(unnamed)} of {spoken(call)}")
        return None


def _telling(values: Any) -> set[str]:
    """The words in values by which a text can name them: those with a digit, and long ones that
    say something."""
    words = {word for value in _leaves(values) for word in _WORD.findall(fold(value))}
    return {
        word for word in words if (len(word) > 3 or not word.isalpha()) and word not in _SAYS_LITTLE
    }


def _leaves(value: Any) -> Iterator[str]:
    """The texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    # Dataclasses with slots, such as the items of a wish.
    elif hasattr(value, "__slots__"):
        for name in value.__slots__:
            yield from _leaves(getattr(value, name))
