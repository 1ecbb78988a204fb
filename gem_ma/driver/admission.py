"""Places for the plays of several rollouts: so many plays at once in all, those of the oldest
rollout first.

A rollout that is `ADMITTED` begins a play where another one has ended, in whichever rollout. So the
last long plays of one leave no place empty that plays of the next could have. Without an admission
a rollout counts its own plays alone.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from gem_ma.engines.batching import Gate

Waiting = tuple[int, int, "asyncio.Future[None]", Gate | None]


class Admission:
    """So many `places`. Of those who wait the lowest rank is next, and of one rank the first."""

    def __init__(self, places: int) -> None:
        self.free = places
        self._waiting: list[Waiting] = []
        self._numbers = itertools.count()  # so that no two futures are compared

    async def enter(self, rank: int, gate: Gate | None) -> None:
        """Waits for a place. Who waits does not hold up the batches of a gate."""
        # `leave` hands a place on, so none is free while somebody waits
        if self.free:
            self.free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), place, gate))
        if gate is not None:
            gate.stop()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                _run_again(gate)
            else:  # it was handed over in the same round of the loop
                self.leave()
            raise

    def leave(self) -> None:
        """Hands a place on, or frees it."""
        while self._waiting:
            *_, place, gate = heapq.heappop(self._waiting)
            if not place.done():
                # before it wakes: until then its rollout must not take it for idle
                _run_again(gate)
                place.set_result(None)
                return
        self.free += 1

    @asynccontextmanager
    async def place(self, rank: int, gate: Gate | None) -> AsyncIterator[None]:
        """A place while the context lasts."""
        await self.enter(rank, gate)
        try:
            yield
        finally:
            self.leave()


def _run_again(gate: Gate | None) -> None:
    if gate is not None:
        gate.start()


# the admission that the rollouts of a context share, and their rank in it
ADMITTED: ContextVar[tuple[Admission, int] | None] = ContextVar("gem_ma_admission", default=None)
