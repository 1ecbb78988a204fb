"""The tools that a config names, by agent, around a scenario. Each kind is imported when it is
named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.tools.belt import Equipment, WithTools

KINDS = {
    "python": "gem_ma.tools.python:Python",
    "shell": "gem_ma.tools.shell:Shell",
    "search": "gem_ma.tools.search:Search",
    "mcp": "gem_ma.tools.mcp:Mcp",
}


def equipped(
    scenario: Scenario, named: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]]
) -> Scenario:
    """The scenario in which these agents have these tools; itself where there are none. Raises
    ConfigError, which begins with a key, for a tool that cannot be had."""
    equipment = {
        agent: [_made(f"agents.{agent}.tools[{index}]", *tool) for index, tool in enumerate(tools)]
        for agent, tools in named.items()
        if tools
    }
    for agent, several in equipment.items():
        names = [tool.name for each in several for tool in each.tools]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"agents.{agent}.tools: two tools are called {sorted(twice)[0]}")
    return WithTools(scenario, equipment) if equipment else scenario


def _made(key: str, kind: str, options: Mapping[str, Any]) -> Equipment:
    module, _, name = KINDS[kind].partition(":")
    try:
        made: Equipment = getattr(import_module(module), name)(**options)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
    return made
