"""`gem-ma train --processes N`: starts the same command N times on this machine, hands signals
on, and ends all when one fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from gem_ma.cli.stopping import ENDING_SIGNALS, is_ignored
from gem_ma.cli.terminal import progress_line
from gem_ma.config.loading import Loaded
from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.training.processes.teams import MEET, LostError, Teams, at_home, join

# `--ray ADDRESS` and `--workers N` of `gem-ma train` and `gem-ma resume`: plays on the workers of a
# Ray cluster.

F = TypeVar("F", bound=Callable[..., Any])


def worker_options(command: F) -> F:
    """Gives a command both options, as keywords `ray` and `workers`."""
    ray = click.option(
        "--ray", metavar="ADDRESS", help="Play on the workers of a Ray cluster, or `local`."
    )
    number = click.IntRange(min=1)
    workers = click.option(
        "--workers", type=number, help="Of --ray: how many.  [default: one for each core]"
    )
    return ray(workers(command))


def check_ray(ray: str | None, workers: int | None, processes: int) -> None:
    """Raises ConfigError for options that do not go together."""
    if workers is not None and ray is None:
        raise ConfigError(f"--workers {workers}: these are workers of Ray; add --ray local")
    if ray is not None and processes > 1:
        raise ConfigError("--ray: one process learns from what its workers play; train with one")


@contextmanager
def joined(loaded: Loaded, ray: str | None, workers: int | None) -> Iterator[Teams]:
    """The processes of a training: those of a launcher, or one that learns and workers that play.
    However the training ends, no worker plays on. Raises ConfigError, EngineError."""
    if ray is None:
        yield join()
        return
    from gem_ma.training.processes.ray_workers import ray_pool  # most trainings have no cluster

    # absolute: a worker begins in a folder of its own
    base = "" if loaded.base is None else str(loaded.base.resolve())
    pool = ray_pool(ray, loaded.config.model_dump_json(), base, workers)
    try:
        yield Teams(pool=pool)
    finally:
        pool.close()


if TYPE_CHECKING:
    from gem_ma.config.loading import Loaded

# set for the processes that `spread` starts: errors that only follow from another process's error
# are not printed
STARTED = "GEM_MA_STARTED"
# one that means nothing else: sysexits.h ends at 78, shells and signals begin at 126
LOST = 121  # their exit code then
GRACE_S = 10.0  # for the others, once one has ended
FOLLOWS_S = 120.0  # to end after a success


def follow(loaded: Loaded) -> int:
    """One of several processes and not the first: plays and learns its share, writes nothing,
    and says nothing that the first one says."""
    from gem_ma.training.schedule.checks import open_training
    from gem_ma.training.train import train

    # the first process drains and then ends; the others end with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        opened = open_training(loaded, seats=False)
    except GemMaError:
        return 1  # the first one finds the same
    teams = join()
    try:
        asyncio.run(train(loaded.config, opened.worlds, opened.policies, None, teams=teams))
    except LostError:
        return LOST
    except GemMaError as error:
        progress_line(f"process {teams.play.rank} of {teams.play.size}: {error}")
        return 1
    finally:
        teams.close()
    return 0


def spread(arguments: Sequence[str], processes: int) -> int:
    """Runs `gem-ma train ARGUMENTS` in so many processes; gives the exit code of the first. A
    process that fails ends all, with one line."""
    environment = os.environ | {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        STARTED: "1",
    }
    environment |= at_home()
    # with a thread per core in each of them, N processes would fight for the cores
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    command = [sys.executable, "-m", "gem_ma", "train", *arguments]
    with contextlib.ExitStack() as files:
        folder = files.enter_context(tempfile.TemporaryDirectory(prefix="gem-ma-meet-"))
        environment[MEET] = os.path.join(folder, "meet")
        # files, not pipes: nobody reads a pipe while the processes run, and a full one stops them
        errors = [
            files.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            for _ in range(processes - 1)
        ]
        children: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(processes):
                ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                children.append(
                    subprocess.Popen(
                        command,
                        env=environment | ranks,
                        # a session of its own: a Ctrl-C reaches this process alone, which hands it
                        # on once
                        start_new_session=True,
                        # the first one speaks for all
                        stdout=None if rank == 0 else subprocess.DEVNULL,
                        stderr=None if rank == 0 else errors[rank - 1],
                    )
                )
            with _handing_on(children[0]):
                code = _wait(children)
            codes = [child.poll() for child in children]
        finally:
            _end(children)
        if code != LOST:
            return code
        progress_line(
            f"{_cause(codes, errors)}; all have ended with it, type the same command again to go on"
            " from the last checkpoint"
        )
        return 1


def _cause(codes: Sequence[int | None], errors: Sequence[IO[str]]) -> str:
    """What the process said that failed first, or how it ended; LOST marks those that only lost
    another one."""
    failed = (rank for rank, code in enumerate(codes) if code not in (None, 0, LOST))
    rank = next(failed, 0)
    # what the first process said stands on the terminal already
    if rank:
        errors[rank - 1].seek(0)
        lines = [line.strip() for line in errors[rank - 1] if line.strip()]
        if lines:
            return lines[-1]
    code = codes[rank] or 0
    # a negative code is the signal that ended the process
    how = f"was ended by signal {-code}" if code < 0 else "has ended"
    return f"process {rank} of {len(codes)} {how}"


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> int:
    """The exit code of the first process, LOST where another one failed before it."""
    deadline = None
    while True:
        codes = [child.poll() for child in children]
        if codes[0] is not None:
            if codes[0] == 0:
                _until(children[1:], FOLLOWS_S)
            return LOST if codes[0] < 0 else codes[0]
        # a grace, since the first one may be writing its checkpoint
        if deadline is None and any(codes[1:]):
            deadline = time.monotonic() + GRACE_S
        if deadline is not None and time.monotonic() > deadline:
            return LOST
        time.sleep(0.05)


def _until(children: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, end - time.monotonic()))


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends what still runs; what the first one has written is whole at any instant."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    _until(children, 2.0)
    # a process that waits for the others inside of a collective call hears no SIGTERM
    for child in children:
        if child.poll() is None:
            child.kill()
            child.wait()


@contextlib.contextmanager
def _handing_on(first: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals go to the first process, which drains, tells how to resume, and ends."""

    def hand_on(number: int, frame: object) -> None:
        first.send_signal(number)

    caught = [number for number in ENDING_SIGNALS if not is_ignored(number)]
    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, *caught)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
