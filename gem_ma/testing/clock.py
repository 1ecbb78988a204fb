"""Limits of time for foreign code, by the timers of the process. What hangs without them is told
as a finding with them."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

# share of a processor below which a play waits for something that does not come; a machine whose
# load is 50 times its processors still leaves more
IDLE = 0.02


class TooSlow(BaseException):
    """A play hangs. Not an Exception: an author's `except Exception` must not swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float, computing: float | None = None) -> Iterator[None]:
    """Raises TooSlow inside the block after so many seconds of `computing` (processor time, by
    default as many as `seconds`), or after `seconds` in which it computed next to nothing.

    A busy machine stretches neither: what waits for a processor is no hang. Without effect off the
    main thread, where no signal can be caught.
    """
    if not hasattr(signal, "ITIMER_REAL"):
        yield
        return
    most = seconds if computing is None else computing
    with (
        _alarm(signal.ITIMER_REAL, signal.SIGALRM, seconds, IDLE),
        _alarm(signal.ITIMER_PROF, signal.SIGPROF, most, None),
    ):
        yield


@contextlib.contextmanager
def _alarm(timer: Any, signalled: Any, seconds: float, idle: float | None) -> Iterator[None]:
    """Raises TooSlow when the timer has run down; with `idle`, only where the process computed
    for less than that share of the time, or else it runs once more."""
    # signals reach the main thread only
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    began = time.process_time()

    def ring(signum: int, frame: Any) -> None:
        nonlocal began
        computed, began = time.process_time() - began, time.process_time()
        if idle is not None and computed > idle * seconds:
            signal.setitimer(timer, seconds)
        else:
            raise TooSlow(f"no result within {seconds:.0f} s")

    # an outer limit goes on when this one is over
    before = signal.signal(signalled, ring)
    remaining, interval = signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, remaining, interval)
        signal.signal(signalled, before)
