"""One call of Gemma's: `<|tool_call>call:name{key:<|"|>text<|"|>,other:3}<tool_call|>`. Texts
stand between quotes that are control tokens; keys have none; the rest is as in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gem_ma.kernel.parsing.calls import EXCERPT, Read
from gem_ma.kernel.parsing.strict_json import DECODER, MAX_DEPTH
from gem_ma.kernel.parsing.text import after_space, clean
from gem_ma.kernel.parsing.xml_calls import Parameter, add_typed
from gem_ma.kernel.types import Malformed, ToolCall

GEMMA = re.compile(r"<\|tool_call>|<start_function_call>")
_NAME = re.compile(r"\s*+(?:call:)?([^\s<>{}|]{1,200})(?=\{)")
# the result begins with a token by which the turn of a call ends
_END = re.compile(r"<tool_call\|>(?:<\|tool_response>)?|<end_function_call>")
_QUOTE = re.compile(r'<\|"\|>|<escape>')
_KEY = re.compile(r"([^:{}\[\],<]++):")
_PLAIN = re.compile(r"[^,\]}]++")


class _Refused(Exception):
    """What cannot be read; its text is the reason."""


def gemma_call(
    text: str, opening: re.Match[str], number: int, schemas: Mapping[str, Mapping[str, Any]]
) -> Read:
    """The call that `opening` (of `GEMMA`) begins. `schemas`: tool -> its parameters."""
    raw = text[opening.start() : opening.end() + EXCERPT]
    name = _NAME.match(text, opening.end())
    position = opening.end()
    try:
        if name is None:
            raise _Refused("missing_name: a call is call:name{key:value}")
        arguments, position = _value(text, name.end(), 1)
    except _Refused as refused:
        end = _END.search(text, position)
        following = GEMMA.search(text, position)
        # a call without an end may not swallow the one behind it
        if following is not None and (end is None or following.start() < end.start()):
            return Read(Malformed(raw, str(refused)), following.start(), False)
        return Read(Malformed(raw, str(refused)), end.end() if end else len(text), end is not None)
    typed: dict[str, Any] = {}
    fault = _typed(arguments, schemas.get(name[1], {}).get("properties"), typed)
    end = _END.match(text, after_space(text, position))
    call = Malformed(raw, fault) if fault else ToolCall(f"call_{number}", name[1], typed)
    return Read(call, end.end() if end else position, end is not None)


def _typed(arguments: Mapping[str, Any], properties: Any, typed: dict[str, Any]) -> str:
    """Fills `typed`, where a text for which a schema wants no text is read as what it wants: the
    smaller Gemma quotes all values. Gives what is wrong with one."""
    for key, value in arguments.items():
        typed[key] = value
        if isinstance(value, str):
            del typed[key]
            schema = properties.get(key) if isinstance(properties, Mapping) else None
            if fault := add_typed(typed, Parameter(key, value, 0), schema):
                return fault
    return ""


def _value(text: str, position: int, depth: int) -> tuple[Any, int]:
    """The value that begins here, and where it ends."""
    if depth > MAX_DEPTH:
        raise _Refused(f"bad_arguments: nested deeper than {MAX_DEPTH}")
    position = after_space(text, position)
    quote = _QUOTE.match(text, position)
    if quote is not None:
        end = text.find(quote.group(), quote.end())
        if end < 0:
            raise _Refused("bad_arguments: a text has no end")
        return clean(text[quote.end() : end]), end + len(quote.group())
    if text[position : position + 1] in ("{", "["):
        return _items(text, position, depth)
    plain = _PLAIN.match(text, position)
    try:
        word = plain.group().strip() if plain else ""
        value = DECODER.decode("null" if word == "None" else word)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"bad_arguments: {str(error)[:100]}") from None
    if plain is None or isinstance(value, (dict, list)):
        raise _Refused("bad_arguments: a value is missing")
    return value, plain.end()


def _items(text: str, position: int, depth: int) -> tuple[Any, int]:
    """The object or the list that begins here, and where it ends."""
    keyed = text[position] == "{"
    closing = "}" if keyed else "]"
    items: dict[Any, Any] = {}
    position = after_space(text, position + 1)
    while not text.startswith(closing, position):
        key: Any = len(items)
        if keyed:
            key, position = _key(text, position)
        if key in items:
            raise _Refused(f"bad_arguments: key {str(key)[:50]!r} stands twice")
        items[key], position = _value(text, position, depth + 1)
        position = after_space(text, position)
        if text.startswith(",", position):
            position = after_space(text, position + 1)
        elif not text.startswith(closing, position):
            raise _Refused("bad_arguments: values are parted by commas")
    return (items if keyed else [*items.values()]), position + 1


def _key(text: str, position: int) -> tuple[str, int]:
    if _QUOTE.match(text, position):
        key, position = _value(text, position, 1)
        if not text.startswith(":", position):
            raise _Refused("bad_arguments: a key is followed by :")
        return key, position + 1
    plain = _KEY.match(text, position)
    if plain is None:
        raise _Refused("bad_arguments: a key is followed by :")
    return clean(plain[1].strip()), plain.end()
