"""Paths that a config names: in the folder of the config where they exist there, else in the
working folder."""

from __future__ import annotations

import os
from pathlib import Path

from gem_ma import registry
from gem_ma.config.playing import ToolSettings
from gem_ma.config.settings import Config


def locate(value: str, base: Path | None) -> str:
    """A path of a config: in the config's folder where it exists there, else as it is (from the
    working folder)."""
    if (
        base is None
        or not value
        or os.path.isabs(value)
        # `exists` raises ValueError for it; the schema or the engine refuses such a name
        or "\0" in value
        or not (base / value).exists()
    ):
        return value
    # relative where it can be, so that a run folder moved with its project still finds its model
    found = (base / value).resolve()
    return os.path.relpath(found) if Path.cwd() in found.parents else str(found)


def locate_code(name: str, base: Path | None) -> str:
    """A name of code: where it is a file, that file as `locate` finds it."""
    file = registry.file_of(name)
    return name if file is None else locate(str(file), base) + name[len(str(file)) :]


def located(config: Config, base: Path | None) -> Config:
    """The config with every path that exists in its folder written as seen from the working
    folder."""
    scenario = config.scenario
    data = scenario.options.get("data")
    if isinstance(data, str):
        scenario = scenario.model_copy(update={"data": locate(data, base)})
    agents = {
        name: agent.model_copy(update={"tools": [_found(tool, base) for tool in agent.tools]})
        if agent.tools
        else agent
        for name, agent in config.agents.items()
    }
    policies = {}
    for name, policy in config.policies.items():
        engine, _, model = policy.model.partition("/")
        changes = {"model": f"{engine}/{locate(model, base)}"} if model else {}
        # the one option of an engine that is a path: the folder of an adapter
        if isinstance(adapter := policy.options.get("lora"), str):
            changes["lora"] = locate(adapter, base)
        policies[name] = policy.model_copy(update=changes)
    changed = {"scenario": scenario, "agents": agents, "policies": policies}
    return config.model_copy(update=changed)


def _found(tool: ToolSettings, base: Path | None) -> ToolSettings:
    """The tool with the folder that it searches, where it has one, as seen from the working
    folder."""
    if tool.search is None:
        return tool
    folder = locate(tool.search.folder, base)
    return tool.model_copy(update={"search": tool.search.model_copy(update={"folder": folder})})
