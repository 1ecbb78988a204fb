"""Paths that a config names: in the folder of the config where they exist there, else in the
working folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from gem_ma import registry
from gem_ma.config.playing import AgentSettings, ExamSettings, ScenarioSettings, ToolSettings
from gem_ma.config.settings import Config

Block = TypeVar("Block", bound=ScenarioSettings)


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


def locate_files(value: Any, base: Path | None) -> Any:
    """A path, or paths by split, as `locate` finds them; everything else as it is."""
    if isinstance(value, dict):
        return {key: locate_files(path, base) for key, path in value.items()}
    return locate(value, base) if isinstance(value, str) else value


def locate_code(name: str, base: Path | None) -> str:
    """A name of code: where it is a file, that file as `locate` finds it."""
    file = registry.file_of(name)
    return name if file is None else locate(str(file), base) + name[len(str(file)) :]


def located(config: Config, base: Path | None) -> Config:
    """The config with every path that exists in its folder written as seen from the working
    folder."""
    scenario = None if config.scenario is None else _scenario(config.scenario, base)
    scenarios = {name: _scenario(block, base) for name, block in config.scenarios.items()}
    exams = {name: _scenario(block, base) for name, block in config.evaluate.scenarios.items()}
    policies = {}
    for name, policy in config.policies.items():
        engine, _, model = policy.model.partition("/")
        changes = {"model": f"{engine}/{locate(model, base)}"} if model else {}
        # the one option of an engine that is a path: the folder of an adapter
        if isinstance(adapter := policy.options.get("lora"), str):
            changes["lora"] = locate(adapter, base)
        policies[name] = policy.model_copy(update=changes)
    changed = {
        "scenario": scenario,
        "scenarios": scenarios,
        "agents": _seats(config.agents, base),
        "policies": policies,
        "evaluate": config.evaluate.model_copy(update={"scenarios": exams}),
    }
    return config.model_copy(update=changed)


def _scenario(block: Block, base: Path | None) -> Block:
    """The block with its files, and those of its seats, as seen from the working folder."""
    changed: dict[str, Any] = {}
    for key in ("data", "words"):
        if isinstance(path := block.options.get(key), (str, dict)):
            changed[key] = locate_files(path, base)
    if isinstance(block, ExamSettings):
        changed["agents"] = _seats(block.agents, base)
    return block.model_copy(update=changed)


def _seats(seats: Mapping[str, AgentSettings], base: Path | None) -> dict[str, AgentSettings]:
    return {
        name: seat.model_copy(update={"tools": [_with_folders(tool, base) for tool in seat.tools]})
        if seat.tools
        else seat
        for name, seat in seats.items()
    }


def _with_folders(tool: ToolSettings, base: Path | None) -> ToolSettings:
    """The tool with the folders that it reads, where it has any, as seen from the working
    folder."""
    update: dict[str, object] = {}
    for name, keys in (("search", ("folder", "model")), ("shell", ("folder",))):
        if (options := getattr(tool, name)) is not None:
            named = {key: getattr(options, key) for key in keys}
            folders = {key: locate(path, base) for key, path in named.items() if path is not None}
            update[name] = options.model_copy(update=folders)
    return tool.model_copy(update=update)
