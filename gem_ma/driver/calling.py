"""Calls: what a scenario asks of the world outside, run on threads of their own with a time limit,
and with a limit on those that hang.

A thread cannot be ended from outside. A hung call blocks no pool and not the end of the process,
but its thread stays; so of a world that hangs again and again, `MAX_HUNG` calls are waited for,
and every further one fails at once with its cause, until some come back. A thread whose call came
back takes the next one: to start a thread costs more than most steps of a scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from contextvars import Context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from gem_ma.kernel.scenario import Call, Game

# names of threads
CALL_THREAD = "gem_ma call"
IDLE_THREAD = "gem_ma idle"
# threads that wait for their next call, and for how long
IDLE_KEPT = 32
IDLE_S = 10.0
MAX_HUNG = 64  # in this process
CROWDED = (
    f"TooManyHungCalls: {MAX_HUNG} calls have not come back, so no further one is begun; what they"
    " call hangs"
)


class _Hung:
    """How many calls run on that nobody waits for any more."""

    def __init__(self) -> None:
        self.number = 0
        self.lock = threading.Lock()


_HUNG = _Hung()


Work = Callable[[], None]


class _Threads:
    """Threads that work. One that is through with its work waits a while for more."""

    def __init__(self) -> None:
        # a list's own operations are whole, so that no lock is needed
        self.idle: list[tuple[threading.Thread, SimpleQueue[Work]]] = []
        self.process = os.getpid()

    def run(self, work: Work) -> None:
        if self.process != os.getpid():  # a forked process inherits no thread
            self.__init__()  # type: ignore[misc]
        try:
            thread, inbox = self.idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            thread = threading.Thread(target=self._serve, args=(inbox,), daemon=True)
            thread.start()
        thread.name = CALL_THREAD
        inbox.put(work)

    def _serve(self, inbox: SimpleQueue[Work]) -> None:
        place = threading.current_thread(), inbox
        work: Work | None = inbox.get()
        while work is not None:
            # what one call sets in its context is none of the next one's business
            Context().run(work)
            work = None  # an idle thread holds nothing of a play
            place[0].name = IDLE_THREAD
            if len(self.idle) >= IDLE_KEPT:
                return
            self.idle.append(place)
            work = self._next(place)

    def _next(self, place: tuple[threading.Thread, SimpleQueue[Work]]) -> Work | None:
        try:
            return place[1].get(timeout=IDLE_S)
        except Empty:
            try:
                self.idle.remove(place)
            except ValueError:  # it was taken in this very moment
                return place[1].get()
            return None


_THREADS = _Threads()


class Outside:
    """A call under way on a thread of its own. It counts as hung between the moment that nobody
    waits for it any more and its end."""

    __slots__ = ("_ended", "_left", "outcome")

    def __init__(self, call: Call, came: Callable[[], object]) -> None:
        """`came` is called when it has come back, mostly on its thread; not after `leave`."""
        self.outcome: tuple[Any, str | None] | None = None  # until it came back
        # both are read and set under the lock: a call may end while it is given up
        self._ended = self._left = False
        if _HUNG.number >= MAX_HUNG:
            self._end((None, CROWDED), came)
            return
        # Never queued behind another: a hung call holds none up, and the process ends without it.
        _THREADS.run(lambda: self._run(call, came))

    def _run(self, call: Call, came: Callable[[], object]) -> None:
        outcome = None  # of a thread that is ended by Ctrl-C
        try:
            outcome = call.run()
        finally:
            self._end(outcome, came)

    def _end(self, outcome: tuple[Any, str | None] | None, came: Callable[[], object]) -> None:
        # before anybody hears of it: who has the result counts no call as hung
        with _HUNG.lock:
            self._ended = True
            _HUNG.number -= self._left
            self.outcome = None if self._left else outcome  # a late result is dropped
        if self.outcome is not None:
            came()

    def leave(self) -> None:
        """Nobody waits for it any more."""
        with _HUNG.lock:
            if not self._ended and not self._left:
                self._left = True
                _HUNG.number += 1


def late(timeout_s: float | None) -> tuple[None, str]:
    """What a call comes to that nobody waits for any longer."""
    return None, f"TimeoutError: no result within {timeout_s} s"


def _wake(loop: asyncio.AbstractEventLoop, came: asyncio.Event) -> None:
    # the loop is closed where everybody left in the moment between the result and this
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(came.set)


async def run_calls(game: Game, timeout_s: float | None) -> None:
    """Runs the calls that the scenario waits for, off the loop and with a time limit."""
    while game.waiting:
        came = asyncio.Event()
        outside = Outside(game.waiting, partial(_wake, asyncio.get_running_loop(), came))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await came.wait()
        finally:
            outside.leave()  # cancelled plays leave calls behind too
        game.answer(*(outside.outcome or late(timeout_s)))
