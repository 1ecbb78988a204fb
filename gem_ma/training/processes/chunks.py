"""Chunks of plays, shared out among workers that may die.

A chunk is a stretch of a list of plans. Where it ends never follows from who plays it: models in a
process round by the batch that they answer, so the same chunks give the same records, whoever plays
them and however often.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from gem_ma.driver.forks import Branch
from gem_ma.driver.rollout import Plan
from gem_ma.kernel import errors
from gem_ma.kernel.episode import Episode, Limits, Seat
from gem_ma.kernel.errors import EngineError
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.record.shapes import shown_in, with_bytes
from gem_ma.runs.worlds import World, Worlds

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


# Plans as JSON values, for a process that has the same config: a scenario is named by its world,
# and all else of a plan stands as it is.


def order_of(plan: Plan, worlds: Worlds) -> dict[str, Any]:
    """A plan as JSON values. Raises EngineError for a scenario that is none of these worlds."""
    branch = plan.branch
    found = (n for n, world in enumerate(_scenarios(worlds)) if world.scenario is plan.scenario)
    if (index := next(found, None)) is None:
        what = "no world of this config, so no other process knows it"
        raise EngineError(f"{plan.scenario.id}: {what}")
    return {
        "world": plan.world,
        "scenario": index,
        "cast": {agent: asdict(seat) for agent, seat in plan.cast.items()},
        "task": plan.task,
        "seed": plan.seed,
        "repeat": plan.repeat,
        "group": plan.group,
        "limits": asdict(plan.limits),
        "call_timeout_s": plan.call_timeout_s,
        "options": dict(plan.options),
        "branch": branch and [dump_episode(branch.of), branch.step, branch.seed, branch.first],
    }


def plan_of(order: Mapping[str, Any], worlds: Worlds) -> Plan:
    """The inverse of `order_of`."""
    branch = None
    if order["branch"] is not None:
        of, *rest = order["branch"]
        branch = Branch(load_episode(of), *rest)
    return Plan(
        _scenarios(worlds)[order["scenario"]].scenario,
        {agent: Seat(**seat) for agent, seat in order["cast"].items()},
        order["task"],
        order["seed"],
        order["repeat"],
        order["group"],
        Limits(**order["limits"]),
        order["call_timeout_s"],
        order["options"],
        branch,
        order["world"],
    )


def _scenarios(worlds: Worlds) -> list[World]:
    # a world may be examined on other tasks than it is played on, as another object
    return [*worlds.played, *worlds.examined]


Report = dict[str, Any]


async def reported(playing: Awaitable[list[Episode]]) -> Report:
    """What a process says of the plays that it was given, as JSON values: their episodes, or the
    error that ended them."""
    try:
        episodes = await playing
        # a line has their digests alone, and others learn from the episodes
        shown = {image.digest: image.data for one in episodes for image in shown_in(one)}
        images = {digest: b64encode(data).decode() for digest, data in shown.items()}
        lines = [dump_episode(episode) for episode in episodes]
        return {"kind": "", "fault": "", "lines": lines, "images": images}
    except Exception as error:
        return {"kind": type(error).__name__, "fault": str(error), "lines": []}


def episodes_of(report: Mapping[str, Any]) -> list[Episode]:
    images = report.get("images", {})
    return [
        with_bytes(load_episode(line), lambda digest: b64decode(images[digest]))
        for line in report["lines"]
    ]


def error_of(report: Mapping[str, Any]) -> Exception:
    """The error of a report (`kind` is not empty), as an exception of this process."""
    kind = str(report["kind"])
    fault = str(report["fault"])
    # by name, out of our own module alone: what another process sent chooses no other class
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.GemMaError):
        return known(fault)
    return EngineError(f"{kind}: {fault}")
