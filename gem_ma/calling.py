"""Calls: what a scenario asks of the world outside, run on threads of their own with a time limit,
and with a limit on those that hang.

A thread cannot be ended from outside. A hung call blocks no pool and not the end of the process,
but its thread stays; so of a world that hangs again and again, `MAX_HUNG` calls are waited for,
and every further one fails at once with its cause, until some come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from gem_ma.scenario import Call, Game

CALL_THREAD = "gem_ma call"
MAX_HUNG = 64  # in this process


class _Hung:
    """How many calls run on that nobody waits for any more."""

    def __init__(self) -> None:
        self.number, self.lock = 0, threading.Lock()


_HUNG = _Hung()


class _Flight:
    """One call on a thread of its own. It counts as hung between the moment that nobody waits
    for it any more and its end."""

    def __init__(self) -> None:
        # both are read and set under the lock: a call may end while it is given up
        self.ended = self.left = False

    def leave(self) -> None:
        """Nobody waits for it any more."""
        with _HUNG.lock:
            self.left = not self.ended
            _HUNG.number += self.left

    def end(self) -> None:
        """It came back."""
        with _HUNG.lock:
            self.ended = True
            _HUNG.number -= self.left


def _run_call(call: Call, answer: asyncio.Future[tuple[Any, str | None]], flight: _Flight) -> None:
    try:
        outcome = call.run()
    finally:
        flight.end()
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        answer.get_loop().call_soon_threadsafe(
            lambda: None if answer.done() else answer.set_result(outcome)
        )


async def run_calls(game: Game, timeout_s: float | None) -> None:
    """Runs the calls that the scenario waits for, off the loop and with a time limit."""
    while game.waiting:
        if _HUNG.number >= MAX_HUNG:
            game.answer(
                None,
                f"TooManyHungCalls: {MAX_HUNG} calls have not come back, so no further one is"
                " begun; what they call hangs",
            )
            continue
        answer: asyncio.Future[tuple[Any, str | None]] = asyncio.get_running_loop().create_future()
        # A thread of its own: a hung call blocks no pool, and the process may end without it.
        flight = _Flight()
        threading.Thread(
            target=_run_call, args=(game.waiting, answer, flight), name=CALL_THREAD, daemon=True
        ).start()
        try:
            # wait, not wait_for: the call goes on whatever happens here
            done, _ = await asyncio.wait([answer], timeout=timeout_s)
        finally:
            flight.leave()  # cancelled plays leave calls behind too
        value, error = (
            answer.result() if done else (None, f"TimeoutError: no result within {timeout_s} s")
        )
        # a late result finds a future that is done, and is dropped
        answer.cancel()
        game.answer(value, error)
