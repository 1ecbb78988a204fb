"""Which one of its choices an answer names: `B`, `(B)`, `B) its text`, its text, a short sentence
around one of these."""

from __future__ import annotations

import re

from gem_ma.scenarios.questions.items import LETTERS, Item
from gem_ma.scenarios.questions.wording import DENIALS, GLUE, bare, edged, words_of

# what may stand around the letter, or the text, of a choice; white space is taken as a whole, and
# from its first character only, so that no answer costs more than its length
_FRAME = re.compile(
    r"(?:(?:so|thus|hence|therefore|then)\b,?\s*+)?"
    r"(?:i(?:\s++(?:would|will)|'d)?\s++(?:think|believe|choose|pick|say|go\s++with|select)\s++"
    r"(?:that\s++)?|(?:choose|pick|select)\s++)?"
    r"(?:(?:it|that)(?:'s| is)\s++)?(?:(?:the\s++)?(?:(?:correct|right|best)\s++)?"
    r"(?:option|choice|answer|letter)\s++)?(?P<choice>.+?)"
    r"(?:(?<!\s)\s++is\s++(?:the\s++)?(?:correct|right|best)"
    r"(?:\s++(?:option|choice|answer|one))?)?(?:(?<!\s),?\s++(?:because|since)\s.*+)?",
    re.IGNORECASE | re.DOTALL,
)
_LETTER = re.compile(r"[\s(\[*]*([A-Za-z])(?:[)\].:*,]+\s*|\s+[-–—(=]\s*)(.+)", re.DOTALL)
_LATEX = re.compile(r"^\\(?:text|mathrm|textbf)\{([^{}]*)\}?$")
LONGEST_SENTENCE = 60  # words


def chosen(item: Item, answer: str) -> str | None:
    """The letter of the one choice that an answer names, or a short sentence around it."""
    plain = plainly_chosen(item, answer)
    return _told(item, answer) if plain is None else plain


def plainly_chosen(item: Item, answer: str) -> str | None:
    """The same without the sentences of any form, as reasons hold them."""
    named = _named(item, answer)
    if named is None and (framed := _FRAME.fullmatch(bare(answer))):
        named = _named(item, framed["choice"])
    return named


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


def _told(item: Item, answer: str) -> str | None:
    """The choice whose text a sentence holds: beside it small words and words of the question."""
    words = words_of(answer)
    # a letter in it names a choice of its own
    letters = {*item.letters} & {*re.findall(r"\b[A-Z]\b", answer)}
    if letters or len(words) > LONGEST_SENTENCE:
        return None
    asked = set(words_of(item.question))
    found = [
        letter
        for letter, text in zip(item.letters, item.choices, strict=True)
        if _is_told(words, words_of(text), asked)
    ]
    return found[0] if len(found) == 1 else None


def _is_told(words: list[str], choice: list[str], asked: set[str]) -> bool:
    size = len(choice)
    # what the question says, or small words, may stand in any sentence
    if not set(choice) - GLUE or asked.issuperset(choice):
        return False
    at = next((at for at in range(len(words) - size + 1) if words[at : at + size] == choice), None)
    if at is None:
        return False
    beside = {*words[:at], *words[at + size :]}
    return not beside & DENIALS and beside <= GLUE | asked
