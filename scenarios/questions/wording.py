"""Words of an answer: its edges, the small words that carry none, and those that deny one."""

from __future__ import annotations

import re
from unicodedata import normalize

from gem_ma.kernel.parsing.text import fold

_QUOTES = "\"'`“”‘’«»"
_OPENING = f" \t{_QUOTES}*_,;:"
EDGES = f"{_OPENING}.!?"
# `C++` and `C#` are other words than `C`
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W_]+(?:[+#]+(?!\w))?")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}|\$([^$]*)\$")
# what denies a text, or says more or less than it
_SIGNS = re.compile(r"[≠¬<>≤≥~≈]|!=|(?<!\w)!(?=\w)|\\(?:neq?|neg|lnot|not)\b")
ARTICLES = {"a", "an", "the"}
DENIALS = {"not", "no", "never", "neither", "nor", "none", "cannot", "isn", "wasn", "aren", "don"}
# they deny a text as well, unless the question is about them
DOUBTS = {"wrong", "incorrect", "false", "untrue", "except", "hardly", "without", "opposite"}
DOUBTS |= {"doubt", "unlikely", "instead"}
# they carry no answer, so that a sentence may stand around one
GLUE = ARTICLES | {"is", "was", "are", "were", "be", "it", "its", "this", "that", "i", "of", "in"}
GLUE |= {"on", "at", "to", "by", "as", "so", "s", "there", "think", "believe"}
GLUE |= {"called", "named", "known", "located", "written", "made", "happened", "ended", "began"}
SMALL = GLUE | DENIALS | {"and", "or"}


def bare(text: str, around: str = "") -> str:
    """The text without the marks around it, and without `around`. A dot or a `!` before it stays:
    `.5` is another number than 5, and `!x` is not x."""
    return text.rstrip(EDGES + around).lstrip(_OPENING + around)


def edged(text: str) -> str:
    """A text for comparison. An end that is not a word at all, as in `C++`, stays."""
    folded = fold(normalize("NFC", text))
    if wrapped := _WRAPPED.fullmatch(folded.strip(". ")):
        folded = (wrapped[1] or wrapped[2] or "").strip()
    return bare(folded) or folded


def words_of(text: str) -> list[str]:
    return _WORD.findall(fold(normalize("NFC", text)))


def signs_of(text: str) -> set[str]:
    return set(_SIGNS.findall(text))
