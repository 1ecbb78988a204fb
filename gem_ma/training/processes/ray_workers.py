"""Workers on Ray: actors of a cluster that play chunks of plans. Ray brings messages and weights to
them, says when one died, and finds a machine with a free core.

A worker that died is made anew here, not by Ray: so each death is heard of, with its cause.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import gem_ma
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.system.extras import install
from gem_ma.training.processes.chunks import TRIES, Gone, Job, WorkerPool

LOCAL = "local"  # stands for an address: a cluster of this machine, for the length of the run
# On Linux the first one makes every daemon of Ray bind 127.0.0.1; without it they listen on all
# interfaces. Both are read when Ray is imported.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
KNOCK_S = 5.0  # for the first answer of a cluster
STORE = 200 * 2**20  # bytes of shared memory of a local cluster: weights and reports pass there
# How every client of gRPC begins (RFC 9113, section 3.4): a fixed line, and a frame of settings
# that is empty. Its kind, the fourth byte, is 4, and the first frame of the answer has the same.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4" + bytes(5)
# how the last part of a traceback begins
_CAUSE = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b")


def open_cluster(address: str, workers: int | None = None) -> Any:
    """Ray, connected to the cluster at `address`, or to one that is started here ("local") with so
    many cores, or all. Raises ConfigError without the extra and where no such cluster runs.
    """
    if address == LOCAL:
        # before the import; what a user has set stays
        for name, value in LOOPBACK.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"--ray needs Ray ({error.name or error}): {install('ray')}") from error
    options: dict[str, Any] = {"address": address}
    if address == LOCAL:
        cores = workers or os.cpu_count() or 1
        options = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": STORE}
    start = "start one with: ray start --head, or write --ray local"
    try:
        if address != LOCAL:
            knock(address)
        ray.init(log_to_driver=False, logging_level="ERROR", **options)
    except OSError as error:
        raise ConfigError(
            f"--ray {address}: no Ray cluster answers there ({line_of(error)}); {start}"
        ) from error
    except (ValueError, RuntimeError) as error:  # a wrong address, other versions of Ray or Python
        raise ConfigError(f"--ray {address}: {line_of(error)}") from error
    except SystemExit as error:  # how Ray gives up
        raise ConfigError(f"--ray {address}: no Ray cluster answers there; {start}") from error
    _hush()
    return ray


def knock(address: str) -> None:
    """Raises OSError where nobody listens at host:port, or somebody who is not Ray, which itself
    would wait for minutes there and then end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):  # such as `auto`
        return
    if int(port) > 65535:
        raise OSError(f"port {port}: the largest is 65535")
    place = (host.strip("[]"), int(port))
    with socket.create_connection(place, KNOCK_S) as connection:
        # under TLS Ray answers nobody who does not encrypt; it is enough that somebody is there
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        connection.settimeout(KNOCK_S)
        connection.sendall(PREFACE)
        try:
            # a file reads on until all four are there: they may come one by one
            with connection.makefile("rb") as answers:
                answer = answers.read(4)
        except ConnectionError:  # it hangs up on what it does not understand
            answer = b""
        if answer[3:4] != PREFACE[-6:-5]:
            raise OSError("what answers there does not speak as Ray does")


def _hush() -> None:
    """Ray prints what becomes of its processes on standard output, where results are: the run says
    in its words what of that matters."""
    # It has no option for it. Where the name is gone, Ray prints as it likes.
    worker = sys.modules.get("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *args, **options: None  # type: ignore[union-attr]


def line_of(error: BaseException) -> str:
    """What it says, in one line: of a traceback the end, which names the cause."""
    # colours, and the markers below a line of code
    text = re.sub(r"\x1b\[[0-9;]*m|^[\s^~]+$", "", str(error), flags=re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [place for place, line in enumerate(lines) if _CAUSE.match(line)]
    lines = lines[causes[-1] :] if causes else lines
    return " ".join(lines)[:300] or type(error).__name__


@cache  # a process does not change its code
def edition() -> dict[str, str]:
    """Which code this process runs, and where: all that play for one record must run the same."""
    place = Path(gem_ma.__file__).parent
    digest = sha256()
    # not the version alone: two checkouts of one version differ by what was written since
    for path in sorted(place.rglob("*.py")):
        digest.update(f"{path.relative_to(place).as_posix()}\0".encode() + path.read_bytes())
    return {
        "gem_ma": gem_ma.__version__,
        "python": platform.python_version(),
        "code": digest.hexdigest()[:12],
        "host": socket.gethostname(),
    }


def differs(mine: dict[str, str], other: dict[str, str]) -> str:
    """What sets two editions apart, in words; "" where they are the same."""
    # Python by its first two numbers: the third repairs faults, and Ray warns of it
    editions = [{**one, "python": ".".join(one["python"].split(".")[:2])} for one in (mine, other)]
    for name in ("gem_ma", "python", "code"):
        here, there = (one[name] for one in editions)
        if here != there:
            shown = f"other code of gem_ma {mine['gem_ma']}" if name == "code" else name
            return f"{shown} ({there} there, {here} here)"
    return ""


START_S = 300.0  # for a worker to be there: it imports what it plays with


class Player:
    """What an actor holds. Without a coroutine: Ray would run all its methods on an event loop, and
    a room runs one of its own."""

    def __init__(self, settings: str, base: str, folder: str) -> None:
        # here, on the worker: this file is needed where nothing is played
        from gem_ma.training.loop.remote import Playroom

        self.room = Playroom(settings, base, folder)

    def play(self, order: str, *weights: bytes) -> str:
        return self.room.play(order, *weights)

    def here(self) -> dict[str, str]:
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


class RayPool(WorkerPool):
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


def ray_pool(address: str, settings: str, base: str = "", workers: int | None = None) -> RayPool:
    """Workers at the Ray cluster `address`, or at one that is started here ("local"): so many, or
    one for each free core. `settings` and `base`: see `Playroom`.

    Raises ConfigError without the extra and where no such cluster runs.
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
    return RayPool(ray, lambda: actor.remote(settings, base, os.getcwd()), count)


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
