"""Which legal string an answer names, where a choice is closed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache

from gem_ma.parsing.calls import json_call
from gem_ma.parsing.strict_json import MAX_TEXT
from gem_ma.parsing.text import fold
from gem_ma.types import ToolCall

_MARKS = (("\\boxed{", "}"), ("[", "]"), ("<action>", "</action>"))


def parse_legal(text: str, legal: Sequence[str]) -> str | None:
    r"""The legal string that `text` names, or None. Two matches are no match.

    Order: exact; the last marked answer (``\boxed{}``, ``[...]``, ``<action>``, JSON call); folded;
    the only one contained in the last line.

    >>> parse_legal("I think [Bet]", ("check", "bet"))
    'bet'
    >>> parse_legal("check or bet?", ("check", "bet")) is None
    True
    """
    if text in legal:
        return text
    # an exact match costs nothing at any length; searching does
    if len(text) > MAX_TEXT:
        return None
    folded = _folded(tuple(legal))
    # a mark is what the model means as its answer, whatever else it says; all end with one of these
    marked = _marked(text) if "}" in text or "]" in text or ">" in text else None
    if marked is not None:
        if marked.strip() in legal:
            return marked.strip()
        if (key := fold(marked)) in folded:
            return folded[key]
    whole = fold(text)
    if whole in folded:
        return folded[whole]
    # models argue first and decide last
    last_line = fold(text.strip().rsplit("\n", 1)[-1]) if "\n" in text else whole
    contained = [
        key
        for key in folded
        if key and key in last_line and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", last_line)
    ]
    return folded[contained[0]] if len(contained) == 1 else None


# a list that loses a string with every turn holds the others again and again
_fold_choice = lru_cache(maxsize=4096)(fold)


@lru_cache(maxsize=512)
def _folded(legal: tuple[str, ...]) -> dict[str, str | None]:
    """Folded form -> legal string; None where two legal strings share the form, because then it
    names neither."""
    folded: dict[str, str | None] = {}
    # a choice that stands twice is still one
    for choice in dict.fromkeys(legal):
        key = _fold_choice(choice)
        folded[key] = None if key in folded else choice
    return folded


def _marked(text: str) -> str | None:
    """What stands in the mark that opens last. Searched from the end, so that a text full of
    opening marks costs no more than its length."""
    last, answer = -1, None
    for opening, closing in _MARKS:
        end = text.rfind(closing)
        start = text.rfind(opening, 0, end) if end >= 0 else -1
        if start > last:
            inside = text[start + len(opening) : end].split(closing, 1)[0]
            last, answer = start, inside.removeprefix("\\text{")
    if answer is not None:
        return answer
    stripped = text.strip()
    if stripped.startswith("{"):
        call = json_call(stripped, 0)[0]
        if isinstance(call, ToolCall) and len(call.arguments) == 1:
            value = next(iter(call.arguments.values()))
            return value if isinstance(value, str) else json.dumps(value)
    return None
