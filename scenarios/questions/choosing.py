"""Which one of its choices an answer names: `B`, `(B)`, `B) its text`, its text, a short sentence
around one of these."""

from __future__ import annotations

import re

from gem_ma.scenarios.questions.items import LETTERS, Item
from gem_ma.scenarios.questions.wording import DENIALS, DOUBTS, GLUE, bare, edged, words_of

# what may stand around the letter, or the text, of a choice; white space is taken as a whole, and
# from its first character only, so that no answer costs more than its length
_FRAME = re.compile(
    r"(?:(?:so|thus|hence|therefore|then)\b,?\s*+)?"
    r"(?:i(?:\s++(?:would|will)|'d)?\s++(?:think|believe|choose|pick|say|go\s++with|select)\s++"
    r"(?:that\s++)?|(?:choose|pick|select)\s++)?"
    r"(?:(?:it|that)(?:'s| is)\s++)?(?:(?:the\s++)?(?:(?:correct|right|best)\s++)?"
    r"(?:option|choice|answer|letter)\s++)?(?P<choice>.+?)"
    r"(?:(?<!\s)\s++is\s++(?:the\s++)?(?:correct|right|best)"
    r"(?:\s++(?:option|choice|answer|one))?)?",
    re.IGNORECASE,
)
# "B because ..."; a text may hold such a word itself, a letter may not
_REASON = re.compile(
    r"((?:[^\n]{0,40}\s)?[(\[*]*[A-Za-z][)\].*]*),?\s(?:because|since)\s.*", re.DOTALL
)
_LETTER = re.compile(r"[\s(\[*]*([A-Za-z])(?:[)\].:*,]+\s*|\s+[-–—(=]\s*)(.+)", re.DOTALL)
_LATEX = re.compile(r"^\\(?:text|mathrm|textbf)\{([^{}]*)\}?$")
LONGEST_SENTENCE = 60  # words


def chosen(item: Item, answer: str) -> str | None:
    """The letter of the one choice that an answer names, or a short sentence around it."""
    plain = plainly_chosen(item, answer)
    return _in_sentence(item, answer) if plain is None else plain


def plainly_chosen(item: Item, answer: str) -> str | None:
    """The same without the sentences of any form, as reasons hold them."""
    if named := _named(item, answer):
        return named
    reasoned = _REASON.fullmatch(answer)
    framed = _FRAME.fullmatch(bare(reasoned[1] if reasoned else answer))
    return _named(item, framed["choice"]) if framed else None


def _named(item: Item, answer: str) -> str | None:
    letter = _LATEX.sub(r"\1", bare(answer, "()[]{}$"))
    names = [edged(text) for text in item.choices]
    # a text that stands there twice names neither
    texts = {name: LETTERS[at] for at, name in enumerate(names) if names.count(name) == 1}
    if letter.upper() in item.letters and letter.isascii():
        return letter.upper()
    if edged(answer) in texts:
        return texts[edged(answer)]
    return _both(answer, names)


def _both(answer: str, names: list[str]) -> str | None:
    """The choice of a letter with a text, where both are of the same one."""
    named = _LETTER.match(answer.strip())
    place = LETTERS.find(named[1].upper()) if named else -1
    if named and 0 <= place < len(names):
        text = edged(named[2])
        if names[place] in (text, text.removesuffix(")")):
            return LETTERS[place]
    return None


def _in_sentence(item: Item, answer: str) -> str | None:
    """The choice whose text a sentence holds: beside it small words and words of the question."""
    words = words_of(answer)
    # a letter in it names a choice of its own
    letters = {*item.letters} & {*re.findall(r"\b[A-Z]\b", answer)}
    if letters or len(words) > LONGEST_SENTENCE:
        return None
    asked = set(words_of(item.question))
    texts = [words_of(text) for text in item.choices]
    named = []
    for letter, text in zip(item.letters, texts, strict=True):
        # a word of another choice may name that one, also where the question has it
        others = {word for other in texts if other is not text for word in other}
        # what the question says, or small words, may stand in any sentence
        telling = set(text) - GLUE and not asked.issuperset(text)
        if telling and _holds_alone(words, text, GLUE | (asked - others)):
            named.append(letter)
    return named[0] if len(named) == 1 else None


def _holds_alone(words: list[str], text: list[str], free: set[str]) -> bool:
    """Whether the words of the text stand there in a row, and beside them free ones alone."""
    for start in range(len(words) - len(text) + 1):
        end = start + len(text)
        if words[start:end] == text:
            beside = {*words[:start], *words[end:]}
            return not beside & (DENIALS | DOUBTS) and beside <= free
    return False
