"""Chunks of plays, shared out among workers that may die.

A chunk is a stretch of a list of plans. Where it ends follows from the list and from the size of a
chunk, never from who plays it: models in a process round by the batch that they answer, so the same
chunks give the same records, whoever plays them and however often. It does not know scenarios, or
how to reach a worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from gem_ma.kernel.errors import EngineError

TRIES = 3  # of a chunk that takes its worker along each time
SIZE = 16  # plays of a chunk where nothing else is set

T = TypeVar("T")
Work = TypeVar("Work", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Gone(Exception):
    """The worker died before it answered. Its words say how."""


class Worker(Protocol[Work, Result]):
    """Somebody who does one job at a time, and is there again after it died."""

    async def ready(self) -> None:
        """Waits until it can take a job. Raises EngineError where it never will."""
        ...

    async def do(self, job: Work) -> Result:
        """Raises Gone where the worker died; anything else ends all work."""
        ...


def cut(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """The items in chunks of this size, the last one may be shorter."""
    return [items[first : first + size] for first in range(0, len(items), size)]


async def share_out(jobs: Sequence[Work], workers: Sequence[Worker[Work, Result]]) -> list[Result]:
    """The results of these jobs, in their order. A worker that is free takes the next job; one that
    was lost is done again by a worker that is free.

    Raises EngineError for a job that was lost three times, which names it: such a job ends every
    worker that takes it. What a job raises ends the others.
    """
    results: dict[int, Result] = {}
    lost = [0] * len(jobs)
    todo = deque(range(len(jobs)))
    changed = asyncio.Condition()

    async def work(worker: Worker[Work, Result]) -> None:
        while True:
            # before it takes one: others may do it while this worker is started again
            await worker.ready()
            async with changed:
                # an idle worker waits: a job that another one loses comes back
                await changed.wait_for(lambda: todo or len(results) == len(jobs))
                if len(results) == len(jobs):
                    return
                number = todo.popleft()
            try:
                results[number] = await worker.do(jobs[number])
            except Gone as error:
                lost[number] += 1
                if lost[number] == TRIES:
                    raise EngineError(
                        f"chunk {number + 1} of {len(jobs)} was lost with its worker {TRIES} times;"
                        f" the last: {error}"
                    ) from error
                # first: others may be far behind it, and its place in the list is where it began
                todo.appendleft(number)
            async with changed:
                changed.notify_all()
            if len(results) == len(jobs):
                for task in tasks:  # one that is started again is not waited for
                    task.cancel()

    tasks: list[asyncio.Task[None]] = []
    if not jobs:
        return []
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers[: len(jobs)]:
                tasks.append(group.create_task(work(worker)))
    except BaseExceptionGroup as several:  # the first one ended the others
        raise several.exceptions[0] from None
    return [results[number] for number in range(len(jobs))]


# Workers that play for a training, and how weights come to them. What they are asked is in
# `gem_ma.training.loop.remote`; those of Ray are in `gem_ma.training.processes.ray_workers`.


# a chunk's order as JSON text, and the weights that it names
Job = tuple[str, Sequence[Any]]


class WorkerPool:
    """Workers of other processes. `put` hands weights over once for all of them, and gives what a
    job names them by."""

    def __init__(
        self, workers: Sequence[Worker[Job, str]], put: Callable[[bytes], Any] = lambda data: data
    ) -> None:
        self.workers = workers
        self.put = put

    def close(self) -> None:
        """Lets the workers go."""
