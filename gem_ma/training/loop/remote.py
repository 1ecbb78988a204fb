"""Players in other processes: chunks of plans go out as JSON, episodes come back as lines of a
record. What a role promises is in `gem_ma.training.loop.roles`.

A play is a function of its plan and the weights. So a chunk that was lost with its worker is played
again, and its records are the same to the byte.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Carries, Pins
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.runs.open import Opened
from gem_ma.runs.worlds import Worlds
from gem_ma.system.import_folders import search_folder
from gem_ma.training.loop.local import heated, play_chunk
from gem_ma.training.processes.chunks import (
    SIZE,
    Job,
    WorkerPool,
    cut,
    episodes_of,
    error_of,
    order_of,
    plan_of,
    reported,
    share_out,
)


class RemotePlayers:
    """Plays on the workers of `pool`. `learned` names the policies that learn, whose weights go
    along. Raises ConfigError for what another process cannot play."""

    def __init__(
        self,
        config: Config,
        worlds: Worlds,
        policies: Mapping[str, Policy],
        learned: Iterable[str],
        pool: WorkerPool,
    ) -> None:
        self.config = config
        self.worlds = worlds
        self.policies = policies
        self.pool = pool
        self.learned = list(learned)
        self._sent: dict[str, tuple[str, Any]] = {}  # policy -> (stamp, what was put)
        self._fixed: dict[str, tuple[str, Any]] = {}  # the same, of players that are pinned
        check_remote(config, policies)

    async def play(
        self, plans: Sequence[Plan], *, learning: bool = False, temperature: float | None = None
    ) -> list[Episode]:
        weights = self._fixed or {name: self._weights(name) for name in self._carried()}
        train = self.config.train
        size = train.chunk if train is not None and train.chunk is not None else SIZE
        jobs: list[Job] = []
        for chunk in cut(plans, size):
            order = {
                "plans": [order_of(plan, self.worlds) for plan in chunk],
                "weights": {name: stamp for name, (stamp, _) in weights.items()},
                "learned": self.learned if learning else [],
                "temperature": temperature,
            }
            jobs.append((json.dumps(order), [put for _, put in weights.values()]))
        reports = [json.loads(text) for text in await share_out(jobs, self.pool.workers)]
        failed = next((report for report in reports if report["kind"]), None)
        if failed is not None:
            raise error_of(failed)
        return [episode for report in reports for episode in episodes_of(report)]

    def pinned(self) -> RemotePlayers | None:
        engines = [self.policies[name].core for name in self.learned]
        if not all(isinstance(engine, Pins) for engine in engines):
            return None
        other = copy(self)
        other._fixed = {name: self._weights(name) for name in self._carried()}
        return other

    def _carried(self) -> list[str]:
        # a policy that was cloned, and does not learn, has other weights than its file as well
        warm = self.config.train.warm_start if self.config.train is not None else {}
        return list(dict.fromkeys((*self.learned, *warm)))

    def _weights(self, name: str) -> tuple[str, Any]:
        engine = self.policies[name].core
        assert isinstance(engine, Carries)  # `check_remote` has refused others
        data = engine.carried()
        stamp = hashlib.sha256(data).hexdigest()
        if self._sent.get(name, ("",))[0] != stamp:
            self._sent[name] = (stamp, self.pool.put(data))
        return self._sent[name]


def check_remote(config: Config, policies: Mapping[str, Policy]) -> None:
    """Raises ConfigError for a training whose plays no other process can do."""
    train = config.train
    if config.limits.usd is not None or config.limits.tokens is not None:
        raise ConfigError("limits: each worker would spend the whole budget; remove limits")
    if train is None:
        return
    if train.admission == "continuous":
        raise ConfigError(
            "train.admission: workers take chunks of one step after those of another; remove it, or"
            " play in this process"
        )
    if train.opponents is not None:
        raise ConfigError(
            "train.opponents: workers know no members of a league; play it in one process"
        )
    for name in dict.fromkeys((*train.policies, *train.warm_start)):
        engine = policies[name].core
        if not isinstance(engine, Carries):
            raise ConfigError(
                f"policies.{name}: workers cannot take the weights of a {type(engine).__name__};"
                " play it in one process"
            )


class Playroom:
    """The other end of `RemotePlayers`: opens the same config, takes the weights that come with a
    chunk, and answers with the episodes. It keeps nothing that would be lost with it.

    `settings`: the config as JSON text; `base`: the folder that its paths are looked up in, then
    `folder`, the working folder of whoever asks.
    """

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
            opened = Opened.of(self.config, self.base)
            policies = opened.policies
            self.worlds = opened.worlds  # last: it says that all is open
            self.policies = policies
        except Exception as error:  # an import too: the asking process opened the same
            named = "" if isinstance(error, GemMaError) else f"{type(error).__name__}: "
            fault = " ".join(f"{named}{error}".split())
            raise ConfigError(
                f"a worker on {gethostname()} cannot open what this process has opened: {fault}"
                f" (its working folder: {os.getcwd()}; it needs the same files and packages)"
            ) from error
