"""Tools -> the grammar of a call: what may follow `<tool_call>`, in llguidance's form of Lark.

Knows schemas and texts; knows neither ids nor models. What is asked for is narrower than a schema
in three things, for the sake of what can be read: objects hold no properties that were not declared
(unless the schema says that they may), numbers without bounds get wide ones, and white space in
JSON is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gem_ma.kernel.types import Tool

# bounds of numbers that have none: what a float holds exactly, and what is written without an
# exponent
WHOLE = 2**53
REAL = 1e15
SPACE = r"[\x20\x0A\x0D\x09]{1,8}"  # a model in doubt writes white space for ever


def grammar_of(tools: Iterable[Tool], closing: str) -> str:
    """What may follow `<tool_call>`, in llguidance's form of Lark. Arguments are grammars of
    their own, so `$ref` inside them holds."""
    offered = list({tool.name: tool for tool in tools}.values())
    # any ids that spell it, not only those that the tokenizer would write
    lines = ['%llguidance {"no_forcing": true}']
    lines += [f"start: space call space {closing}", r"space: (/[ \t\r\n]/)~0..2"]
    lines.append("call: " + " | ".join(f"call_{number}" for number in range(len(offered))))
    for number, tool in enumerate(offered):
        parts = (
            "{",
            '"name"',
            ":",
            json.dumps(tool.name, ensure_ascii=False),
            ",",
            '"arguments"',
            ":",
        )
        spelled = " space ".join(json.dumps(part, ensure_ascii=False) for part in parts)
        lines.append(f'call_{number}: {spelled} space arguments_{number} space "}}"')
        schema = {
            **arguments_schema(tool.parameters),
            "x-guidance": {"whitespace_flexible": True, "whitespace_pattern": SPACE},
        }
        lines.append(f"arguments_{number}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments: an object, closed and with bounded numbers, see the module.

    >>> arguments_schema({"properties": {"x": {"type": "integer", "minimum": 0}}})
    {'properties': {'x': {'type': 'integer', 'minimum': 0, 'maximum': 9007199254740992}},
    'additionalProperties': False, 'type': 'object'}
    """
    plain = json.loads(json.dumps(parameters, default=dict))  # scenarios may freeze their schemas
    # a schema that composes objects cannot be closed place by place: each part would refuse what
    # another part declares
    narrow: dict[str, Any] = _narrowed(plain, closes=not _composed(plain))
    if narrow.get("type", "object") == "object":
        return {**narrow, "type": "object"}
    return {"allOf": [{"type": "object"}, narrow]}


COMPOSED = ("allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties", "unevaluatedProperties")
# keys that hold a list of schemas, schemas by name, and one schema
OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
OF_NAMED = ("properties", "$defs", "definitions")
OF_SCHEMA = ("items", "additionalProperties")


def _composed(node: Any) -> bool:
    """Whether properties are declared in several places for one object, which must then stay
    open to each other's."""
    if isinstance(node, list):
        return any(map(_composed, node))
    if not isinstance(node, dict):
        return False
    return (
        "allOf" in node
        or ("properties" in node and any(key in node for key in COMPOSED))
        or any(map(_composed, node.values()))
    )


def _narrowed(node: Any, *, closes: bool) -> Any:
    if not isinstance(node, dict):
        return node
    made = dict(node)
    for key in OF_SCHEMAS:
        if isinstance(node.get(key), list):
            made[key] = [_narrowed(inner, closes=closes) for inner in node[key]]
    for key in OF_NAMED:
        if isinstance(node.get(key), dict):
            made[key] = {name: _narrowed(inner, closes=closes) for name, inner in node[key].items()}
    for key in OF_SCHEMA:
        if key in node:
            made[key] = _narrowed(node[key], closes=closes)
    if closes and isinstance(node.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made | _bounds(node)


def _bounds(node: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds for a number that has none: unbounded digits are endless, and read as infinity."""
    types = node.get("type")
    kinds: Collection[Any] = [types] if isinstance(types, str) else ()
    if isinstance(types, list):
        kinds = types
    bound = REAL if "number" in kinds else WHOLE if "integer" in kinds else None
    if bound is None or "enum" in node or "const" in node:
        return {}
    lowest = _bound(node, ("minimum", "exclusiveMinimum"))
    highest = _bound(node, ("maximum", "exclusiveMaximum"))
    added: dict[str, Any] = {}
    # a bound of ours beyond the schema's own would leave nothing between them
    if lowest is None and (highest is None or highest > -bound):
        added["minimum"] = -bound
    if highest is None and (lowest is None or lowest < bound):
        added["maximum"] = bound
    return added


def _bound(node: Mapping[str, Any], keys: Iterable[str]) -> float | None:
    return next(
        (
            node[key]
            for key in keys
            if isinstance(node.get(key), (int, float)) and not isinstance(node[key], bool)
        ),
        None,
    )
