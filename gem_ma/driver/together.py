"""What the agents of one step do, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from gem_ma.engines.batching import GATE

Result = TypeVar("Result")


async def together(acts: Mapping[str, Coroutine[Any, Any, Result]]) -> dict[str, Result]:
    """All act at once; gives what each came to. Waits for all even if one fails, so that which
    failure is raised does not depend on timing."""
    gate = GATE.get()
    running = len(acts)
    if gate is not None:
        gate.start(running - 1)

    # a callback, because a task that is cancelled before it starts runs no `finally`
    def ended(task: asyncio.Task[Result]) -> None:
        nonlocal running
        running -= 1
        if gate is not None and running:  # the last one goes on as the episode's own coroutine
            gate.stop()

    tasks = []
    for act in acts.values():
        tasks.append(asyncio.ensure_future(act))
        tasks[-1].add_done_callback(ended)
    # return_exceptions: a task left running would sample for a turn that is over
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    results = {}
    for agent, outcome in zip(acts, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            raise outcome
        results[agent] = outcome
    return results
