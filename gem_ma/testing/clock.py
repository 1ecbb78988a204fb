"""Limits of time for foreign code, by the timers of the process: code that hangs
becomes a finding."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

# share of a processor below which a play waits for something that does not come; a machine whose
# load is 50 times its processors still leaves more
IDLE = 0.02


class TooSlow(BaseException):
    """A play hangs. Not an Exception: an author's `except Exception` must not swallow it."""


def time_limit(seconds: float, computing: float | None = None) -> Limit:
    """Raises TooSlow inside the block after so many seconds of `computing` (processor time, by
    default as many as `seconds`), or after `seconds` in which it computed next to nothing.

    A busy machine stretches neither: what waits for a processor is not a hang. Without effect off
    the main thread, where no signal can be caught.
    """
    return Limit(seconds, seconds if computing is None else computing)


class Limit:
    """The block of a time limit. The kit enters 30,000 of them for one scenario."""

    __slots__ = ("began", "computing", "outer", "seconds")

    def __init__(self, seconds: float, computing: float) -> None:
        self.seconds = seconds
        self.computing = computing
        self.outer: Any = None

    def __enter__(self) -> None:
        # signals reach the main thread only
        if not TIMERS or threading.current_thread() is not threading.main_thread():
            return
        self.began = time.process_time()
        if not _running:
            # once for all that lie within: Python takes 20 times as long for it as for a timer
            _before[:] = [signal.signal(number, _ring) for number in TIMERS]
        # an outer limit goes on when this one is over
        self.outer = (
            signal.setitimer(signal.ITIMER_REAL, self.seconds),
            signal.setitimer(signal.ITIMER_PROF, self.computing),
        )
        _running.append(self)

    def __exit__(self, *_: Any) -> None:
        if self.outer is None:
            return
        _running.pop()
        waiting, computing = self.outer
        signal.setitimer(signal.ITIMER_REAL, *waiting)
        signal.setitimer(signal.ITIMER_PROF, *computing)
        if not _running:
            for number, handler in zip(TIMERS, _before, strict=True):
                signal.signal(number, handler)


TIMERS = (signal.SIGALRM, signal.SIGPROF) if hasattr(signal, "ITIMER_REAL") else ()
_running: list[Limit] = []  # the innermost last
_before: list[Any] = []


def _ring(signum: int, frame: Any) -> None:
    """A timer of the innermost limit has run down. Where the process computed meanwhile, that of
    the clock runs once more."""
    if not _running:
        return
    limit = _running[-1]
    now = time.process_time()
    computed = now - limit.began
    limit.began = now
    if signum == signal.SIGPROF:
        raise TooSlow(f"no result within {limit.computing:.0f} s")
    if computed < IDLE * limit.seconds:
        raise TooSlow(f"no result within {limit.seconds:.0f} s")
    signal.setitimer(signal.ITIMER_REAL, limit.seconds)
