"""One question for many askers. Each gets the answer to a question that was sent after it asked,
and no two questions are under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Together(Generic[T]):
    """Asks `question` for all who wait. An error goes to all of them.

    Whoever asks while a question is under way waits for the next one: the answer to the first may
    be older than what it asks about.
    """

    def __init__(self, question: Callable[[], Awaitable[T]]) -> None:
        self.question = question
        self.asked = 0  # questions, ever
        # (under way, the next one) of each loop: a future belongs to one loop
        self._waiting: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[asyncio.Future[T] | None, asyncio.Future[T] | None]
        ] = WeakKeyDictionary()

    async def __call__(self) -> T:
        loop = asyncio.get_running_loop()
        now, following = self._waiting.get(loop, (None, None))
        if following is None:
            following = asyncio.ensure_future(self._ask(loop, now))
            self._waiting[loop] = (now, following)
        # shielded: one who is cancelled must not take the answer from the others
        return await asyncio.shield(following)

    async def _ask(self, loop: asyncio.AbstractEventLoop, now: asyncio.Future[T] | None) -> T:
        if now is not None and not now.done():
            await asyncio.wait([now])
        # from here on whoever comes is too late for this one
        self._waiting[loop] = (self._waiting[loop][1], None)
        self.asked += 1
        return await self.question()
