"""One call in the xml form: `<function=name><parameter=key>value</parameter></function>`. Values
are text, typed by the tool's schema. What stands around the calls is the business of `formats`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gem_ma.parsing.calls import EXCERPT
from gem_ma.parsing.strict_json import DECODER, MAX_DEPTH, clean_json, depth_exceeds
from gem_ma.parsing.text import after_space
from gem_ma.types import Malformed, ToolCall

FUNCTION = re.compile(r"(?:<tool_call>\s*)?<function=")
_FUNCTION_END = re.compile(r"</function>(?:\s*</tool_call>)?")
# a value may hold anything, even `</parameter>`: it ends where the next one or the call does
_VALUE_END = re.compile(r"</parameter>\s*(?=<parameter=|</function>)")
_LAST_VALUE_END = re.compile(r"</parameter>\s*\Z")
_NO_END = "bad_xml: a call holds <parameter=key>value</parameter> and </function>"


class XmlCall(NamedTuple):
    """A call, where reading goes on, and whether its own end was there."""

    call: ToolCall | Malformed
    end: int
    whole: bool


def xml_call(
    text: str, position: int, number: int, schemas: Mapping[str, Mapping[str, Any]]
) -> XmlCall:
    """The call that begins with what follows `<function=`. `schemas`: tool -> its parameters."""
    # what a message quotes begins where the call does
    raw = text[position - len("<function=") : position + EXCERPT]
    following = FUNCTION.search(text, position)
    # a call without an end may not swallow the one behind it
    limit = following.start() if following else len(text)
    mark = text.find(">", position, limit)
    name = text[position:mark].strip() if mark >= 0 else ""
    if not name or "<" in name or "\n" in name:
        end = _FUNCTION_END.search(text, position, limit)
        call = Malformed(raw, "missing_name: a call opens with <function=name>")
        return XmlCall(call, end.end() if end else limit, end is not None)
    # an unknown tool has no schema: its values stay text, and the scenario answers
    properties = schemas.get(name, {}).get("properties")
    arguments: dict[str, Any] = {}
    # the first fault is told; reading goes on to find where the call ends
    fault, position = "", mark + 1
    while True:
        position = after_space(text, position)
        if text.startswith("</function>", position):
            closing = _FUNCTION_END.match(text, position)
            end_at = closing.end() if closing else position
            read = Malformed(raw, fault) if fault else ToolCall(f"call_{number}", name, arguments)
            return XmlCall(read, end_at, True)
        # all values are there, so that what the limit cut off was only the end
        if position >= len(text) and not fault:
            return XmlCall(ToolCall(f"call_{number}", name, arguments), position, False)
        parameter = _parameter(text, position)
        if parameter is None:
            closing = _FUNCTION_END.search(text, position)
            stop = limit if limit > position else len(text)
            whole = closing is not None
            return XmlCall(
                Malformed(raw, fault or _NO_END), closing.end() if closing else stop, whole
            )
        key, value, position = parameter
        if key in arguments:
            fault = fault or f"bad_arguments: parameter {key[:50]!r} stands twice"
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        try:
            arguments[key] = _typed(value, schema)
        except ValueError as error:
            fault = fault or f"bad_arguments: parameter {key[:50]!r} {error}"


def _parameter(text: str, position: int) -> tuple[str, str, int] | None:
    """(key, value as text, where it ends) of the parameter that begins here; None where none
    does, or where it has no end."""
    mark = text.find(">", position) if text.startswith("<parameter=", position) else -1
    if mark < 0:
        return None
    end = _VALUE_END.search(text, mark + 1)
    # the last value, and then the text is over
    if end is None and text.rstrip().endswith("</parameter>"):
        end = _LAST_VALUE_END.search(text, text.rfind("</parameter>"))
    if end is None:
        return None
    key = text[position + len("<parameter=") : mark].strip()
    # the template puts a value on lines of its own
    value = text[mark + 1 : end.start()].removeprefix("\n").removesuffix("\n")
    return key, value, end.end()


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


def _types(schema: Any) -> set[str]:
    """JSON types that a schema names, in `type` or in its alternatives; empty where any may be
    meant."""
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type")
    if isinstance(declared, str):
        declared = [declared]
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
