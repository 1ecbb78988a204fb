"""One call in tags: `<function=name><parameter=key>value</parameter></function>`, or `<invoke
name="..."><parameter name="...">`, with a prefix in front of all tags or without. Values are text,
typed by the tag or by the tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gem_ma.kernel.parsing.calls import EXCERPT, Read
from gem_ma.kernel.parsing.json_calls import json_arguments
from gem_ma.kernel.parsing.python_calls import python_literal
from gem_ma.kernel.parsing.strict_json import DECODER, MAX_DEPTH, clean_json, depth_exceeds
from gem_ma.kernel.parsing.text import after_space
from gem_ma.kernel.types import Malformed, ToolCall

# `antml:`, `｜DSML｜` and the like stand in front of all tags of a family
_PREFIX = r"(?:[\w-]{1,20}:|｜\w{1,20}｜)?"
_SECTION = rf"{_PREFIX}(?:tool_calls?|function_calls?)>"
FUNCTION = re.compile(
    # some say to whom they speak in front
    r"(?:(?:<\|eom\|>)?(?:<\|start\|>assistant)? to=[\w.-]{1,64}<\|message\|>)?"
    rf"(?:<{_SECTION}\s*+)?<{_PREFIX}(?:function|invoke)(?P<sets>=|\s++name=)"
    rf"|<{_PREFIX}tool_call>(?!\s*+\{{)"
)
_FUNCTION_END = re.compile(rf"</{_PREFIX}(?:function|invoke)>(?:\s*+</{_SECTION})*+")
_ANY_END = re.compile(rf"{_FUNCTION_END.pattern}|</{_PREFIX}tool_call>")
_PARAMETER = re.compile(
    rf"<{_PREFIX}param(?:eter)?(?P<sets>=|\s++name=)(?P<key>\"[^\"]*+\"|'[^']*+'|[^>]*+)"
    r"(?:\s++string=\"(?P<text>\w++)\")?\s*+>"
)
# a value may hold anything, even `</parameter>`: it ends where the next one or the call does
_VALUE_END = re.compile(
    rf"</{_PREFIX}param(?:eter)?>\s*+"
    rf"(?=<{_PREFIX}param(?:eter)?[=\s]|</{_PREFIX}(?:function|invoke)>)"
)
_LAST_VALUE_END = re.compile(rf"</{_PREFIX}param(?:eter)?>\s*+\Z")
_NO_END = "bad_xml: a call holds <parameter=key>value</parameter> and </function>"


def xml_call(
    text: str, opening: re.Match[str], number: int, schemas: Mapping[str, Mapping[str, Any]]
) -> Read:
    """The call that `opening` (of `FUNCTION`) begins. `schemas`: tool -> its parameters."""
    # what a message quotes begins where the call does
    position = opening.end()
    raw = text[opening.start() : position + EXCERPT]
    following = FUNCTION.search(text, position)
    # a call without an end may not swallow the one behind it
    limit = following.start() if following else len(text)
    mark = text.find(">", position, limit)
    name = text[position:mark].strip().strip("\"'") if mark >= 0 and opening["sets"] else ""
    if not name or "<" in name or "\n" in name:
        closing = _ANY_END.search(text, position, limit)
        fault = "missing_name: a call opens with <function=name>"
        return Read(Malformed(raw, fault), closing.end() if closing else limit, closing is not None)
    position = after_space(text, mark + 1)
    if text.startswith("{", position):
        return _with_object(text, name, position, number)
    # an unknown tool has no schema: its values stay text, and the scenario answers
    properties = schemas.get(name, {}).get("properties")
    arguments: dict[str, Any] = {}
    # the first fault is told; reading goes on to find where the call ends
    fault = ""
    position = mark + 1
    while True:
        position = after_space(text, position)
        closing = _FUNCTION_END.match(text, position)
        if closing is not None:
            whole = ToolCall(f"call_{number}", name, arguments)
            return Read(Malformed(raw, fault) if fault else whole, closing.end(), True)
        # all values are there, so that what the limit cut off was only the end
        if position >= len(text) and not fault:
            return Read(ToolCall(f"call_{number}", name, arguments), position, False)
        parameter = _parameter(text, position)
        if parameter is None:
            closing = _ANY_END.search(text, position)
            stop = limit if limit > position else len(text)
            end = closing.end() if closing else stop
            return Read(Malformed(raw, fault or _NO_END), end, closing is not None)
        schema = properties.get(parameter.key) if isinstance(properties, Mapping) else None
        position = parameter.end
        wrong = add_typed(arguments, parameter, schema)
        fault = fault or wrong


def _with_object(text: str, name: str, position: int, number: int) -> Read:
    """The call whose arguments are one JSON object in place of parameters."""
    call, end = json_arguments(text, name, position, number)
    closing = _FUNCTION_END.match(text, after_space(text, end))
    if closing is None and end > position and isinstance(call, ToolCall):
        return Read(call, end, False)
    closing = closing or _FUNCTION_END.search(text, end)
    return Read(call, closing.end() if closing else len(text), closing is not None)


class Parameter(NamedTuple):
    """A value as it is written, and where the text goes on; `text` says whether it is text, where
    the tag does."""

    key: str
    value: str
    end: int
    text: bool | None = None


def _parameter(text: str, position: int) -> Parameter | None:
    """The parameter that begins here; None where none does, or where it has no end."""
    opening = _PARAMETER.match(text, position)
    if opening is None:
        return None
    end = _VALUE_END.search(text, opening.end())
    # the last value, and then the text is over
    if end is None and text.rstrip().endswith(">"):
        end = _LAST_VALUE_END.search(text, max(opening.end(), text.rfind("</")))
    if end is None:
        return None
    value = text[opening.end() : end.start()]
    # this family puts a value on lines of its own
    if opening["sets"] == "=":
        value = value.removeprefix("\n").removesuffix("\n")
    is_text = {None: None, "true": True}.get(opening["text"], False)
    return Parameter(opening["key"].strip().strip("\"'"), value, end.end(), is_text)


def add_typed(arguments: dict[str, Any], parameter: Parameter, schema: Any) -> str:
    """Puts a value among the arguments, by the type that its tag or its schema names; gives what
    is wrong with it."""
    key = parameter.key
    fault = ""
    if key in arguments:
        fault = f"bad_arguments: parameter {key[:50]!r} stands twice"
    try:
        if parameter.text is not None:
            schema = {"type": "string" if parameter.text else [*_KINDS]}
        arguments[key] = _typed(parameter.value, schema)
    except ValueError as error:
        fault = fault or f"bad_arguments: parameter {key[:50]!r} {error}"
    return fault


def _typed(value: str, schema: Any) -> Any:
    """The value of a parameter by the type that its schema names; text where it names none, or
    allows text."""
    types = _types(schema)
    # text is what the model wrote; a number that is also allowed as text stays one
    if not types or "string" in types:
        return value
    word = value.strip()
    if "boolean" in types and word.casefold() in ("true", "false"):
        return word.casefold() == "true"
    if "null" in types and word.casefold() in ("null", "none"):
        return None
    wanted = " or ".join(sorted(types))
    try:
        decoded = DECODER.decode(word)
    except RecursionError:
        raise ValueError(f"is nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        # some templates show lists as Python does
        if not word.startswith(("[", "{")):
            raise ValueError(f"is {wanted}, in JSON ({error})") from None
        try:
            decoded = python_literal(word)
        except ValueError:
            raise ValueError(f"is {wanted}, in JSON ({error})") from None
    # the arguments and the call around it are two levels
    if depth_exceeds(decoded, MAX_DEPTH - 2):
        raise ValueError(f"is nested deeper than {MAX_DEPTH}")
    if not any(_KINDS[kind](decoded) for kind in types):
        raise ValueError(f"is {wanted}, got {type(decoded).__name__}")
    return clean_json(decoded)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def _kind(value: Any) -> str:
    kinds = (name for name, fits in _KINDS.items() if fits(value))
    return "string" if isinstance(value, str) else next(kinds, "")


def _types(schema: Any) -> set[str]:
    """JSON types that a schema names, in `type` or in its alternatives; empty where any may be
    meant."""
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type")
    if isinstance(declared, str):
        declared = [declared]
    choices = schema.get("enum")
    if declared is None and isinstance(choices, (list, tuple)):
        declared = [_kind(choice) for choice in choices]
    types: set[str] = set()
    # a schema may come from a stranger's server: anything may stand there
    if isinstance(declared, (list, tuple)):
        types = {name for name in declared if isinstance(name, str)}
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        for option in options if isinstance(options, (list, tuple)) else ():
            inner = _types(option)
            # one open alternative allows anything
            if not inner:
                return set()
            types |= inner
    return types if types <= {"string", *_KINDS} else set()
