"""Workers on Ray: actors of a cluster that play chunks of plans. Ray brings messages and weights to
them, says when one died, and finds a machine with a free core.

A worker that died is made anew here, not by Ray: so each death is heard of, with its cause.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.training.processes.chunks import TRIES, Gone
from gem_ma.training.processes.edition import differs, edition
from gem_ma.training.processes.hands import Hands, Job
from gem_ma.training.processes.ray_cluster import line_of, open_cluster

START_S = 300.0  # for a worker to be there: it imports what it plays with


class Player:
    """What an actor holds. Without a coroutine: Ray would run all its methods on an event loop, and
    a room runs one of its own."""

    def __init__(self, settings: str, base: str, folder: str) -> None:
        # here, on the worker: this file is needed where nothing is played
        from gem_ma.training.loop.playroom import Playroom

        self.room = Playroom(settings, base, folder)

    def play(self, order: str, *weights: bytes) -> str:
        """See `Playroom.play`."""
        return self.room.play(order, *weights)

    def here(self) -> dict[str, str]:
        """Its edition: it can be asked."""
        return edition()


class RayWorker:
    """One actor after the other: where one died, `make` makes the next. `met`: the workers of the
    cluster that can be asked."""

    def __init__(self, ray: Any, make: Callable[[], Any], met: set[RayWorker]) -> None:
        self.ray = ray
        self.make = make
        self.met = met
        self.actor = make()
        self.up = False

    async def ready(self) -> None:
        """See `Worker.ready`. Raises ConfigError where its code is another one."""
        failures = self.ray.exceptions
        end = time.monotonic() + START_S
        deaths = 0
        while not self.up:
            try:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    _check_edition(await self.actor.here.remote())
                self.up = True
            except TimeoutError as error:
                # a place that never comes free: those that are there play its share
                if not self.met:
                    raise EngineError(
                        f"no Ray worker started within {START_S:.0f} s; `ray status` tells which"
                        " cores are free"
                    ) from error
                end = time.monotonic() + START_S
            except failures.ActorUnavailableError as error:
                # no word of it, and no word of its death
                if time.monotonic() > end:
                    raise EngineError(
                        f"a Ray worker was not heard of for {START_S:.0f} s: {line_of(error)}"
                    ) from error
                await asyncio.sleep(0.1)
            except failures.RayActorError as error:
                deaths += 1
                # an error of its constructor comes again; a process may have been killed
                if deaths == TRIES or getattr(error, "actor_init_failed", False):
                    raise EngineError(f"a Ray worker cannot start: {line_of(error)}") from error
                self.actor = self.make()
            except failures.RayError as error:
                raise EngineError(f"a Ray worker cannot start: {line_of(error)}") from error
        self.met.add(self)

    async def do(self, job: Job) -> str:
        """See `Worker.do`."""
        order, weights = job
        failures = self.ray.exceptions
        # a process that is gone, a machine that is gone, a worker that took too much memory
        gone = (failures.RayActorError, failures.WorkerCrashedError, failures.OutOfMemoryError)
        try:
            return str(await self.actor.play.remote(order, *weights))
        except gone as error:
            self.up = False
            self.met.discard(self)
            if not isinstance(error, failures.ActorUnavailableError):
                self.actor = self.make()
            raise Gone(line_of(error)) from error
        except failures.RayTaskError as error:  # a fault of ours: a room reports all others
            raise EngineError(f"a Ray worker failed: {line_of(error.cause or error)}") from error
        except failures.RayError as error:
            raise EngineError(f"Ray failed: {line_of(error)}") from error


class RayHands(Hands):
    """The workers of a cluster."""

    def __init__(self, ray: Any, make: Callable[[], Any], count: int) -> None:
        met: set[RayWorker] = set()
        workers = [RayWorker(ray, make, met) for _ in range(count)]
        super().__init__(workers, ray.put)
        self.ray = ray
        self.mine = workers
        self.closed = False

    def close(self) -> None:
        """Ends the actors, and a cluster that was started for this run."""
        if self.closed:  # a call of Ray would start a cluster now
            return
        self.closed = True
        for worker in self.mine:
            # the cluster may be gone already
            with suppress(Exception):
                self.ray.kill(worker.actor)
        self.ray.shutdown()


def ray_hands(address: str, settings: str, base: str = "", workers: int | None = None) -> RayHands:
    """Workers at the Ray cluster `address`, or at one that is started here ("local"): so many, or
    one for each free core. `settings` and `base`: see `Playroom`.

    Raises ConfigError without the extra and where there is no such cluster.
    """
    ray = open_cluster(address, workers)
    count = workers or int(ray.available_resources().get("CPU", 0))
    cores = int(ray.cluster_resources().get("CPU", 0))
    if not 1 <= count <= cores:  # without a core an actor waits for ever
        ray.shutdown()
        raise ConfigError(
            f"--ray {address}: no room for {workers or 'any'} workers; each takes a core, the"
            f" cluster has {cores}; wait for free ones, or correct --workers"
        )
    # Ray starts and tries nothing again: a chunk is counted where it is lost, and so is a worker
    # that dies before it can be asked.
    actor = ray.remote(max_restarts=0, max_task_retries=0, num_cpus=1)(Player)
    actor = actor.options(runtime_env={"env_vars": _surroundings()})
    return RayHands(ray, lambda: actor.remote(settings, base, os.getcwd()), count)


def _surroundings() -> dict[str, str]:
    """Variables of a worker: it finds what this process finds, where its machine has it."""
    # one thread each, since there is one worker a core
    variables = {"OMP_NUM_THREADS": "1"}
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if places:
        # before those of the machine, which Ray fills in
        folders = [str(Path(place).resolve()) for place in places]
        variables["PYTHONPATH"] = os.pathsep.join([*folders, "${PYTHONPATH}"])
    return variables


def _check_edition(other: dict[str, str]) -> None:
    """Raises ConfigError where a worker runs other code than this process."""
    odd = differs(edition(), other)
    if odd:
        raise ConfigError(
            f"--ray: the worker on {other['host']} has {odd}, so its plays would not be those of"
            " this process; install the same on every machine of the cluster"
        )
