"""Questions that are answered by calling functions, in the form of BFCL's data.

`tools` of a row are the functions, with `name, description, parameters`. Its answer is a list of
`{name: {argument: [every value that is right]}}`; without a value, or with "" among them, the
argument may be left out. All calls are wanted, in any order, and no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma import Action, Tool, ToolCall
from gem_ma.kernel.errors import DataError
from gem_ma.kernel.parsing.python_calls import python_calls

# BFCL names types as Python and Java do
_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "double": "number",
    "long": "integer",
}
_KNOWN = {"object", "number", "array", "integer", "string", "boolean"}
_PLAIN = re.compile(r"[\W_]+")
MOST_CALLS = 64  # of one answer


def read_tools(value: Any, where: str) -> tuple[Tool, ...]:
    """The functions of a row. Raises DataError."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DataError(f"{where}: its tools are no JSON ({error})") from error
    if not isinstance(value, (list, tuple)) or not value:
        raise DataError(f"{where}: the grader `calls` wants functions in the column `tools`")
    if not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in value):
        raise DataError(f"{where}: each of its tools is an object with a name")
    return tuple(
        Tool(each["name"], str(each.get("description", "")), _schema(each.get("parameters") or {}))
        for each in value
    )


def _schema(value: Any) -> Any:
    """A JSON schema, with the types that JSON schemas have."""
    if isinstance(value, list):
        return [_schema(part) for part in value]
    if not isinstance(value, dict):
        return value
    schema = {key: _schema(part) for key, part in value.items()}
    if isinstance(kind := value.get("type"), str):
        known = _TYPES.get(kind.lower(), kind.lower())
        schema["type"] = known if known in _KNOWN else "string"
    return schema


def read_calls(value: Any, where: str) -> str:
    """The right calls of a row, as JSON. Raises DataError."""
    try:
        calls = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise DataError(f"{where}: its answer is no JSON ({error})") from error
    good = isinstance(calls, list) and all(
        isinstance(call, dict)
        and len(call) == 1
        and all(
            isinstance(arguments, dict) and all(isinstance(v, list) for v in arguments.values())
            for arguments in call.values()
        )
        for call in calls
    )
    if not good or not calls:
        raise DataError(f"{where}: its answer is a list of {{name: {{argument: [values]}}}}")
    return json.dumps(calls)


def gold(calls: str) -> str:
    """The right calls, each argument with its first value, as Python writes calls."""
    words = []
    for call in json.loads(calls):
        ((name, arguments),) = call.items()
        values_of = {
            key: _first(values) for key, values in arguments.items() if values[:1] not in ([], [""])
        }
        words.append(f"{name}({', '.join(f'{key}={value!r}' for key, value in values_of.items())})")
    return f"[{', '.join(words)}]"


def _first(values: Sequence[Any]) -> Any:
    """The first value; the fields of an object have lists of their own."""
    return _chosen(values[0]) if values else None


def _chosen(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {key: part if isinstance(part, list) else [part] for key, part in value.items()}
        return {
            key: _first(values) for key, values in fields.items() if values[:1] not in ([], [""])
        }
    return [_chosen(item) for item in value] if isinstance(value, list) else value


def score(calls: str, action: Action) -> float:
    """1 where the action calls what is right. Calls in its text count where it makes no others:
    `[f(x=1), g()]`."""
    made: Sequence[Any] = action.tool_calls
    if not made and action.text.lstrip().startswith("["):
        made = python_calls(action.text.strip())
    wanted = [next(iter(call.items())) for call in json.loads(calls)]
    if len(made) != len(wanted) or len(made) > MOST_CALLS:
        return 0.0
    left = list(wanted)
    for call in made:
        fits = [
            at
            for at, (name, arguments) in enumerate(left)
            if isinstance(call, ToolCall) and call.name == name and _fits(call.arguments, arguments)
        ]
        if not fits:
            return 0.0
        del left[fits[0]]
    return 1.0


def _fits(made: Mapping[str, Any], wanted: Mapping[str, Sequence[Any]]) -> bool:
    if not made.keys() <= wanted.keys():
        return False
    return all(
        any(_same(made[key], value) for value in values)
        if key in made
        else not values or "" in values
        for key, values in wanted.items()
    )


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, str) and isinstance(wanted, str):
        # as BFCL compares: neither case nor marks count
        return value == wanted or (_plain(value) == _plain(wanted) != "")
    if isinstance(value, Mapping) and isinstance(wanted, Mapping):
        fields = {key: part if isinstance(part, list) else [part] for key, part in wanted.items()}
        return _fits(value, fields)
    if isinstance(value, (list, tuple)) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    numbers = isinstance(value, (int, float)) and isinstance(wanted, (int, float))
    return bool(value == wanted) and (numbers or type(value) is type(wanted))


def _plain(text: str) -> str:
    return _PLAIN.sub("", text.casefold())
