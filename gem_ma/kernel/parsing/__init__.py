"""Reading an answer: text -> the legal string it names, or the tool calls it holds. The one parser
of the views, behaviours and local engines.

A wrong answer is data. Nothing here raises on a model's text, evaluates it, or repairs it in
silence.
"""

from __future__ import annotations

from collections.abc import Sequence

from gem_ma.kernel.parsing.calls import DECODED, EXCERPT, numbered, offered, read_call
from gem_ma.kernel.parsing.formats import FORMATS, HERMES, Format
from gem_ma.kernel.parsing.json_calls import Calls
from gem_ma.kernel.parsing.legal import parse_legal
from gem_ma.kernel.parsing.reasoning import split_reasoning
from gem_ma.kernel.parsing.strict_json import MAX_CALLS, MAX_DEPTH, MAX_DIGITS, MAX_TEXT
from gem_ma.kernel.parsing.text import clean, fold
from gem_ma.kernel.types import Action, Malformed, Tool

__all__ = [
    "DECODED",
    "EXCERPT",
    "FORMATS",
    "MAX_CALLS",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_TEXT",
    "Format",
    "clean",
    "fold",
    "offered",
    "parse_action",
    "parse_legal",
    "parse_tool_calls",
    "read_call",
    "split_reasoning",
]


def parse_action(
    text: str, legal: Sequence[str] | None = None, tools: Sequence[Tool] = ()
) -> Action:
    """An Action out of plain text: legal strings where a choice is closed, tool calls where
    tools are offered. What was thought in it (`split_reasoning`) is not a part of the action."""
    text = split_reasoning(clean(text))[1]
    # tools first: an answer with a call in it is not a choice among legal strings
    if tools:
        rest, calls = parse_tool_calls(text)
        if calls:
            return Action(rest, calls, None)
    return Action(text, (), parse_legal(text, legal) if legal is not None else None)


def parse_tool_calls(
    text: str, tool_format: str = "hermes", *, tools: Sequence[Tool] = (), finish: str = "stop"
) -> tuple[str, Calls]:
    """Tool calls in `text`, in order, and the text around them; `tool_format` is a key of
    `FORMATS`, described in `gem_ma.kernel.parsing.formats`.

    What cannot be read is a `Malformed` whose reason opens with its kind: bad_json, bad_xml,
    bad_python, not_object, missing_name, bad_arguments, too_many, too_large; with `finish="length"`
    also truncated_call, for a last call that the limit cut. `tools` give the types of xml values. A
    call whose arguments were decoded twice says so in `repaired`. Raises ValueError for an unknown
    format only.

    >>> parse_tool_calls('[f(a=1)]', "python")
    ('', (ToolCall(id='call_0', name='f', arguments={'a': 1}),))
    """
    if tool_format not in FORMATS:
        raise ValueError(
            f"no tool format is called {tool_format!r}; formats are {', '.join(FORMATS)}"
        )
    text = clean(text)
    reader = FORMATS[tool_format]
    # most text holds no call; a search is cheaper than a reader
    called = reader.opens(text)
    falls_back = tool_format != "hermes" and HERMES.search(text)
    if not called and not falls_back:
        return text, ()
    if len(text) > MAX_TEXT:  # plain text may be long
        reason = f"too_large: {len(text)} characters, the limit is {MAX_TEXT}"
        return "", (Malformed(text[:EXCERPT], reason),)
    cut = finish == "length"
    rest, calls = reader.read(text, tools, cut) if called else (text, ())
    if falls_back and HERMES.search(rest):
        rest, more = FORMATS["hermes"].read(rest, tools, cut)
        calls += tuple(numbered(call, len(calls) + place) for place, call in enumerate(more))
    return rest, calls
