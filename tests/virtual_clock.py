"""An event loop whose clock jumps to the next timer: an hour of waiting costs no time, and a loop
with nothing scheduled is a deadlock.

`run(coroutine)` gives (result, virtual seconds). Pool threads run inline. Threads of `Call`
effects are waited for in real time, at the virtual instant at which they were started; a call
that hangs needs the real clock.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gem_ma.driver.limits import CALL_THREAD

T = TypeVar("T")


class Deadlock(Exception):
    """Every coroutine waits and nothing is scheduled that could wake one."""


class _VirtualSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now, self.woken = 0.0, threading.Event()

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > 0:
            while (
                any(thread.name == CALL_THREAD for thread in threading.enumerate())
                and not self.woken.is_set()
            ):
                self.woken.wait(0.01)
        if self.woken.is_set():
            self.woken.clear()
            return []
        if timeout is None:
            raise Deadlock("nothing is scheduled")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual.now

    def _write_to_self(self) -> None:
        self._virtual.woken.set()

    def run_in_executor(
        self, executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(function(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run(coroutine: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """The result of the coroutine, and how many virtual seconds it took."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine), loop.time()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
