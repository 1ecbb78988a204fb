"""The other end of `RemotePlayers`: a process that plays chunks of plans. It opens the same config,
takes the weights that come with a chunk, and answers with the episodes. It keeps nothing that would
be lost with it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Carries
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.system.import_folders import search_folder
from gem_ma.training.loop.local import heated, play_chunk
from gem_ma.training.processes.orders import plan_of, reported


class Playroom:
    """Plays for another process. `settings`: the config as JSON text; `base`: the folder that its
    paths are looked up in, then `folder`, the working folder of whoever asks."""

    def __init__(self, settings: str, base: str = "", folder: str = "") -> None:
        self.settings = settings
        self.folder = folder
        self.base = Path(base) if base else None
        self.worlds: Any = None
        self.policies: dict[str, Policy] = {}
        self._stamps: dict[str, str] = {}  # of the weights that each policy has

    def play(self, order: str, *weights: bytes) -> str:
        """The report of a chunk, as JSON text. `weights` are those that the order names, in its
        order."""

        async def whole() -> str:
            return json.dumps(await reported(self._play(json.loads(order), weights)))

        return asyncio.run(whole())

    async def _play(self, order: dict[str, Any], weights: Sequence[bytes]) -> list[Episode]:
        self._open()
        for (name, stamp), data in zip(order["weights"].items(), weights, strict=True):
            engine = self.policies[name].core
            # the same weights come with every chunk of a step
            if self._stamps.get(name) != stamp and isinstance(engine, Carries):
                engine.carry(data)
                self._stamps[name] = stamp
        policies = dict(self.policies)
        for name in order["learned"]:
            policies[name] = replace(policies[name], learns=True)
        plans = [plan_of(one, self.worlds) for one in order["plans"]]
        return await play_chunk(self.config, plans, heated(policies, order["temperature"]))

    def _open(self) -> None:
        # not in the constructor: what is wrong with a config is reported as any other error is
        if self.worlds is not None:
            return
        if self.folder and Path(self.folder).is_dir():  # another machine may have other folders
            os.chdir(self.folder)
            # behind all packages: Ray puts it first, where a user's `json.py` hides Python's
            search_folder(Path(self.folder))
        try:
            self.config = Config.model_validate_json(self.settings)
            policies = open_policies(self.config, base=self.base)
            self.worlds = worlds_of(self.config, base=self.base)
            self.policies = policies
        except Exception as error:  # also an import that fails: whoever asks has opened the same
            named = "" if isinstance(error, GemMaError) else f"{type(error).__name__}: "
            fault = " ".join(f"{named}{error}".split())
            raise ConfigError(
                f"a worker on {gethostname()} cannot open what this process has opened: {fault}"
                f" (its working folder: {os.getcwd()}; it needs the same files and packages)"
            ) from error
