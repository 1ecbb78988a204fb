"""Several processes that play for one run folder: `run.processes`.

The process that holds the folder's lock stays its one writer. It makes the plans, hands each to the
process with the fewest plays, and appends the lines that come back, so the record is a file like
any other. The others are copies of it (`os.fork`), each with worlds and engines of its own; they
write no file but images and replies that were paid for, and end where their end of the line is
closed, as it is when the writer dies.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pickle
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import signature
from typing import Any, NamedTuple, NoReturn

import msgspec

from gem_ma.driver.rollout import Plan, play, seldom_collecting
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Batches, Typed, Weighs
from gem_ma.engines.endpoint.endpoint import Endpoint
from gem_ma.kernel.episode import End
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.record.codec import ENDS
from gem_ma.runs.open import Opened, open_config
from gem_ma.runs.plans import Plans, budget_of
from gem_ma.runs.store import RunFolder
from gem_ma.scores.groups import Id
from gem_ma.scores.rows import PlayRow

# of an answer: the number of its order, the bytes of its row (0: an error follows) and of its line
_HEAD = struct.Struct("<QII")
_NO_ORDER = 2**64 - 1  # an error before the first order
_ROWS = msgspec.json.Decoder(PlayRow)
PATIENCE_S = 2.0  # for a process to end by itself
Policies = Mapping[str, Policy]


class Ended(NamedTuple):
    """A play that ended in another process: its row in the index, and its line."""

    row: PlayRow
    line: bytes

    @property
    def id(self) -> Id:
        return self.row.id

    @property
    def end(self) -> End:
        return ENDS[self.row.end]

    @property
    def error(self) -> str | None:
        return self.row.error


def check_processes(policies: Policies) -> None:
    """Raises ConfigError for a policy that only one process can play with."""
    for name, policy in policies.items():
        if isinstance(policy.core, (Batches, Weighs, Typed)):
            raise ConfigError(
                f"run.processes: policy {name!r} answers in this process, and others would need it"
                " again; leave run.processes at 1, or serve the model and play at its address"
            )


class Processes:
    """So many copies of this process, made before any thread and any loop. A context manager, whose
    end is theirs. `remember` gives policies that keep what they were told, see `play_into`."""

    def __init__(
        self,
        opened: Opened,
        folder: RunFolder,
        number: int,
        remember: Callable[[Policies], Policies],
    ) -> None:
        self.number = number
        self._others: list[_Process] = []
        for rank in range(number):
            mine, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                # an end that is open in a sibling would outlive its process
                for end in (mine, *(other.line for other in self._others)):
                    end.close()
                _play_for(theirs, opened, folder, number, remember)
            theirs.close()
            self._others.append(_Process(pid, mine, f"process {rank + 1} of {number}"))

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exc: object) -> None:
        for other in self._others:
            with suppress(OSError):
                other.line.shutdown(socket.SHUT_RDWR)
            other.line.close()
        for other in self._others:
            other.wait()

    async def play(self, plan: Plan) -> Ended:
        """Plays a plan in one of them. Raises what its play raised, and EngineError where the
        process is gone."""
        other = min(self._others, key=lambda each: len(each.orders))
        return await other.play(plan)

    def close(self) -> None:
        """Leaves their lines, on the loop that they were read on."""
        for other in self._others:
            other.close()


class _Process:
    """One of them, as its writer sees it."""

    def __init__(self, pid: int, line: socket.socket, name: str) -> None:
        self.pid = pid
        self.line = line
        self.name = name
        self.orders: dict[int, asyncio.Future[Ended]] = {}
        self._numbers = itertools.count()
        self._lost: Exception | None = None
        self._status: int | None = None
        self._opening: asyncio.Future[None] | None = None
        self._writer: Any = None

    async def play(self, plan: Plan) -> Ended:
        number = next(self._numbers)
        answer: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.orders[number] = answer
        try:
            if self._opening is None:
                self._opening = asyncio.ensure_future(self._open())
            await asyncio.shield(self._opening)
            if self._lost is not None:
                raise self._lost
            order = [number, plan.world, plan.task, plan.seed, plan.repeat]
            self._writer.write(json.dumps(order).encode() + b"\n")
            return await answer
        finally:
            del self.orders[number]

    async def _open(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=self.line)
        self._listening = asyncio.ensure_future(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while self._lost is None:
                number, *sizes = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                row, line = [await reader.readexactly(size) for size in sizes]
                self._take(number, row, line)
        except (asyncio.IncompleteReadError, OSError):
            self._lose(EngineError(f"{self.name} that play {self._how()}; {_KEPT}"))

    def _take(self, number: int, row: bytes, line: bytes) -> None:
        error = None if row else pickle.loads(line)
        if number == _NO_ORDER:
            return self._lose(error)
        answer = self.orders.get(number)
        if answer is None or answer.done():  # nobody waits for it any more
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(Ended(_ROWS.decode(row), line))

    def _lose(self, error: Exception | None) -> None:
        self._lost = error
        for answer in self.orders.values():
            if not answer.done() and error is not None:
                answer.set_exception(error)

    def _how(self) -> str:
        """How it has ended."""
        _, self._status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(self._status)
        return f"was ended by signal {-code}" if code < 0 else f"has ended with code {code}"

    def close(self) -> None:
        if self._writer is not None:
            self._listening.cancel()
            self._writer.transport.abort()

    def wait(self) -> None:
        """Until it has ended, by force where it does not."""
        end = time.monotonic() + PATIENCE_S
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
            elif time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.0 if pid else 0.01)


_KEPT = "what was played is kept, type the same command again to go on"


# -- in the copies ---------------------------------------------------------------------------------


def _play_for(
    line: socket.socket,
    opened: Opened,
    folder: RunFolder,
    number: int,
    remember: Callable[[Policies], Policies],
) -> NoReturn:
    code = 1
    try:
        # A terminal signals all of them, and the writer says when to stop. Handlers, since what is
        # ignored is ignored by the tools that plays start, too.
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, lambda *_: None)
        # a later play of this process differs from the first one of another
        folder.rows.compares = False
        # of its own: a world or an engine may hold a pipe to a tool
        own = open_config(opened.loaded, seats=False)
        policies = remember(_share(own, opened.policies, number))
        asyncio.run(_answer(line, own, folder, policies))
        code = 0
    except BaseException as error:
        with suppress(OSError):
            line.sendall(_failure(_NO_ORDER, error))
    finally:
        # nothing of the writer's is cleaned up or flushed twice
        os._exit(code)


def _share(own: Opened, policies: Policies, number: int) -> Policies:
    """The policies of one of so many processes, with a share of the limits and of the requests at
    once."""
    config = own.loaded.config
    budget = budget_of(config)
    if budget is not None and budget.most_usd is not None:
        budget.most_usd /= number
    if budget is not None and budget.most_tokens is not None:
        budget.most_tokens //= number
    settings = dict(config.policies)
    for name, policy in policies.items():
        if "concurrency" in signature(type(policy.core)).parameters:
            most = settings[name].options.get("concurrency", Endpoint().concurrency)
            fewer = {"concurrency": max(1, most // number)}
            settings[name] = settings[name].model_copy(update=fewer)
    return own.of_policies(config.model_copy(update={"policies": settings}), budget=budget)


async def _answer(
    line: socket.socket, opened: Opened, folder: RunFolder, policies: Policies
) -> None:
    """Plays every order that comes, at once, until the line is closed."""
    reader, writer = await asyncio.open_unix_connection(sock=line)
    plans = {
        world.name: Plans(world.config, world.scenario, world.name)
        for world in opened.worlds.played
    }
    playing: set[asyncio.Task[None]] = set()

    async def one(number: int, world: str, *start: Any) -> None:
        try:
            episode = await play(plans[world].again(*start), policies)
            row, made = folder.made(episode)
            told = msgspec.json.encode(row)
            writer.write(_HEAD.pack(number, len(told), len(made)) + told + made)
        except Exception as error:
            writer.write(_failure(number, error))

    with seldom_collecting():
        while (order := await reader.readline()).endswith(b"\n"):
            task = asyncio.ensure_future(one(*json.loads(order)))
            playing.add(task)
            task.add_done_callback(playing.discard)
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


def _failure(number: int, error: BaseException) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # of a class that cannot be sent
        data = pickle.dumps(EngineError(f"{type(error).__name__}: {error}"))
    return _HEAD.pack(number, 0, len(data)) + data
