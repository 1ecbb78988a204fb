"""Which legal string an answer names, where a choice is closed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from gem_ma.kernel.parsing.calls import json_call
from gem_ma.kernel.parsing.reasoning import split_reasoning
from gem_ma.kernel.parsing.strict_json import MAX_TEXT
from gem_ma.kernel.parsing.text import clean, fold
from gem_ma.kernel.types import Action, Tool, ToolCall, maker

make_action = maker(Action)
_MARKS = (
    ("\\boxed{", "}"),
    ("[", "]"),
    ("<action>", "</action>"),
    ("<answer>", "</answer>"),
)
# in front of a move that is named and not meant, up to four words before it in the same clause
_DENIES = re.compile(
    r"(?:(?<!why )\b(?:not|never|cannot|neither|nor|without|avoid|avoiding|against|refuse|decline"
    r"|except|dont|wont|cant|instead of|rather than|other than|anything but)|n['’]t)\b"
    r"(?: (?!(?:but|so|then|because|since|hence|therefore|instead|rather)\b)[\w'’]{1,30}){0,4}"
    r"[^\w,.;:!?]{0,20}$|\bno $"
)
_REJECTS = re.compile(
    r"[\"'*_`)\]]{0,9}(?:\? no\b| (?:is|was|would be)(?:n['’]t| not| wrong| bad| out)\b)"
)
_STOPS = ",.;:!?"  # no denial goes on behind one of them
_CLAUSE = 160  # characters in front of a move
_SHORT = 64  # characters of an answer that is remembered
_LINES = 4  # last ones, where all behind the one that counts only say what is not meant


def parse_legal(text: str, legal: Sequence[str]) -> str | None:
    r"""The legal string that `text` names, or None. Two matches count as none.

    Order: exact; the last marked answer (``\boxed{}``, ``[...]``, ``<action>``, ``<answer>``, JSON
    call); folded; the only one contained in the last line. What is named to be denied ("not bet")
    is not meant; a line that only denies leaves the choice to the line before it.

    >>> parse_legal("I think [Bet]", ("check", "bet"))
    'bet'
    >>> parse_legal("check or bet?", ("check", "bet")) is None
    True
    """
    return text if text in legal else _meant(text, legal)


def _meant(text: str, legal: Sequence[str]) -> str | None:
    """The same for a text that is none of the legal strings."""
    # an exact match costs nothing at any length; searching does
    if len(text) > MAX_TEXT:
        return None
    # a mark is what the model means as its answer, whatever else it says; all end with one of these
    marked = None
    if "}" in text or "]" in text or ">" in text:
        marked = (_marked if len(text) > _SHORT else _marked_short)(text)
        if marked is not None and (answer := marked.strip()) in legal:
            return answer
    folded = _folded(legal)
    if marked is not None and (key := fold(marked)) in folded:
        return _choice(folded, key)
    whole = fold(text)
    if whole in folded:
        return _choice(folded, whole)
    # models argue first and decide last
    lines = text.strip().rsplit("\n", _LINES)[-_LINES:]
    for line in reversed(lines):
        named = _named(fold(line) if len(lines) > 1 else whole, folded)
        if meant := [key for key, denied in named.items() if not denied]:
            return _choice(folded, meant[0]) if len(meant) == 1 else None
        if line.strip() and not named:
            return None
    return None


def _named(line: str, folded: _Choices) -> dict[str, bool]:
    """Folded choice that stands in a folded line -> whether it is only denied there."""
    return {
        key: all(_denied(line, place) for place in places)
        for key in folded
        if key and key in line
        if (places := [*re.finditer(rf"(?<!\w){re.escape(key)}(?!\w)", line)])
    }


def _denied(line: str, place: re.Match[str]) -> bool:
    before = line[max(0, place.start() - _CLAUSE) : place.start()]
    return bool(_DENIES.search(before) or _REJECTS.match(line, place.end()))


# a list that loses a string with every turn holds the others again and again
_MOST_KNOWN = 4096
_fold_choice = lru_cache(maxsize=_MOST_KNOWN)(fold)
_PLAIN: set[str] = set()  # choices that are their own folded form


# folded form -> legal string, None where two legal strings share the form, because then it names
# neither; or the legal strings themselves, where each is its own folded form
_Choices = Mapping[str, str | None] | Sequence[str]


def _folded(legal: Sequence[str]) -> _Choices:
    # a list that changes with every turn is seldom asked for twice: nothing is made of it
    return legal if _PLAIN.issuperset(legal) else _by_form(tuple(legal))


def _choice(folded: _Choices, key: str) -> str | None:
    return folded[key] if isinstance(folded, dict) else key


@lru_cache(maxsize=512)
def _by_form(legal: tuple[str, ...]) -> Mapping[str, str | None]:
    # a choice that stands twice is still one
    choices = dict.fromkeys(legal)
    folded: dict[str, str | None] = dict(zip(map(_fold_choice, choices), choices, strict=True))
    if len(folded) < len(choices):
        for key, several in Counter(map(_fold_choice, choices)).items():
            if several > 1:
                folded[key] = None
    if len(_PLAIN) < _MOST_KNOWN:
        _PLAIN.update(key for key, choice in folded.items() if key == choice)
    return folded


def _marked(text: str) -> str | None:
    """What stands in the mark that opens last. Searched from the end, so that a text full of
    opening marks costs no more than its length."""
    last = -1
    answer = None
    for opening, closing in _MARKS if ">" in text else _MARKS[:2]:
        end = text.rfind(closing)
        start = text.rfind(opening, 0, end) if end >= 0 else -1
        if start > last:
            inside = text[start + len(opening) : end].split(closing, 1)[0]
            last = start
            answer = inside.removeprefix("\\text{")
    if answer is not None:
        before = text[max(0, last - _CLAUSE) : last]
        # behind nothing, or a clause that is over, nothing is denied; the search takes long
        if before.rstrip()[-1:] in _STOPS:
            return answer
        # "not [bet]" marks what is not meant
        before = fold(before.rpartition("\n")[2])
        return None if before and _DENIES.search(before + " ") else answer
    stripped = text.strip()
    if stripped.startswith("{"):
        call = json_call(stripped, 0)[0]
        if isinstance(call, ToolCall) and len(call.arguments) == 1:
            value = next(iter(call.arguments.values()))
            return value if isinstance(value, str) else json.dumps(value)
    return None


# most models answer in a box and nothing else
_marked_short = lru_cache(maxsize=4096)(_marked)


def parse_action(
    text: str,
    legal: Sequence[str] | None = None,
    tools: Sequence[Tool] = (),
    *,
    is_inexact: bool = False,
) -> Action:
    """An Action out of plain text: legal strings where a choice is closed, tool calls where
    tools are offered. What was thought in it (`split_reasoning`) is not a part of the action.

    `is_inexact`: the text as a whole is not a legal string, as has been seen already.
    """
    whole = text
    text = split_reasoning(clean(text))[1]
    # tools first: an answer with a call in it is not a choice among legal strings
    if tools:
        # eight modules, which most plays never need
        from gem_ma.kernel.parsing.formats import parse_tool_calls

        rest, calls = parse_tool_calls(text)
        if calls:
            return Action(rest, calls, None)
    find = _meant if is_inexact and text is whole else parse_legal
    return make_action(text, (), find(text, legal) if legal is not None else None)
