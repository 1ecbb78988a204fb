"""The run folder of a config, made or taken up, with what its manifest must hold."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gem_ma.config.loading import Loaded
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.store import RunFolder
from gem_ma.runs.used import files_used
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.verdicts import heads_of, success_row


def open_folder(
    command: str,
    loaded: Loaded,
    worlds: Worlds,
    policies: Mapping[str, Policy],
    path: Path,
    fresh: bool,
) -> RunFolder:
    """The run folder, made or taken up. Its manifest holds digests of data and weights: a run
    may not go on with others."""

    config = loaded.config
    resolved = loaded.resolved()
    used = files_used(resolved, policies)
    facts: dict[str, Any] = {
        "command": command,
        "judged": heads_of(worlds.judge),
        "overrides": list(loaded.overrides),
        # both: training plays with the one, exams with the other
        "seeds": {"run": config.run.seed, "evaluate": config.evaluate.seed},
        **world_facts(worlds),
        **_exams(worlds),
        # weights that were trained further are others, under the same path
        "models": {
            name: {"model": config.policies[name].model, "digest": _digest(policy)}
            for name, policy in policies.items()
        },
    }
    if files := used.facts():
        facts["files"] = files
    for name in used.unknown:
        # the run is played; nobody can tell later whether this was the code
        warnings.warn(f"{path}: the source of {name} is not known", stacklevel=3)
    if used.libraries:
        facts["libraries"] = used.libraries
    # `gem-ma resume` loads the folder's own settings, with overrides on the command line
    resuming = loaded.path is not None and loaded.path == path / "resolved.yaml"
    folder = RunFolder.open(
        path,
        config_text=loaded.written(),
        resolved=resolved,
        manifest=facts,
        fresh=fresh,
        resuming=resuming,
    )
    folder.before_append = used.note_more
    folder.verdict_of = partial(success_row, worlds.judge)
    return folder


def world_facts(worlds: Worlds) -> dict[str, Any]:
    """Ids and versions of the scenarios, and where their data come from, with digests."""
    scenarios = {
        world.name: {"id": world.scenario.id, "version": world.scenario.version}
        for world in worlds.played
    }
    data = {world.name: found for world in worlds.played if (found := _data(world.scenario))}
    if worlds.several:
        return {"scenarios": scenarios, **({"data": data} if data else {})}
    return {"scenario": scenarios[""], **({"data": data[""]} if data else {})}


def _exams(worlds: Worlds) -> dict[str, Any]:
    """The same of worlds that only exams are held in."""
    exams = {
        world.name: {"id": world.scenario.id, "version": world.scenario.version}
        | {"data": _data(world.scenario)}
        for world in worlds.examined
        if all(world is not one for one in worlds.played)
    }
    return {"exams": exams} if exams else {}


def _digest(policy: Policy) -> Any:
    """What tells these weights from others; None where an engine cannot say."""

    engine = policy.core
    return engine.fingerprint() if isinstance(engine, Weighs) else None


def _data(scenario: Scenario) -> dict[str, Any]:
    """Where the scenario's data come from, with a digest; {} where all is in the package."""
    return dict(scenario.provenance()) if hasattr(scenario, "provenance") else {}
