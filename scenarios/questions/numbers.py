r"""Numbers as answers give them: `42`, `1,000`, `-3/4`, `\frac{3}{4}`, `$42`, `x = 42`, `42 km`.

Strict: a text is one number or none. "The total is 42" and "6 * 7 = 42" are one, and so is a
sentence of small words and words of the question around a number. Any other sentence, a second
number, a sum that is not worked out, or a fraction that is not in lowest terms is none.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import gcd
from unicodedata import normalize

from gem_ma.kernel.parsing.text import fold

LONGEST = 80  # characters; no answer needs more, and long ones cost time
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
# three digits of exponent: more would be a number that fills the memory
_NUMBER = re.compile(rf"([-+]?)({_UNSIGNED})(?:[eE]([-+]?\d{{1,3}}))?", re.ASCII)
_FRACTION = re.compile(r"([-+]?)(?:(\d+) +)?(\d+) ?/ ?([-+]?\d+)", re.ASCII)
# of single digits LaTeX wants no braces; a number before it is the whole of a mixed one
_PART = r"\s*(?:\{\s*([-+]?\d+)\s*\}|(\d))"
_LATEX_FRACTION = re.compile(rf"\\[dt]?frac{_PART}{_PART}(?!\d)", re.ASCII)
_VULGAR = re.compile("[¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_NARROW = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3})")  # spaces that part thousands
_SPACED = re.compile(r"(?<![\d.,/])\d{1,3}(?: \d{3})+(?![\d/]| \d)", re.ASCII)
_STARS = re.compile(r"(?<![\w)])\*\*|\*\*(?![\w(])")  # of bold type; those of a power stay
_BEFORE = re.compile(r"(?:(?:[A-Za-z](?:\([A-Za-z]\))?)?\s*=\s*)?(?:\\?\$|€|£)?\s*", re.ASCII)
# "The total is 42": nothing in it says more than the number does
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore|it|is|its|there|are|was|were|the|that|this|total|sum|result"
    r"|value|final|answer|equals)\b[,:]?\s*)+(?=\S)",
    re.IGNORECASE,
)
# "6 * 7 = 42": the sum is worked out
_TERM = r"[$(]*(?:\d+(?:\.\d+)?)[)%]*"
_SUM = re.compile(
    rf"\A{_TERM}(?:\s*(?:[-+−–*/×÷·x]|\\times|\\cdot|\\div)\s*{_TERM}){{1,12}}\s*=\s*(?=[^=]+$)",
    re.ASCII,
)
_MINUS = re.compile(r"(?:minus|negative)\s+(?=\d)|[–](?=\d)", re.IGNORECASE)
_UNIT = re.compile(r"\\(?:text|mathrm|textbf)\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]+")
# what may stand around a number
_PAIRS = [
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("**", "**"),
    ("\\left(", "\\right)"),
    ("(", ")"),
]
# units that a question says by a sign, or by what is measured
_SAID_SO = {"dollars": "$", "dollar": "$", "euros": "€", "pounds": "£", "degrees": "angle"}
# they change what is said, wherever the question has them too
_NO_UNITS = {"not", "no", "or", "and", "to", "than", "more", "less", "never", "about", "but"}
# these too, in a sentence: half of 84 is another number
_CHANGES = {
    "half",
    "third",
    "quarter",
    "twice",
    "double",
    "triple",
    "times",
    "plus",
    "minus",
    "per",
}
_CHANGES |= {"over", "under", "above", "below", "between", "before", "after", "from", "without"}
_CHANGES |= {"least", "most", "except", "almost", "nearly", "around", "percent", "if", "any", "all"}
_SMALL = {"the", "a", "an", "it", "s", "is", "are", "was", "were", "be", "will", "would", "there"}
_SMALL |= {"this", "that", "so", "thus", "hence", "therefore", "then", "in", "of", "total", "sum"}
_SMALL |= {
    "result",
    "value",
    "number",
    "answer",
    "final",
    "makes",
    "make",
    "has",
    "have",
    "get",
    "we",
}
_SENTENCE = 200  # characters


def number(text: str, question: str = "") -> Fraction | None:
    """The one number that a text is, None for everything else. Words behind it are its unit where
    the question has them.

    >>> number("1,250.50"), number("40-44"), number("42 apples", "How many apples?")
    (Fraction(2501, 2), None, Fraction(42, 1))
    """
    if text.isdecimal() and text.isascii() and len(text) <= LONGEST:
        return Fraction(int(text))  # most answers of most data
    text = _plain(text)
    if (part := _sentence_number(text, question)) is not None:
        text = part
    if not text or len(text) > LONGEST:
        return None
    for before in (_LEAD, _BEFORE, _SUM, _BEFORE):
        if start := before.match(text):
            text = text[start.end() :]
    text = _MINUS.sub("-", text, count=1) if _MINUS.match(text) else text
    text = re.sub(r" ?percent$", "%", text) if "percent" not in question.casefold() else text
    percent = text.endswith("%") and "%" not in question and "percent" not in question.casefold()
    text = text.removesuffix("%").rstrip()
    fraction = _FRACTION.match(text)
    match = fraction or _NUMBER.match(text)
    if match is None or not _is_unit(text[match.end() :], question):
        return None
    value = _fraction(match) if fraction else _decimal(match)
    return value / 100 if percent and value is not None else value


def _plain(text: str) -> str:
    """The text without its LaTeX."""
    text = text.strip().rstrip(".").strip()
    for opening, closing in _PAIRS:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening):
            text = text[len(opening) : -len(closing)].strip()
    if len(text) > 4 * LONGEST:  # before expressions search it
        return ""
    text = _STARS.sub("", _NARROW.sub("", text.replace("−", "-")))
    text = _SPACED.sub(lambda m: m[0].replace(" ", ""), text)
    text = re.sub(r"^\$([^$]*)\$(?=\s)", r"\1", text)
    text = _LATEX_FRACTION.sub(lambda m: f" {m[1] or m[2]}/{m[3] or m[4]}", text)
    text = _VULGAR.sub(lambda m: f" {normalize('NFKC', m[0])}".replace("⁄", "/"), text).strip()
    text = re.sub(r"^([-+]) ", r"\1", text)
    text = _UNIT.sub(r" \1", text).replace("{,}", ",").replace("\\,", "").replace("\\!", "")
    for mark in ("^\\circ", "^{\\circ}", "°"):
        text = text.removesuffix(mark)
    return text.replace("\\%", "%").strip().rstrip(".")


def _sentence_number(text: str, question: str) -> str | None:
    """The one part of a sentence that holds digits, where all others are small words or words of
    the question, which is not just said again."""
    parts = text.split()
    if len(parts) < 2 or len(text) > _SENTENCE or fold(text) in fold(question):
        return None
    figures = [part for part in parts if any(map(str.isdigit, part))]
    words = _WORDS.findall(" ".join(part for part in parts if part not in figures).casefold())
    allowed = (set(_WORDS.findall(question.casefold())) - _NO_UNITS - _CHANGES) | _SMALL
    others = "".join(part for part in parts if part not in figures)
    if len(figures) != 1 or not words or not allowed.issuperset(words):
        return None
    # a sign between words would say more
    return figures[0].strip(".,:") if not _WORDS.sub("", others).strip(".,:'’=") else None


def _is_unit(rest: str, question: str) -> bool:
    words = _WORDS.findall(rest.casefold())
    if not rest.strip():
        return True
    # a sign between them would make it a sum, a range or a list
    if not rest[:1].isspace() or not _WORDS.sub("", rest).replace(".", "").isspace():
        return False
    known = set(_WORDS.findall(question.casefold())) - _NO_UNITS
    known |= {unit for unit, sign in _SAID_SO.items() if sign in question.casefold()}
    return len(words) <= 3 and known.issuperset(words)


def _decimal(match: re.Match[str]) -> Fraction:
    power = Fraction(10) ** int(match[3] or 0)
    return Fraction(match[1] + match[2].replace(",", "")) * power


def _fraction(match: re.Match[str]) -> Fraction | None:
    whole = int(match[2] or 0)
    above = int(match[3])
    below = int(match[4])
    # in other terms it may be the very sum that was asked for: 84/2
    if below <= 1 or gcd(above, below) != 1 or (match[2] and above > below):
        return None
    return (whole + Fraction(above, below)) * (-1 if match[1] == "-" else 1)
