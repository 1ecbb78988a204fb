"""Playing ahead: the episodes of the next k steps are sampled while this step's update runs
(`train.overlap: k`), so a learner is off-policy by k publishes at most.

Which weights play which step is a rule, never a matter of timing: step s (from 0) is played with
version s - k, those before it with the first. Plays of one step begin when those of the step
before have ended, so what an engine answers in one batch is a rule too; or, admitted continuously,
where a play of an older step leaves its place. Updates run in a thread, on weights of their own.
Replies carry their version, and a checkpoint holds the episodes that were played ahead, as lines of
the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.driver.many import ADMITTED, Admission
from gem_ma.engines.base import Policy
from gem_ma.engines.batching import Batched
from gem_ma.engines.capabilities import Batches, Pins
from gem_ma.training.loop.played import Played


def pinned(policies: Mapping[str, Policy]) -> dict[str, Policy] | None:
    """These policies with the weights that are published now, whatever is published later; None
    where an engine cannot stay as it is."""
    stays: dict[str, Policy] = {}
    for name, policy in policies.items():
        if not isinstance(policy.core, Pins):
            return None
        engine: Any = policy.core.pinned()
        stays[name] = replace(
            policy, engine=Batched(engine) if isinstance(engine, Batches) else engine
        )
    return stays


class Ahead:
    """The steps that are played ahead: those that have ended, and those that are still played, one
    after the other. With an `admission` they are played side by side, in its places."""

    def __init__(self, admission: Admission | None = None) -> None:
        self.admission = admission
        self._ended: dict[int, Played] = {}
        self._tasks: dict[int, asyncio.Task[Played]] = {}
        self._last: asyncio.Task[Played] | None = None

    @classmethod
    def of(cls, config: Config) -> Ahead:
        """With an admission where `train.admission` says so."""
        mixed = config.train is not None and config.train.admission == "continuous"
        return cls(Admission(config.run.concurrency) if mixed else None)

    def missing(self, steps: range) -> list[int]:
        """Those of these steps that have not begun."""
        return [step for step in steps if step not in self._ended and step not in self._tasks]

    def begin(self, step: int, play: Callable[[], Coroutine[Any, Any, Played]]) -> None:
        """Plays a step as soon as the one that was begun before has ended, or there is a place."""
        before = self._last if self.admission is None else None

        async def run() -> Played:
            if self.admission is not None:
                ADMITTED.set((self.admission, step))  # in the context of this task alone
            if before is not None:
                await asyncio.wait([before])
                # whoever asks for the steps in their order gets its error
                if before.cancelled() or before.exception() is not None:
                    raise asyncio.CancelledError
            return await play()

        self._last = self._tasks[step] = asyncio.ensure_future(run())

    async def take(self, step: int) -> Played | None:
        """What was played for a step, once it has ended; None where it was not begun. Raises what
        its plays raised."""
        if step in self._tasks:
            self._ended[step] = await self._tasks[step]
            del self._tasks[step]
        return self._ended.pop(step, None)

    async def settled(self) -> None:
        """Waits until all has ended that was begun. Raises what the first of its plays raised."""
        for step in sorted(self._tasks):
            self._ended[step] = await self._tasks[step]
            del self._tasks[step]

    def ended(self) -> list[Played]:
        """What has ended, in the order of the steps."""
        return [self._ended[step] for step in sorted(self._ended)]

    def put(self, ended: Iterable[Played]) -> None:
        """Takes what was played before a run went on."""
        self._ended |= {played.step: played for played in ended}

    async def __aenter__(self) -> Ahead:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends all plays, with whatever error the run ends: theirs are lost."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
