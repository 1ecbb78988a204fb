"""The run folder of a config, made or taken up, with what its manifest must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gem_ma.config.loading import Loaded
    from gem_ma.config.worlds import Worlds
    from gem_ma.engines.base import Policy
    from gem_ma.scenario import Scenario
    from gem_ma.store import RunFolder


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
    from gem_ma.store import RunFolder

    config = loaded.config
    facts: dict[str, Any] = {
        "command": command,
        "overrides": list(loaded.overrides),
        # both: training plays with the one, exams with the other
        "seeds": {"run": config.run.seed, "evaluate": config.evaluate.seed},
        **_rules(worlds),
        # weights that were trained further are others, under the same path
        "models": {
            name: {"model": config.policies[name].model, "digest": _digest(policy)}
            for name, policy in policies.items()
        },
    }
    # of several scenarios by their names
    data = {world.name: found for world in worlds.played if (found := _data(world.scenario))}
    if data:
        facts["data"] = data if worlds.several else data[""]
    # `gem-ma resume` loads the folder's own settings, with overrides on the command line
    resuming = loaded.path is not None and loaded.path == path / "resolved.yaml"
    return RunFolder.open(
        path,
        config_text=loaded.written(),
        resolved=loaded.resolved(),
        manifest=facts,
        fresh=fresh,
        resuming=resuming,
    )


def _rules(worlds: Worlds) -> dict[str, Any]:
    """Ids and versions of the scenarios."""
    facts = {
        world.name: {"id": world.scenario.id, "version": world.scenario.version}
        for world in worlds.played
    }
    return {"scenarios": facts} if worlds.several else {"scenario": facts[""]}


def _digest(policy: Policy) -> Any:
    """What tells these weights from others; None where an engine cannot say."""
    from gem_ma.engines.capabilities import Weighs

    engine = policy.core
    return engine.fingerprint() if isinstance(engine, Weighs) else None


def _data(scenario: Scenario) -> dict[str, Any]:
    """Where the scenario's data and rules come from, with digests; {} where all is in the
    package."""
    from hashlib import sha256

    from gem_ma.folders import read_named
    from gem_ma.registry import file_of

    data = dict(scenario.provenance()) if hasattr(scenario, "provenance") else {}
    code = file_of(scenario.id)
    if code is not None:  # rules that were edited are other rules
        data["rules"] = {"source": str(code), "digest": sha256(read_named(code)).hexdigest()}
    return data
