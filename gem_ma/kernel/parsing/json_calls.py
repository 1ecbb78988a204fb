"""Calls that are JSON: `{"name": ..., "arguments": {...}}`, in tags, after a mark, in a list, or
alone. What each family calls its keys and its marks is in the functions.

JSON is decoded from its start on, so an end tag inside a string does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gem_ma.kernel.parsing.calls import (
    EXCERPT,
    cut_off,
    json_call,
    numbered,
    read_call,
    too_many,
)
from gem_ma.kernel.parsing.python_calls import python_calls
from gem_ma.kernel.parsing.strict_json import DECODER, MAX_CALLS, MAX_DEPTH
from gem_ma.kernel.parsing.text import after_space, clean
from gem_ma.kernel.types import Malformed, Tool, ToolCall

Calls = tuple[ToolCall | Malformed, ...]

TAG = "<tool_call>"
END = "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
TOOL_CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
# Llama's own search tools are called like this
_BUILT_IN = re.compile(r"\s*[A-Za-z_]\w*\.call\(")
# Llama 4 writes what it says in front of a call between these
_SAID_NOTHING = re.compile(r"\A\s*+<\|python_start\|>(?:<\|python_end\|>)?(?=\s*+\{)")
# possessive: nothing is tried twice
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+(?:\[CALL_ID\]\s*+\w*+\s*+)?(?:\[ARGS\])?\s*+(?=\{)")


class Keys(NamedTuple):
    """What a family calls the arguments and the name; without names, the tool is the one key."""

    arguments: tuple[str, ...] = ("arguments",)
    names: tuple[str, ...] = ("name",)


_PLAIN = Keys()
_LLAMA = Keys(("parameters", "arguments"))
_ANY = Keys(("arguments", "parameters"), ("name", "tool_name"))
# the mark in front -> (the mark behind, the keys)
MARKED = {
    "<tool_calls>": ("</tool_calls>", _ANY),
    "<TOOLCALL>": ("</TOOLCALL>", _ANY),
    "<|tool_call|>": ("<|/tool_call|>", _ANY),
    "<|START_ACTION|>": ("<|END_ACTION|>", _ANY),
    "<|action_start|><|plugin|>": ("<|action_end|>", _ANY),
    "<|tools_prefix|>": ("<|tools_suffix|>", Keys(names=())),
    "<function_call>": ("</function_call>", _ANY),
    "<|function_call|>": ("<|message_sep|>", _ANY),
    "Action:\n```json": ("```", _ANY),
}
_MARKED = re.compile("|".join(map(re.escape, MARKED)))


def hermes(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number; or one such object
    and nothing else."""
    if TAG not in text:
        bare = text.strip()
        call, end = json_call(bare, 0)
        return ("", (call,)) if isinstance(call, Malformed) or end == len(bare) else (text, ())
    calls: list[ToolCall | Malformed] = []
    rest: list[str] = []
    position = 0
    while (start := text.find(TAG, position)) >= 0:
        rest.append(text[position:start])
        # a loop of a broken model could write thousands; all but the first are noise
        if len(calls) == MAX_CALLS:
            calls.append(too_many(text, start))
            position = len(text)
            break
        call, end = json_call(text, start + len(TAG), len(calls))
        # searched from the end of the JSON, so that a tag inside of a string is not seen
        close = text.find(END, end)
        following = text.find(TAG, end)
        # the tags behind stand inside that string
        ran_out = cut and isinstance(call, Malformed) and "Unterminated string" in call.reason
        closed = close >= 0 and (following < 0 or close < following) and not ran_out
        if closed:
            position = close + len(END)
        elif isinstance(call, ToolCall):
            position = end  # no end tag: what follows the JSON is text again
        else:
            position = following if following >= 0 and not ran_out else len(text)
        is_cut = ran_out or (cut and not closed and following < 0)
        calls.append(cut_off(call, text[start:]) if is_cut else call)
    rest.append(text[position:])
    return "".join(rest).strip(), tuple(calls)


def json_calls(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """Objects or lists of them between the marks of `MARKED`; or one list and nothing else. Keys
    may be `tool_name` and `parameters`."""
    calls: list[ToolCall | Malformed] = []
    if _MARKED.search(text) is None:
        end = after_space(text, _objects(text, after_space(text, 0), calls, cut, _ANY))
        return ("", tuple(calls)) if end == len(text) else (text, ())
    rest: list[str] = []
    position = 0
    while (opening := _MARKED.search(text, position)) is not None:
        rest.append(text[position : opening.start()])
        if len(calls) >= MAX_CALLS:
            calls.append(too_many(text, opening.start()))
            position = len(text)
            break
        closing, keys = MARKED[opening.group()]
        position = _objects(text, after_space(text, opening.end()), calls, cut, keys)
        behind = after_space(text, position)
        if text.startswith(closing, behind):
            position = behind + len(closing)
    rest.append(text[position:])
    return "".join(rest).strip(), tuple(calls)


def llama(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """`{"name": ..., "parameters": {...}}` and nothing else, several parted by `;`; or after
    `<|python_tag|>`, as `name.call(key="value")` too."""
    before, tag, inside = text.partition(PYTHON_TAG)
    if not tag:
        before = ""
        inside = _SAID_NOTHING.sub("", text, count=1)
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
            listed.append(too_many(inside, position))
            break
        call, end = json_call(inside, position, len(listed), _LLAMA.arguments)
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


def mistral(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """`[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, or `[TOOL_CALLS]name[ARGS]{...}`
    repeated."""
    before, _, inside = text.partition(TOOL_CALLS)
    calls: list[ToolCall | Malformed] = []
    start = after_space(inside, 0)
    if inside.startswith("[", start):
        end = _array_of_calls(inside, start + 1, calls, cut, _PLAIN)
    else:
        end = _named_calls(inside, calls, cut)
    return (before + inside[end:]).strip(), tuple(calls)


def _objects(
    text: str, position: int, calls: list[ToolCall | Malformed], cut: bool, keys: Keys
) -> int:
    """Reads a list of calls, or objects in a row; gives where the text goes on."""
    if text.startswith("[", position):
        return _array_of_calls(text, position + 1, calls, cut, keys)
    first = True
    while first or text.startswith("{", position):
        if len(calls) == MAX_CALLS:
            calls.append(too_many(text, position))
            return len(text)
        call, end = json_call(text, position, len(calls), *keys)
        broken = end == position
        calls.append(cut_off(call, text[position:]) if broken and cut else call)
        if broken:  # where it ends cannot be known
            return len(text)
        following = after_space(text, end)
        more = after_space(text, following + (text[following : following + 1] in (";", ",")))
        position = more if text.startswith("{", more) else end
        first = False
    return position


def _array_of_calls(
    text: str, position: int, calls: list[ToolCall | Malformed], cut: bool, keys: Keys
) -> int:
    """Reads `{...}, {...}]` one by one, so that a bad call costs no good one before it; gives
    where the text goes on."""
    while True:
        position = after_space(text, position)
        if text.startswith("]", position):
            return position + 1
        if len(calls) == MAX_CALLS:
            calls.append(too_many(text, position))
            return len(text)
        call, end = json_call(text, position, len(calls), *keys)
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
            return len(text)
        calls.append(call)
        position = following + 1 if text[following] == "," else following


def _named_calls(text: str, calls: list[ToolCall | Malformed], cut: bool) -> int:
    """Reads `name[ARGS]{...}`, repeated after further marks; gives where the text goes on."""
    position = 0
    while True:
        if len(calls) == MAX_CALLS:
            calls.append(too_many(text, position))
            return len(text)
        name = _NAME.match(text, position)
        if name is None:
            fault = Malformed(
                text[position : position + EXCERPT],
                "missing_name: a call is [TOOL_CALLS]name[ARGS]{...}",
            )
            calls.append(cut_off(fault, text[position:]) if cut else fault)
            return len(text)
        call, end = json_arguments(text, name.group(1), name.end(), len(calls))
        broken = end == name.end()
        calls.append(cut_off(call, text[position:]) if broken and cut else call)
        if broken:
            return len(text)
        following = after_space(text, end)
        if not text.startswith(TOOL_CALLS, following):
            return end
        position = following + len(TOOL_CALLS)


def json_arguments(
    text: str, name: str, position: int, number: int
) -> tuple[ToolCall | Malformed, int]:
    """The call of this name whose arguments are the JSON that starts here, and where it ends:
    where it starts if that cannot be known."""
    try:
        value, end = DECODER.raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else f"nested deeper than {MAX_DEPTH}"
        raw = f"{name}({text[position : position + EXCERPT]}"
        return Malformed(clean(raw[:EXCERPT]), f"bad_json: {why}"), position
    # not for `read_call`: a server's "" means no arguments, a model's is unreadable
    if not isinstance(value, (dict, str)) or value == "":
        why = f"not_object: 'arguments' is an object, got {type(value).__name__}"
        return Malformed(clean(f"{name}({value!a})"[:EXCERPT]), why), end
    return numbered(read_call("", name, value), number), end


def is_object(text: str) -> bool:
    """Whether the text may be one call and nothing else."""
    bare = text.strip()
    return bare.startswith("{") and bare.endswith("}") and '"name"' in bare


def opens_llama(text: str) -> bool:
    """Whether the text may be Llama's calls and nothing else."""
    return '"name"' in text and _SAID_NOTHING.sub("", text, count=1).lstrip().startswith("{")


def is_list(text: str) -> bool:
    """Whether the text may be a list of calls and nothing else."""
    bare = text.strip()
    return bare.startswith("[") and bare.endswith("]") and 'name"' in bare
