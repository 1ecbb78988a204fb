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
from gem_ma.scenarios.questions.choosing import chosen, plainly_chosen
from gem_ma.scenarios.questions.items import Item
from gem_ma.scenarios.questions.numbers import number
from gem_ma.scenarios.questions.wording import (
    ARTICLES,
    DENIALS,
    DOUBTS,
    GLUE,
    SMALL,
    bare,
    edged,
    signs_of,
    words_of,
)

LONGEST = 4_000  # characters of an answer, which is the last line of a text or shorter
MOST_CHOICES = 64  # lines that are looked at
# letters, which are taken away where a number stands in a sentence
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"(?![0-9])\d")  # of other scripts: a number in them is none of ours
# `x = 3`, `x = 1, x = 2` and `x \\in S` name what is asked for
_VARIABLE = re.compile(r"(?:^|(?<=,)|(?<=\bor\b)|(?<=\band\b))\s*[A-Za-z]\s*(?:=|\\in\b)")
_JOINED = re.compile(r"(?<!\s)\s+(?:or|and|\\text\{\s*(?:or|and)\s*\})\s+")
# what a formula is made of; other commands are words, or claim more than a value (`\neq`, `\pm`)
_COMMANDS = {"frac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "div", "left", "right", "ln"}
_COMMANDS |= {"log", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "exp"}
_COMMANDS |= {"binom", "begin", "end"}
_ENVIRONMENTS = {"matrix", "pmatrix", "bmatrix"}
_NAMES = {"sqrt", "pi", "sin", "cos", "tan", "log", "ln", "exp"}


def is_right(item: Item, answer: str) -> bool:
    """Whether an answer is, as it stands, one of the right ones."""
    return edged(answer) in {edged(text) for text in item.right}


def read(item: Item, text: str, take: str = "auto") -> str:
    """The answer in a text (`answers.py`). Where nothing marks it and there are choices, lines
    that name different ones are a list, which is not an answer."""
    answer = answer_of(text, take)
    lines = text.strip().rsplit("\n", MOST_CHOICES)
    if item.choices and answer and answer == lines[-1].strip():
        named = {plainly_chosen(item, line) for line in lines if len(line) < LONGEST} - {None}
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


def contains(item: Item, answer: str) -> float:
    return float(any(_holds(item, answer, text) for text in item.right))


def _holds(item: Item, answer: str, right: str) -> bool:
    words = words_of(answer)
    target = words_of(right)
    size = len(target)
    held = any(words[at : at + size] == target for at in range(len(words) - size + 1))
    same = held and bool(target) and _says_no_less(item, answer, right)
    return same and not _beside(words, target, words_of(item.question))


def f1(item: Item, answer: str) -> float:
    """The F1 of SQuAD's evaluation, over words without articles."""
    return max(_shared(item, answer, text) for text in item.right)


def _shared(item: Item, answer: str, right: str) -> float:
    words = words_of(answer)
    question = words_of(item.question)
    whole = words_of(right)
    target = [word for word in whole if word not in ARTICLES] or whole
    plain = [word for word in words if word not in ARTICLES] or words
    shared = Counter(plain) & Counter(target)
    common = sum(shared.values())
    if SMALL.issuperset(target):
        enough = common == len(target)
    else:
        enough = not SMALL.issuperset(shared)  # small words alone say nothing of it
    beside = _beside(words, whole, question)
    doubted = (set(words) & DOUBTS) - set(whole) - set(question)
    if not enough or doubted or 3 * beside >= common or not _says_no_less(item, answer, right):
        return 0.0
    return 2 * common / (len(plain) + len(target))


def _says_no_less(item: Item, answer: str, right: str) -> bool:
    """Whether what stands around the words says the same: no sign that denies them, and of a right
    number its sign, its point and its unit."""
    if signs_of(answer) != signs_of(right):
        return False
    value = number(right, item.question)
    return value is None or value == number(bare(_LETTERS.sub(" ", answer)), item.question)


def _beside(words: list[str], right: list[str], question: list[str]) -> int:
    """How many words of an answer may be another answer: neither right ones nor glue nor, where
    the right answer is not in the question, words of the question. A denial, and one number beside
    another, spoil all."""
    others = Counter(words) - Counter(right)
    free = set() if set(right) <= set(question) else set(question)
    numbers = any(word[0].isdigit() for word in right)
    if DENIALS & others.keys() or (numbers and any(word[0].isdigit() for word in others)):
        return len(words) + len(right)
    return sum(count for word, count in others.items() if word not in GLUE and word not in free)


def mathematics(item: Item, answer: str) -> float | None:
    """1 or 0 where that is plain; None where math-verify must look, behind the wall."""
    if not any("=" in text for text in item.right):
        answer = _VARIABLE.sub("", answer)
    if all(text.startswith("\\{") for text in item.right):
        answer = _JOINED.sub(", ", answer)
    # the unit of a right answer may stand behind another one, too
    told = " ".join((item.question, *item.right))
    value = number(answer, told)
    numbers = [number(text, told) for text in item.right]
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
