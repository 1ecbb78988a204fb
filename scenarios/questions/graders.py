r"""What an answer is worth, from 0 to 1. A right answer gets 1, and what solves nothing gets 0.

| grader   | right where the answer                                                        |
|----------|-------------------------------------------------------------------------------|
| exact    | is a right answer, but for case, white space and marks around it               |
| number   | is that number, in any usual form (`numbers.py`)                               |
| letter   | names one choice: `B`, `(B)`, `B) its text`, its text, `option B is correct`  |
| math     | is equal by math-verify, and no formula of the question                        |
| contains | holds a right answer, and besides it no word that could be another one         |
| f1       | shares words with it: their F1, where more than three words in four are right  |

A list of candidates never pays more than its best one alone, because words beside the right ones
take all from `contains`, and from `f1` where they are a quarter. Only small words (`is`, `the`) and
words of the question may stand around an answer. A denial ("not 42") pays nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from gem_ma.scenarios.questions.answers import answer_of
from gem_ma.scenarios.questions.items import LETTERS, Item
from gem_ma.scenarios.questions.numbers import number

from gem_ma.parsing.text import fold

LONGEST = 4_000  # characters of an answer, which is the last line of a text or shorter
MOST_CHOICES = 64  # lines that are looked at
_EDGES = " \t\"'`*_.,;:!?"
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W_]+")
_ARTICLES = {"a", "an", "the"}
_DENIALS = {"not", "no", "never", "neither", "nor", "none", "cannot", "isn", "wasn", "aren", "don"}
# they carry no answer, so that a sentence may stand around one
_GLUE = _ARTICLES | {"is", "was", "are", "were", "be", "it", "its", "this", "that", "i", "of", "in"}
_GLUE |= {"on", "at", "to", "by", "as", "so", "there"}
_GLUE |= {"called", "named", "known", "located", "written", "made", "happened", "ended", "began"}
# what may stand around the letter, or the text, of a choice; white space is taken as a whole, and
# from its first character only, so that no answer costs more than its length
_FRAME = re.compile(
    r"(?:(?:it|that)(?:'s| is)\s++)?(?:(?:the\s++)?(?:(?:correct|right|best)\s++)?"
    r"(?:option|choice|answer|letter)\s++)?(?P<choice>.+?)"
    r"(?:(?<!\s)\s++is\s++(?:the\s++)?(?:correct|right|best)"
    r"(?:\s++(?:option|choice|answer|one))?)?",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[\s(\[*]*([A-Za-z])(?:[)\].:*]+\s*|\s+[-–—]\s+)(.+)", re.DOTALL)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}|\$([^$]*)\$")
_DIGITS = re.compile(r"(?![0-9])\d")  # of other scripts: a number in them is none of ours
# what a formula is made of; other commands are words, or claim more than a value (`\neq`, `\pm`)
_COMMANDS = {"frac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "div", "left", "right", "ln"}
_COMMANDS |= {"log", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "exp"}
_COMMANDS |= {"binom", "begin", "end"}
_ENVIRONMENTS = {"matrix", "pmatrix", "bmatrix"}
_NAMES = {"sqrt", "pi", "sin", "cos", "tan", "log", "ln", "exp"}


def is_right(item: Item, answer: str) -> bool:
    """Whether an answer is, as it stands, one of the right ones."""
    return _edged(answer) in {_edged(text) for text in item.right}


def read(item: Item, text: str, take: str = "auto") -> str:
    """The answer in a text (`answers.py`). Where nothing marks it and there are choices, lines
    that name different ones are a list, which is no answer."""
    answer = answer_of(text, take)
    lines = text.strip().rsplit("\n", MOST_CHOICES)
    if item.choices and answer and answer == lines[-1].strip():
        named = {chosen(item, line) for line in lines if len(line) < LONGEST} - {None}
        return answer if len(named) < 2 else ""
    return answer


def exact(item: Item, answer: str) -> float:
    return float(is_right(item, answer))


def number_equal(item: Item, answer: str) -> float:
    value = number(answer, item.question)
    right = {number(text, item.question) for text in item.right}
    return float(value is not None and value in right)


def letter(item: Item, answer: str) -> float:
    return float(chosen(item, answer) == item.right[0])


def chosen(item: Item, answer: str) -> str | None:
    """The letter of the one choice that an answer names, or a short sentence around it."""
    named = _named(item, answer)
    if named is None and (framed := _FRAME.fullmatch(answer.strip(_EDGES))):
        return _named(item, framed["choice"])
    return named


def _named(item: Item, answer: str) -> str | None:
    bare = answer.strip(_EDGES + "()[]{}$")
    bare = re.sub(r"^\\(?:text|mathrm|textbf)\{([^{}]*)\}?$", r"\1", bare)
    names = [_edged(text) for text in item.choices]
    # a text that stands there twice names neither
    texts = {name: LETTERS[at] for at, name in enumerate(names) if names.count(name) == 1}
    if bare.upper() in item.letters and bare.isascii():
        return bare.upper()
    if _edged(answer) in texts:
        return texts[_edged(answer)]
    named = _LETTER.match(answer.strip())
    # a letter with a text names a choice where both are of the same one
    place = LETTERS.find(named[1].upper()) if named else -1
    if named and 0 <= place < len(names) and names[place] == _edged(named[2]):
        return LETTERS[place]
    return None


def contains(item: Item, answer: str) -> float:
    words, question = _words(answer), _words(item.question)
    return float(any(_holds(words, _words(text), question) for text in item.right))


def _holds(words: list[str], right: list[str], question: list[str]) -> bool:
    length = len(right)
    held = any(words[at : at + length] == right for at in range(len(words) - length + 1))
    return held and bool(right) and not _beside(words, right, question)


def f1(item: Item, answer: str) -> float:
    """The F1 of SQuAD's evaluation, over words without articles."""
    words, question = _words(answer), _words(item.question)
    return max(_shared(words, _words(text), question) for text in item.right)


def _shared(words: list[str], right: list[str], question: list[str]) -> float:
    target = [word for word in right if word not in _ARTICLES] or right
    plain = [word for word in words if word not in _ARTICLES] or words
    common = sum((Counter(plain) & Counter(target)).values())
    if not common or 3 * _beside(words, right, question) >= common:
        return 0.0
    return 2 * common / (len(plain) + len(target))


def _beside(words: list[str], right: list[str], question: list[str]) -> int:
    """How many words of an answer may be another answer: neither right ones nor glue nor, where
    the right answer is not in the question, words of the question. A denial, and one number beside
    another, spoil all."""
    others = Counter(words) - Counter(right)
    free = set() if set(right) <= set(question) else set(question)
    numbers = any(word[0].isdigit() for word in right)
    if _DENIALS & others.keys() or (numbers and any(word[0].isdigit() for word in others)):
        return len(words) + len(right)
    return sum(count for word, count in others.items() if word not in _GLUE and word not in free)


def mathematics(item: Item, answer: str) -> float | None:
    """1 or 0 where that is plain; None where math-verify must look, behind the wall."""
    if not any("=" in text for text in item.right):
        answer = re.sub(r"^\s*[A-Za-z]\s*=", "", answer)
    # the unit of a right answer may stand behind another one, too
    told = " ".join((item.question, *item.right))
    value, numbers = number(answer, told), [number(text, told) for text in item.right]
    if None not in numbers:
        # a sum that is not worked out is equal too, and solves nothing
        return float(value is not None and value in numbers)
    return None if any(_is_formula(answer, text, item.question) for text in item.right) else 0.0


def _is_formula(answer: str, right: str, question: str) -> bool:
    """Whether an answer is a formula that claims no more than the right one does, and is not just
    one that stands in the question."""
    squeezed = ["".join(text.replace("$", "").split()) for text in (answer, right, question)]
    if not squeezed[0] or (squeezed[0] in squeezed[2] and squeezed[1] not in squeezed[2]):
        return False
    known = re.findall(r"\\([A-Za-z]+)", right)
    commands = set(re.findall(r"\\([A-Za-z]+)", answer)) - set(known)
    words = set(re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", answer))
    words -= {*re.findall(r"[A-Za-z]{2,}", right), *_NAMES, *_ENVIRONMENTS}
    signs = set("=<>≠≤≥~≈,;|?!") & (set(answer) - set(right))
    return not (words or signs or commands - _COMMANDS)


def _edged(text: str) -> str:
    """A text for comparison. An end that is no word at all, as in `C++`, stays."""
    folded = fold(text)
    if wrapped := _WRAPPED.fullmatch(folded.strip(". ")):
        folded = (wrapped[1] or wrapped[2] or "").strip()
    return folded.strip(_EDGES) or folded


def _words(text: str) -> list[str]:
    return _WORD.findall(fold(text))


GRADERS: dict[str, Callable[[Item, str], float | None]] = {
    "exact": exact,
    "number": number_equal,
    "letter": letter,
    "math": mathematics,
    "contains": contains,
    "f1": f1,
}


def score(item: Item, answer: str) -> float | None:
    """What the item's grader pays; None where `math` must ask its worker."""
    if not answer or len(answer) > LONGEST:
        return 0.0
    if _DIGITS.search(answer) and not any(map(_DIGITS.search, item.right)):
        return 0.0
    # whatever a grader makes of it: this is the right answer
    if item.grader != "letter" and is_right(item, answer):
        return 1.0
    return GRADERS[item.grader](item, answer)
