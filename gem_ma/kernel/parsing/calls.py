"""One tool call: from a JSON object in a text, from parts that a server told apart, or against the
tools that were offered.

Never raises on what a model wrote: a `Malformed` says why, its reason opening with the kind. The
only repair is that arguments which are an object encoded as JSON text are decoded once more; the
call is then marked (`ToolCall.repaired`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gem_ma.kernel.parsing.strict_json import (
    DECODER,
    MAX_CALLS,
    MAX_TEXT,
    TOO_DEEP,
    clean_json,
    depth_exceeds,
)
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.spelling import near
from gem_ma.kernel.types import Malformed, Tool, ToolCall

EXCERPT = 200  # characters of a malformed call that are kept
DECODED = "arguments were JSON text"  # the one repair


class Read(NamedTuple):
    """A call, where reading goes on, and whether its own end was there."""

    call: ToolCall | Malformed
    end: int
    whole: bool


def read_call(call_id: str, name: Any, arguments: Any) -> ToolCall | Malformed:
    """A tool call whose parts a server has told apart; `arguments` are JSON text, or an object
    already. Kinds of reasons: `parse_tool_calls`.

    >>> read_call("a", "add", '{"x": 1}')
    ToolCall(id='a', name='add', arguments={'x': 1})
    """
    # only the start is quoted; ascii, since a server may send half letters
    words = arguments if isinstance(arguments, str) else ascii(arguments)[: 2 * EXCERPT]
    raw = clean(f"{name}({words})"[:EXCERPT])
    if not isinstance(name, str) or not name:
        return Malformed(raw, "missing_name: a call needs a string 'name'")
    # before it is decoded: an attacker's server may send any size
    if isinstance(arguments, str) and len(arguments) > MAX_TEXT:
        return Malformed(raw, f"too_large: {len(arguments)} characters, the limit is {MAX_TEXT}")
    repaired = ""
    try:
        if isinstance(arguments, str):
            # servers write "" where a tool takes none
            arguments = DECODER.decode(arguments) if arguments.strip() else {}
            if isinstance(arguments, str):  # some models encode the arguments twice
                arguments = DECODER.decode(arguments) if arguments.strip() else {}
                repaired = DECODED
        if arguments is None:  # as some servers write that there are none
            arguments = {}
    except RecursionError:
        return Malformed(raw, TOO_DEEP)
    except ValueError as error:
        return Malformed(raw, f"bad_json: {error}")
    if depth_exceeds(arguments):
        return Malformed(raw, TOO_DEEP)
    if not isinstance(arguments, dict):
        return Malformed(
            raw, f"not_object: 'arguments' is an object, got {type(arguments).__name__}"
        )
    return ToolCall(call_id, clean(name), clean_json(arguments), repaired)


def json_call(
    text: str,
    start: int,
    number: int = 0,
    keys: Sequence[str] = ("arguments",),
    names: Sequence[str] = ("name",),
) -> tuple[ToolCall | Malformed, int]:
    """The call whose JSON starts at or after `start`, and where reading stopped. `keys`, `names`:
    what this format calls the arguments and the tool; without names, the tool is the one key."""
    # not strip(): positions count in the whole text
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    raw = text[start : start + EXCERPT]
    try:
        value, end = DECODER.raw_decode(text, start)
    except RecursionError:
        return Malformed(raw, TOO_DEEP), start
    except ValueError as error:
        return Malformed(raw, f"bad_json: {error}"), start
    if depth_exceeds(value):
        return Malformed(raw, TOO_DEEP), end
    if not isinstance(value, dict):
        return (
            Malformed(raw, f"not_object: a call is a JSON object, got {type(value).__name__}"),
            end,
        )
    if not names and len(value) == 1:
        key = next(iter(value))
        value = {"name": key, keys[0]: value[key]}
    name = next((value[key] for key in names or ("name",) if key in value), None)
    if not isinstance(name, str) or not name:
        return Malformed(raw, "missing_name: a call needs a string 'name'"), end
    # both keys at once say two things, so neither is believed
    key, *more = [key for key in keys if key in value] or [""]
    if not key or more:
        wanted = f"a call needs {' or '.join(map(repr, keys))}, an object; {{}} for none"
        both = ", and not both" if more else ""
        return Malformed(raw, f"bad_arguments: {wanted}{both}"), end
    arguments = _arguments(value[key], key)
    if isinstance(arguments, str):
        return Malformed(raw, arguments), end
    return ToolCall(f"call_{number}", clean(name), clean_json(arguments[0]), arguments[1]), end


def _arguments(arguments: Any, key: str) -> tuple[dict[str, Any], str] | str:
    """(the arguments, what was repaired), or the reason why there are none."""
    repaired = ""
    if isinstance(arguments, str):  # some models encode the arguments twice
        repaired = DECODED
        try:
            arguments = DECODER.decode(arguments)
        except RecursionError:
            return TOO_DEEP
        except ValueError as error:
            return f"bad_arguments: {error}"
        if depth_exceeds(arguments):
            return TOO_DEEP
    if not isinstance(arguments, dict):
        return f"bad_arguments: '{key}' is an object, got {type(arguments).__name__}"
    return arguments, repaired


def cut_off(call: ToolCall | Malformed, raw: str) -> Malformed:
    """The last call of a reply that its token limit ended."""
    why = f" ({call.reason})" if isinstance(call, Malformed) else ""
    return Malformed(clean(raw[:EXCERPT]), f"truncated_call: cut by max_tokens{why}")


def offered(
    calls: Sequence[ToolCall | Malformed], tools: Sequence[Tool]
) -> tuple[ToolCall | Malformed, ...]:
    """The calls, with those of a tool that was not offered as `Malformed` of kind unknown_tool that
    names the nearest.

    For scenarios that want it so. Engines pass unknown names on: what an unknown tool answers is a
    rule of the scenario.

    >>> offered([ToolCall("c", "lok", {})], [Tool("look")])[0].reason
    "unknown_tool: no tool is called 'lok'; nearest: look"
    """
    names = [tool.name for tool in tools]
    return tuple(
        call if isinstance(call, Malformed) or call.name in names else _unknown(call, names)
        for call in calls
    )


def _unknown(call: ToolCall, names: list[str]) -> Malformed:
    close = near(call.name, names)
    hint = (
        f"nearest: {', '.join(close)}" if close else f"tools are {', '.join(names[:20]) or 'none'}"
    )
    return Malformed(
        f"{call.name}({call.arguments!a})"[:EXCERPT],
        f"unknown_tool: no tool is called {call.name[:50]!r}; {hint}",
    )


def too_many(text: str, position: int) -> Malformed:
    """In place of all calls from this position on."""
    return Malformed(
        clean(text[position : position + EXCERPT]),
        f"too_many: more than {MAX_CALLS} calls in one turn",
    )


def numbered(call: ToolCall | Malformed, number: int) -> ToolCall | Malformed:
    """The call under the id of its place in the turn."""
    return call if isinstance(call, Malformed) else replace(call, id=f"call_{number}")
