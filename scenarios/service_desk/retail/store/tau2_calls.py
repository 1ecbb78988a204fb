"""Calls of tau2-bench's tools: their schemas, and what a call answers, whatever its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.retail.store.schemas import SCHEMAS
from gem_ma.scenarios.service_desk.retail.store.specs import Spec
from gem_ma.scenarios.service_desk.retail.store.tau2_tools import TAU2

from gem_ma import Tool


def call(data: Overlay, tool: Any, arguments: Any) -> str:
    """What the tool answers. Raises what the assistant sees as an error."""
    return _bound(tool, arguments).function(data, **arguments)


def _bound(tool: Any, arguments: Any) -> Spec:
    """The tool, once its arguments fit. Raises what Python raises where they do not, in the
    words of Python 3.12."""
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise TypeError(
            "keywords must be strings"
            if isinstance(arguments, Mapping)
            else f"arguments are an object, got {type(arguments).__name__}"
        )
    maker = "Environment.make_tool_call() got multiple values for"
    if "requestor" in arguments:
        raise TypeError(f"tau2.environment.environment.{maker} keyword argument 'requestor'")
    for name in ("self", "tool_name"):
        if name in arguments:
            raise TypeError(f"{maker} argument '{name}'")
    spec = TAU2.get(tool) if isinstance(tool, str) else None
    if spec is None:
        raise ValueError(f"Tool '{tool}' not found.")
    spec.fits(f"RetailTools.{spec.name}()", arguments)
    return spec


def _schema(tool: Tool) -> Tool:
    """The tool with plain texts for arguments that tau-bench restricts to a list."""
    properties = {
        name: {key: value for key, value in schema.items() if key != "enum"}
        for name, schema in tool.parameters["properties"].items()
    }
    return Tool(tool.name, tool.description, {**tool.parameters, "properties": properties})


_ITEM = {
    "item_id": {"type": "string", "description": "Id of an item; not the id of a product type."}
}
_OTHERS = {
    "get_item_details": Tool(
        "get_item_details",
        "Shows one variant of a product: its options, price and availability.",
        {"type": "object", "properties": _ITEM, "required": ["item_id"]},
    ),
    "transfer_to_human_agents": replace(
        SCHEMAS["transfer_to_human_agents"],
        description="Hands the customer over to a human. Only for what the tools cannot do.",
    ),
}
TAU2_TOOLS: tuple[Tool, ...] = tuple(_schema({**SCHEMAS, **_OTHERS}[name]) for name in TAU2)
