"""Text that can be written, and the form in which legal strings must stay distinct."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The answer in a LaTeX box, as models of mathematics give it.

_OPENS = "\\boxed{"


def boxed(text: str) -> str:
    r"""What stands in the last box, braces matched; the whole text where no box is closed.

    >>> boxed(r"first \boxed{1}, but \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> boxed(" 12 ")
    '12'
    """
    start = text.rfind(_OPENS)
    depth = 0
    # from the opening brace
    for place in range(start + len(_OPENS) - 1, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start + len(_OPENS) : place].strip()
    return text.strip()


_SPACE = re.compile(r"\s*")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`])")

# An e-mail address. It begins at the edge of a word and is bounded (RFC 5321: 64, a label 63), so
# that searching costs no more than a text's length.
EMAIL_ADDRESS = r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"


def clean(text: str) -> str:
    """The text as a plain `str` (no member of an enum, none of numpy), with lone surrogates
    replaced, so that it can be written as UTF-8."""
    # `replace` turns each surrogate into a question mark, and the length stays
    return str.__str__(text) if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def joined_halves(pieces: Iterable[str]) -> str:
    """The pieces of a text as one; halves of a letter that came in two pieces are one letter, a
    lone half stays.

    >>> joined_halves(["Fine \\ud83d", "\\ude42."]) == "Fine \\U0001f642."
    True
    """
    text = "".join(pieces)
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def in_order(*parts: str) -> str:
    """An expression for lines that hold the parts one after the other; it costs no more than a
    line's length, unlike `a.*b.*c` in a search.

    It begins at the line's beginning, and what it has found it never looks for again. Good for
    yes or no: its match is more than the parts.
    """
    return "(?m:^)" + "".join(rf"(?>.*?(?:{part}))" for part in parts)


def fold(text: str) -> str:
    """The form in which legal strings must stay distinct: case folded, white space collapsed."""
    # casefold, not lower: it knows letters beyond ASCII
    return " ".join(text.casefold().split())


def after_space(text: str, position: int) -> int:
    """The first place from `position` on that holds no white space. Not `strip`: positions count
    in the whole text."""
    space = _SPACE.match(text, position)
    return space.end() if space else position


def first_sentence(text: str) -> str:
    """The first sentence of a docstring on one line, for lists; two where the first is but a name.

    >>> first_sentence("Finds a number\\nby guessing. Each guess costs.")
    'Finds a number by guessing.'
    """
    paragraph = " ".join(text.strip().split("\n\n", 1)[0].split())
    # a dot inside of a name or a number is followed by no space and no capital
    sentences = _SENTENCE_END.split(paragraph)
    return " ".join(sentences[: 1 if len(sentences[0].split()) > 2 else 2])
