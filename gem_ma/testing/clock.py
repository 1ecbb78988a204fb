"""Limits of time for foreign code, by the timers of the process. What hangs without them is told
as a finding with them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class TooSlow(BaseException):
    """A play hangs. Not an Exception: an author's `except Exception` must not swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float, computing: float | None = None) -> Iterator[None]:
    """Raises TooSlow inside the block after so many seconds, or so many of `computing`, which a
    busy machine does not stretch.

    Without effect off the main thread, where no signal can be caught.
    """
    # both: a play that sleeps computes nothing, and one on a busy machine is slow without fault
    if computing is not None and hasattr(signal, "ITIMER_PROF"):
        with (
            _alarm(signal.ITIMER_REAL, signal.SIGALRM, seconds),
            _alarm(signal.ITIMER_PROF, signal.SIGPROF, computing),
        ):
            yield
    elif hasattr(signal, "ITIMER_REAL"):
        with _alarm(signal.ITIMER_REAL, signal.SIGALRM, seconds):
            yield
    else:
        yield


@contextlib.contextmanager
def _alarm(timer: Any, signalled: Any, seconds: float) -> Iterator[None]:
    # signals reach the main thread only
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: Any) -> None:
        raise TooSlow(f"no result within {seconds:.0f} s")

    # an outer limit goes on when this one is over
    before = signal.signal(signalled, ring)
    remaining, interval = signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, remaining, interval)
        signal.signal(signalled, before)
