"""Batching in one place: many askers, one sync engine that answers batches.

Two rules of release. Alone, a batch collects what arrives within `wait_s`, runs in a worker thread, and what arrives meanwhile is the next
one. Under a `Gate` a batch is released when every live coroutine of the rollout waits, sorted by (conversation, turn): then its rows, and
so its floating-point results, do not depend on timing, and a resumed training run is bit-equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

from gem_ma.types import Reply, Request


class _BatchEngine(Protocol):
    def sample_batch(self, requests: Sequence[Request]) -> list[Reply]: ...


class Gate:
    """Counts the coroutines of a rollout that can still run; when none can, all waiting batches are released."""

    def __init__(self) -> None:
        self.running = 0
        self._waiting: dict[Batched, None] = {}  # in order of first arrival

    def start(self, coroutines: int = 1) -> None:
        """These coroutines are about to run."""
        self.running += coroutines

    def stop(self, coroutines: int = 1) -> None:
        """These coroutines have ended."""
        self.running -= coroutines
        self._release()

    def wait(self, engine: Batched) -> None:
        """One coroutine waits for this engine; its answer starts it again."""
        self._waiting[engine] = None
        self.running -= 1
        self._release()

    def _release(self) -> None:
        if self.running == 0 and self._waiting:
            engines, self._waiting = sorted(self._waiting, key=lambda engine: engine.first), {}
            for engine in engines:
                self.running += engine.release()


GATE: ContextVar[Gate | None] = ContextVar("gem_ma_gate", default=None)


class Batched:
    """An Engine made of a batch engine. A failing batch gives its error to all its askers; a cancelled asker is skipped."""

    def __init__(self, engine: _BatchEngine, *, max_batch: int = 256, wait_s: float = 0.002) -> None:
        self.engine, self.max_batch, self.wait_s = engine, max_batch, wait_s
        self._waiting: list[tuple[Request, asyncio.Future[Reply]]] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def first(self) -> tuple[str, str, int]:
        """Sort key of the waiting batch: its smallest (policy, conversation, turn)."""
        return min((request.policy, request.conversation, request.turn) for request, _ in self._waiting)

    async def sample(self, request: Request) -> Reply:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        gate = GATE.get()
        if gate is not None:
            gate.wait(self)
        elif self._worker is None:
            self._worker = asyncio.create_task(self._drain())
        return await answer

    def release(self) -> int:
        """Answers all that wait, here and now; gives the number of coroutines that can run again."""
        waiting = sorted(self._waiting, key=lambda pair: (pair[0].conversation, pair[0].turn))
        self._waiting = []
        for start in range(0, len(waiting), self.max_batch):
            batch = [pair for pair in waiting[start : start + self.max_batch] if not pair[1].done()]
            if batch:
                self._answer(batch, self._run([request for request, _ in batch]))
        return len(waiting)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(self.wait_s)
                batch = [pair for pair in self._waiting[: self.max_batch] if not pair[1].done()]
                self._waiting = self._waiting[self.max_batch :]
                if batch:
                    self._answer(batch, await asyncio.to_thread(self._run, [request for request, _ in batch]))
        finally:
            self._worker = None

    def _run(self, requests: list[Request]) -> list[Reply] | Exception:
        try:
            replies = self.engine.sample_batch(requests)
        except Exception as error:  # goes to every asker of the batch
            return error
        if len(replies) != len(requests):
            return RuntimeError(f"{type(self.engine).__name__} gave {len(replies)} replies to {len(requests)} requests")
        return replies

    @staticmethod
    def _answer(batch: list[tuple[Request, asyncio.Future[Reply]]], replies: list[Reply] | Exception) -> None:
        for at, (_, answer) in enumerate(batch):
            if answer.done():
                continue
            if isinstance(replies, Exception):
                answer.set_exception(replies)
            else:
                answer.set_result(replies[at])
