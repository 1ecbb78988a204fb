"""How a command ends: the exit code of an error, which `main` leaves with, and the way out after a
signal.

Of Ctrl-C, SIGTERM and a closed terminal (SIGHUP) the first drains a run for at most 5.5 s, the
second ends the process at once. Nothing stored is lost."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from gem_ma.cli.terminal import progress_line, stderr
from gem_ma.kernel.errors import (
    ConfigError,
    DataError,
    EndpointError,
    EngineError,
    SchemaError,
)

if TYPE_CHECKING:
    import asyncio


# a terminal that is closed, or an ssh that is dropped, sends SIGHUP
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def is_ignored(number: int) -> bool:
    """Whether whoever started this process wants it to live on, as `nohup` does with SIGHUP."""
    return signal.getsignal(number) == signal.SIG_IGN


class Interrupted(Exception):
    """A signal ended the command after it has drained; `code` is 128 + signal, the message says
    how the run goes on."""

    def __init__(self, code: int, resume: str = "") -> None:
        super().__init__(resume)
        self.code = code


def exit_code(error: Exception) -> int:
    """The exit code of an error that was raised on purpose, or by the operating system."""
    if isinstance(error, (ConfigError, DataError, SchemaError)) or is_too_long(error):
        return 2
    # a code of its own, for scripts: here waiting and trying again may help
    if isinstance(error, EndpointError) or (isinstance(error, EngineError) and error.retryable):
        return 3
    return 1


def is_too_long(error: BaseException | None) -> bool:
    """Whether a name was typed that no file system takes; nothing is wrong with the disk then."""
    # the store wraps what the system raised, so that the cause counts too
    causes = (error, error and error.__cause__)
    return any(isinstance(cause, OSError) and cause.errno == errno.ENAMETOOLONG for cause in causes)


# grace: to cancel what has not drained and to write the summary
DRAIN_S = 4.0
GRACE_S = 1.5
T = TypeVar("T")


class Stopping:
    """Installs itself for the length of a `with`. `signal` is the number of the signal that
    came, or 0."""

    latest = ""  # how the run of this process goes on, also once nothing is played any more

    def __init__(self, resume: str) -> None:
        self.signal = 0
        self.resume = Stopping.latest = f"resume with: {resume}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    @property
    def code(self) -> int:
        return 128 + self.signal

    def __enter__(self) -> Stopping:
        # Python allows signal handlers in its main thread only
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._on_signal)
                for number in (signal.SIGINT, *ENDING_SIGNALS)
                if number == signal.SIGINT or not is_ignored(number)
            }
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.signal:  # once stopped, a further signal still ends the process at once
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def until_stopped(self, items: Iterable[T]) -> Iterator[T]:
        """The items, until a signal comes."""
        for item in items:
            if self.signal:
                return
            yield item

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine on a loop of its own; after a signal it has `DRAIN_S` to end by
        itself and is cancelled then."""
        import asyncio  # late: who asks for help plays nothing

        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work)
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            if not self.signal:
                raise
        finally:
            # what is kept for the next request is closed, also behind a signal
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            if not self.signal:  # else a hung thread would hold us
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
                self._loop.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            self._leave()
        self.signal = number
        progress_line(
            f"stopping: running episodes have {DRAIN_S:.0f} s to end; once more stops at once"
        )
        watchdog = threading.Timer(DRAIN_S + GRACE_S, self._leave)  # where the loop itself is stuck
        # a timer that is not due must not hold a process that has ended in time
        watchdog.daemon = True
        watchdog.start()
        if self._loop is not None and not self._loop.is_closed():
            # a handler runs between any two bytecodes; of the loop's calls only this one is safe
            # there
            self._loop.call_soon_threadsafe(self._loop.call_later, DRAIN_S, self.cancel)

    def cancel(self) -> None:
        """Ends the work now, on its loop."""
        if self._task is not None:
            self._task.cancel()

    def _leave(self) -> None:
        if stderr().isatty():
            stderr().write("\x1b[?25h")  # a progress bar had hidden the cursor
        progress_line(self.resume)
        try:
            sys.stdout.flush()
        finally:
            # no clean-up: it would wait for a thread that hangs in a model
            os._exit(self.code)
