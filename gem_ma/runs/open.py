"""A config, opened: its worlds, its policies and its run folder. The one way in, of commands, of
`gem_ma.api`, of the viewer and of other trainers: whatever opens a config does it here, so that
each fault names the file and the line of its key, and is found before a run folder is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gem_ma.config.loading import Loaded
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.engines.endpoint.endpoint import Budget
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.plans import open_policies, try_seats
from gem_ma.runs.store import RunFolder
from gem_ma.runs.used import files_used
from gem_ma.runs.worlds import Worlds, worlds_of
from gem_ma.scores.judge import Judge, heads_of
from gem_ma.system.parts import zstd


@dataclass
class Opened:
    """A config with what it names: `worlds` are made; `policies` are opened when they are asked for
    first, since a learner may take its device before."""

    loaded: Loaded
    worlds: Worlds
    command: str = "run"
    offline: bool = False  # nothing will be sampled, so no key is read

    @classmethod
    def of(cls, config: Config, base: Path | None = None) -> Opened:
        """Of settings whose file is not known; relative paths are looked up in `base` first."""
        loaded = Loaded(config, "", base / "config.yaml" if base is not None else None)
        return cls(loaded, worlds_of(config, base=base))

    @cached_property
    def policies(self) -> dict[str, Policy]:
        """Every policy that has a seat, learns or teaches. Raises ConfigError or DataError for a
        model that cannot be opened."""
        return self.of_policies(self.loaded.config)

    def of_policies(
        self, config: Config, names: tuple[str, ...] = (), budget: Budget | None = None
    ) -> dict[str, Policy]:
        """The policies of another cast of this config, and those of `names`."""
        with self.loaded.placing():
            return open_policies(
                config, base=self.loaded.base, names=names, budget=budget, offline=self.offline
            )

    def folder(self, path: Path, fresh: bool = False) -> RunFolder:
        """The run folder, made or taken up."""
        return open_folder(self.command, self.loaded, self.worlds, self.policies, path, fresh)


def open_config(
    loaded: Loaded,
    command: str = "run",
    *,
    check: Callable[[Worlds], object] | None = None,
    seats: bool = True,
    offline: bool = False,
    made: dict[str, Scenario] | None = None,
) -> Opened:
    """Opens a config for a command: `run` or `train`. `check`: what else its worlds must pass;
    `seats`: whether each behaviour is made once, so that a wrong option is found now; `made`:
    scenarios that several configs share.

    Raises ConfigError with file and line, DataError where data of a scenario is missing or damaged.
    """
    with loaded.placing():
        if command == "train":
            one_process(loaded, "a training shares its plays by gem-ma train --processes N")
        worlds = worlds_of(loaded.config, base=loaded.base, made=made)
        if check is not None:
            check(worlds)
        for world in (worlds.examined if command == "train" else worlds.played) if seats else ():
            try_seats(world.config, world.scenario)
    return Opened(loaded, worlds, command, offline)


def one_process(loaded: Loaded, why: str) -> None:
    """Raises ConfigError where a config asks for several processes, and its command has one."""
    if loaded.config.run.processes > 1:
        raise ConfigError(f"run.processes: {why}; leave it at 1")


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
    if config.run.zstd:
        zstd()
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
        "models": model_facts(config, policies),
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
    folder.packs = config.run.zstd
    judge = worlds.judge
    # of a training nobody asks for more, and the rest costs more
    folder.rows = (Judge(judge.success) if command == "train" else judge).rows(
        compares=folder.rows.compares
    )
    return folder


def model_facts(config: Config, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Names of models, with digests of their weights."""
    return {
        name: {"model": config.policies[name].model, "digest": _digest(policy)}
        for name, policy in policies.items()
    }


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
