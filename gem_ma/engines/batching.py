"""Batching in one place: many askers, one sync engine that answers batches.

Alone, a batch collects what arrives within `wait_s` and runs in a worker thread; what arrives
meanwhile is the next one, or joins the running one (`Streams`). Under a `Gate` a batch is released
when every live coroutine of the rollout waits, sorted by (conversation, turn): then its rows, and
so its floating-point results, do not depend on timing, and a resumed training run is bit-equal.
Engines that share something (`Mixes`) wait in one lane.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from gem_ma.engines.capabilities import Batches, Mixes, Streams
from gem_ma.kernel.types import Reply, Request

Core = Batches | Streams  # what `Batched` makes an engine of
Queued = tuple[Request, "asyncio.Future[Reply]", "Batched"]


class Gate:
    """Counts the coroutines of a rollout that can still run; when none can, all waiting batches are
    released. One that waits for anything but a batch (a call, a clock) counts as running."""

    def __init__(self) -> None:
        self.running = 0
        self._waiting: dict[_Lane, dict[asyncio.Future[Reply], tuple[Request, Batched]]] = {}
        self._due = self._closed = False

    def start(self, coroutines: int = 1) -> None:
        """These coroutines are about to run."""
        self.running += coroutines

    def stop(self, coroutines: int = 1) -> None:
        """These coroutines have ended."""
        self.running -= coroutines
        self._look()

    def close(self) -> None:
        """Nothing is released any more: the rollout ends, and who still waits is being
        cancelled."""
        self._closed = True

    async def ask(self, engine: Batched, request: Request) -> Reply:
        """Waits for the batch that holds this request."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        lane = engine.lane
        self._waiting.setdefault(lane, {})[answer] = (request, engine)
        self.running -= 1
        self._look()
        try:
            return await answer
        finally:
            # cancelled before its batch: it runs again, unanswered
            if self._waiting.get(lane, {}).pop(answer, None) is not None:
                self.running += 1

    def _look(self) -> None:
        # Released in the next round of the loop: requests that one act makes side by side are still
        # on their way.
        if self.running <= 0 and not self._due and not self._closed and any(self._waiting.values()):
            self._due = True
            asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        self._due = False
        if self.running > 0 or self._closed:
            return
        # taken before anything runs: what an answer makes its asker ask belongs to the next release
        waiting = self._waiting
        self._waiting = {}
        batches = [
            (lane, [(request, answer, engine) for answer, (request, engine) in rows.items()])
            for lane, rows in waiting.items()
            if rows
        ]
        for lane, rows in sorted(batches, key=lambda batch: min(map(_order, batch[1]))):
            self.running += len(rows)  # their askers run again
            lane.release(rows)


GATE: ContextVar[Gate | None] = ContextVar("gem_ma_gate", default=None)


def _order(row: Queued) -> tuple[str, str, int, int]:
    request = row[0]
    return (request.policy, request.conversation, request.turn, request.seed)


class _Lane:
    """Rows that wait for one batch."""

    def __init__(self, max_batch: int, wait_s: float) -> None:
        self.max_batch = max_batch
        self.wait_s = wait_s
        # filled by the event loop, emptied in the worker thread
        self._waiting: deque[Queued] = deque()
        self._worker: asyncio.Task[None] | None = None

    def add(self, row: Queued) -> None:
        """Answers this row with one of the next batches."""
        self._waiting.append(row)
        # a worker of a loop that is gone will never end
        if (
            self._worker is None
            or self._worker.done()
            or self._worker.get_loop() is not row[1].get_loop()
        ):
            self._worker = asyncio.create_task(self._drain())

    def release(self, rows: Iterable[Queued]) -> None:
        """Answers these rows here and now, in an order that does not depend on their arrival."""
        waiting = sorted(rows, key=_order)
        for start in range(0, len(waiting), self.max_batch):
            if batch := _open(waiting[start : start + self.max_batch]):
                _answer(batch, _run(batch))

    async def _drain(self) -> None:
        try:
            while self._waiting:
                # askers of one step come within a millisecond of each other
                await asyncio.sleep(self.wait_s)
                engine = self._waiting[0][2].engine if self._waiting else None
                if isinstance(engine, Streams):
                    await self._stream_in_thread(engine)
                elif batch := self._next(self.max_batch):
                    _answer(batch, await _run_in_thread(batch))
        finally:
            self._worker = None

    def _next(self, most: int) -> list[Queued]:
        """Takes the rows that come next; those whose asker is gone are dropped."""
        rows: list[Queued] = []
        while self._waiting and len(rows) < most:
            row = self._waiting.popleft()
            if not row[1].done() and not row[1].get_loop().is_closed():
                rows.append(row)
        return rows

    async def _stream_in_thread(self, engine: Streams) -> None:
        try:
            await asyncio.to_thread(_Stream(self).run, engine)
        except RuntimeError as error:  # no thread to be had: the askers must hear of it
            _answer(self._next(self.max_batch), error)


class _Abandoned(BaseException):  # no Exception: an engine may catch those of a row
    """Nobody waits any more for what runs."""


class _Stream:
    """Rows of a lane that an engine answers one by one while others join; all but the futures is
    of the worker thread."""

    def __init__(self, lane: _Lane) -> None:
        self.lane = lane
        self.pulled: list[Queued | None] = []  # None once answered
        self.running = 0

    def run(self, engine: Streams) -> None:
        error: Exception | None = None
        try:
            engine.stream(self.pull, self.give)
        except (StopIteration, SystemExit) as raised:
            # a future refuses the first, the second would end the run
            error = RuntimeError(
                f"{type(engine).__name__} raised {type(raised).__name__}({raised})"
            )
        except _Abandoned:
            return
        except Exception as raised:  # goes to every asker that runs
            error = raised
        for number, row in enumerate(self.pulled):
            if row is not None:
                self.give(
                    number,
                    error or RuntimeError(f"{type(engine).__name__} left a request unanswered"),
                )

    def pull(self) -> list[tuple[Any, Request]]:
        rows = self.lane._next(self.lane.max_batch - self.running)
        # every asker was cancelled: the engine would decode their answers to the end
        if self.running and not rows and all(row is None or row[1].done() for row in self.pulled):
            raise _Abandoned
        self.pulled += rows
        self.running += len(rows)
        return [(batched.engine, request) for request, _, batched in rows]

    def give(self, number: int, answer: Reply | Exception) -> None:
        row = self.pulled[number]
        if row is None:
            return
        self.pulled[number] = None
        self.running -= 1
        # futures belong to their loop's thread, and this one is the worker's
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            row[1].get_loop().call_soon_threadsafe(_answer, [row], [answer])


_LANES: WeakKeyDictionary[Any, _Lane] = WeakKeyDictionary()  # by what engines share


class Batched:
    """An Engine made of a batch engine. A failing batch gives its error to all its askers, an error
    in place of a reply to its own asker alone; a cancelled asker is skipped.

    An engine that `Mixes` waits in one lane with those that share with it. One that `Streams` is
    given, without a gate, what comes while it runs.
    """

    def __init__(self, engine: Core, *, max_batch: int = 256, wait_s: float = 0.002) -> None:
        self.engine = engine
        # asked here, not for every request: such a look costs microseconds
        self._mixes = engine if isinstance(engine, Mixes) else None
        self._lane = _Lane(max_batch, wait_s)

    @property
    def lane(self) -> _Lane:
        """Where its requests wait: with those of the engines that it shares something with."""
        shared = self._mixes.shares if self._mixes is not None else None
        return self._lane if shared is None else _LANES.setdefault(shared, self._lane)

    async def sample(self, request: Request) -> Reply:
        gate = GATE.get()
        if gate is not None:
            return await gate.ask(self, request)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.lane.add((request, answer, self))
        return await answer


async def _run_in_thread(batch: list[Queued]) -> Sequence[Reply | Exception] | Exception:
    try:
        return await asyncio.to_thread(_run, batch)
    except RuntimeError as error:  # no thread to be had: the askers must hear of it
        return error


def _run(batch: list[Queued]) -> Sequence[Reply | Exception] | Exception:
    engine: Any = batch[0][2].engine
    try:
        if any(batched.engine is not engine for _, _, batched in batch):
            replies = list(
                engine.sample_mixed([(batched.engine, request) for request, _, batched in batch])
            )
        else:
            replies = list(engine.sample_batch([request for request, _, _ in batch]))
    except (StopIteration, SystemExit) as error:
        # a future refuses the first, the second would end the run
        return RuntimeError(f"{type(engine).__name__} raised {type(error).__name__}({error})")
    except Exception as error:  # goes to every asker of the batch
        return error
    if len(replies) != len(batch):
        return RuntimeError(
            f"{type(engine).__name__} gave {len(replies)} replies to {len(batch)} requests"
        )
    return replies


def _open(rows: Iterable[Queued]) -> list[Queued]:
    """The rows whose asker still waits."""
    return [row for row in rows if not row[1].done()]


def _answer(batch: list[Queued], replies: Sequence[Reply | Exception] | Exception) -> None:
    for place, (_, answer, _) in enumerate(batch):
        if answer.done() or answer.get_loop().is_closed():
            continue
        reply = replies if isinstance(replies, Exception) else replies[place]
        if isinstance(reply, Exception):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)
