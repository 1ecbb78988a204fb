"""The ways in which models write tool calls in their text, one function each: text -> (the text
around them, the calls).

A reader is called only with text in which its format may open (`OPENS`).

hermes   `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number; or one such object
         and nothing else
xml      `<function=name><parameter=key>value</parameter></function>`, in `<tool_call>` tags or
         without; values typed by the tool's schema
llama    `{"name": ..., "parameters": {...}}` and nothing else, several parted by `;`; or after
         `<|python_tag|>`, as `name.call(key="value")` too
python   `[f(a=1, b="x"), g()]` and nothing else, or between `<|python_start|>` and
         `<|python_end|>`
mistral  `[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, or `[TOOL_CALLS]name[ARGS]{...}`
         repeated

JSON is decoded from its start on, so an end tag inside a string does no harm. Python is read as
a syntax tree of literals and never run. The last call of a reply that its token limit cut is a
`Malformed` of kind truncated_call, unless its end is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gem_ma.parsing.calls import EXCERPT, cut_off, json_call, numbered, read_call
from gem_ma.parsing.python_calls import python_calls
from gem_ma.parsing.strict_json import DECODER, MAX_CALLS, MAX_DEPTH
from gem_ma.parsing.text import after_space, clean
from gem_ma.parsing.xml_calls import FUNCTION, xml_call
from gem_ma.types import Malformed, Tool, ToolCall

Calls = tuple[ToolCall | Malformed, ...]
Reader = Callable[[str, Sequence[Tool], bool], tuple[str, Calls]]

_TAG, _END = "<tool_call>", "</tool_call>"
_PYTHON_TAG, _PYTHON_START, _PYTHON_END = "<|python_tag|>", "<|python_start|>", "<|python_end|>"
_LLAMA_KEYS = ("parameters", "arguments")
# Llama's own search tools are called like this
_BUILT_IN = re.compile(r"\s*[A-Za-z_]\w*\.call\(")
_LIST_OF_CALLS = re.compile(r"\s*\[\s*[A-Za-z_][\w.]*\s*\(")
_TOOL_CALLS, _ARGS = "[TOOL_CALLS]", "[ARGS]"
# possessive: nothing is tried twice
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+(?:\[CALL_ID\]\s*+\w*+\s*+)?(?:\[ARGS\])?\s*+(?=\{)")


def hermes(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """See the module."""
    if _TAG not in text:
        bare = text.strip()
        call, end = json_call(bare, 0)
        return ("", (call,)) if isinstance(call, Malformed) or end == len(bare) else (text, ())
    calls: list[ToolCall | Malformed] = []
    rest: list[str] = []
    position = 0
    while (start := text.find(_TAG, position)) >= 0:
        rest.append(text[position:start])
        # a loop of a broken model could write thousands; all but the first are noise
        if len(calls) == MAX_CALLS:
            calls.append(_too_many(text, start))
            position = len(text)
            break
        call, end = json_call(text, start + len(_TAG), len(calls))
        # searched from the end of the JSON, so that a tag inside of a string is not seen
        close, following = text.find(_END, end), text.find(_TAG, end)
        # the tags behind stand inside that string
        ran_out = cut and isinstance(call, Malformed) and "Unterminated string" in call.reason
        closed = close >= 0 and (following < 0 or close < following) and not ran_out
        if closed:
            position = close + len(_END)
        elif isinstance(call, ToolCall):
            position = end  # no end tag: what follows the JSON is text again
        else:
            position = following if following >= 0 and not ran_out else len(text)
        is_cut = ran_out or (cut and not closed and following < 0)
        calls.append(cut_off(call, text[start:]) if is_cut else call)
    rest.append(text[position:])
    return "".join(rest).strip(), tuple(calls)


def xml(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """See the module."""
    schemas = {tool.name: tool.parameters for tool in tools}
    if FUNCTION.search(text) is None:
        return hermes(text, tools, cut)
    calls: list[ToolCall | Malformed] = []
    rest: list[str] = []
    position = 0
    while (opening := FUNCTION.search(text, position)) is not None:
        rest.append(text[position : opening.start()])
        if len(calls) == MAX_CALLS:
            calls.append(_too_many(text, opening.start()))
            position = len(text)
            break
        call, end, whole = xml_call(text, opening.end(), len(calls), schemas)
        calls.append(call if whole or not cut else cut_off(call, text[opening.start() :]))
        position = end
    rest.append(text[position:])
    return "".join(rest).strip(), tuple(calls)


def llama(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """See the module."""
    before, tag, inside = text.partition(_PYTHON_TAG)
    if not tag:
        before, inside = "", text
    if tag and _BUILT_IN.match(inside):
        calls = python_calls(f"[{inside}]", drop=".call")
        # a syntax tree knows no beginning of a call: only the last one can be cut
        if cut and isinstance(calls[-1], Malformed):
            calls = (*calls[:-1], cut_off(calls[-1], inside))
        return before.strip(), calls
    listed: list[ToolCall | Malformed] = []
    position = 0
    while (position := after_space(inside, position)) < len(inside):
        if len(listed) == MAX_CALLS:
            listed.append(_too_many(inside, position))
            break
        call, end = json_call(inside, position, len(listed), _LLAMA_KEYS)
        following = after_space(inside, end)
        if (
            not tag
            and not listed
            and isinstance(call, ToolCall)
            and following < len(inside)
            and inside[following] not in ";{"
        ):
            return text, ()  # an object in the middle of a text
        if isinstance(call, Malformed) and end == position:  # where it ends cannot be known
            listed.append(cut_off(call, inside[position:]) if cut else call)
            break
        listed.append(call)
        # models part calls by a comma too
        position = following + (inside[following : following + 1] in (";", ","))
    return before.strip(), tuple(listed)


def python(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """See the module."""
    before, tag, inside = text.partition(_PYTHON_START)
    after, closed = "", False
    if tag:
        inside, end, after = inside.partition(_PYTHON_END)
        closed = bool(end)
    else:
        before, inside = "", text
        if not inside.rstrip().endswith("]"):
            if not cut:
                return text, ()
            return "", (cut_off(Malformed("", "bad_python: the list has no end"), inside),)
    calls = python_calls(inside)
    if cut and not closed and len(calls) == 1 and isinstance(calls[0], Malformed):
        calls = (cut_off(calls[0], inside),)
    return (before + after).strip(), calls


def mistral(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """See the module."""
    before, _, inside = text.partition(_TOOL_CALLS)
    calls: list[ToolCall | Malformed] = []
    at = after_space(inside, 0)
    if inside.startswith("[", at):
        rest = _array_of_calls(inside, at + 1, calls, cut)
    else:
        rest = _named_calls(inside, calls, cut)
    return (before + rest).strip(), tuple(calls)


def _array_of_calls(text: str, position: int, calls: list[ToolCall | Malformed], cut: bool) -> str:
    """Reads `{...}, {...}]` one by one, so that a bad call costs no good one before it; gives
    the text behind."""
    while True:
        position = after_space(text, position)
        if text.startswith("]", position):
            return text[position + 1 :]
        if len(calls) == MAX_CALLS:
            calls.append(_too_many(text, position))
            return ""
        call, end = json_call(text, position, len(calls))
        following = after_space(text, end)
        # the list does not go on: its end cannot be known
        if end == position or text[following : following + 1] not in (",", "]"):
            if end > position and isinstance(call, ToolCall):
                calls.append(call)
                if cut or following < len(text):
                    why = "truncated_call: cut by max_tokens" if cut else "bad_json: no ] or ,"
                    calls.append(Malformed(text[following : following + EXCERPT], why))
            else:
                calls.append(cut_off(call, text[position:]) if cut else call)
            return ""
        calls.append(call)
        position = following + 1 if text[following] == "," else following


def _named_calls(text: str, calls: list[ToolCall | Malformed], cut: bool) -> str:
    """Reads `name[ARGS]{...}`, repeated after further marks; gives the text behind."""
    position = 0
    while True:
        if len(calls) == MAX_CALLS:
            calls.append(_too_many(text, position))
            return ""
        raw = text[position : position + EXCERPT]
        name = _NAME.match(text, position)
        if name is None:
            fault = Malformed(raw, "missing_name: a call is [TOOL_CALLS]name[ARGS]{...}")
            calls.append(cut_off(fault, text[position:]) if cut else fault)
            return ""
        try:
            value, end = DECODER.raw_decode(text, name.end())
            call, broken = numbered(read_call("", name.group(1), value), len(calls)), False
        except (ValueError, RecursionError) as error:
            end, broken = len(text), True
            why = error if isinstance(error, ValueError) else f"nested deeper than {MAX_DEPTH}"
            call = Malformed(raw, f"bad_json: {why}")
        calls.append(cut_off(call, text[position:]) if broken and cut else call)
        following = after_space(text, end)
        if not text.startswith(_TOOL_CALLS, following):
            return text[end:]
        position = following + len(_TOOL_CALLS)


def _is_object(text: str) -> bool:
    bare = text.strip()
    return bare.startswith("{") and bare.endswith("}") and '"name"' in bare


def _too_many(text: str, position: int) -> Malformed:
    return Malformed(
        clean(text[position : position + EXCERPT]),
        f"too_many: more than {MAX_CALLS} calls in one turn",
    )


FORMATS: Mapping[str, Reader] = {
    "hermes": hermes,
    "xml": xml,
    "llama": llama,
    "python": python,
    "mistral": mistral,
}
# what a text needs so that it may hold a call; costs no more than a search
OPENS: Mapping[str, Callable[[str], bool]] = {
    "hermes": lambda text: _TAG in text or _is_object(text),
    "xml": lambda text: "<function=" in text or _TAG in text or _is_object(text),
    "llama": lambda text: _PYTHON_TAG in text or (text.lstrip()[:1] == "{" and '"name"' in text),
    "python": lambda text: _PYTHON_START in text or _LIST_OF_CALLS.match(text) is not None,
    "mistral": lambda text: _TOOL_CALLS in text,
}
