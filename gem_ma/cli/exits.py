"""How a command ends: the exit code of an error, and the way out after a signal. `main` turns both
into what the process leaves with; the codes are listed there."""

from __future__ import annotations

import errno
import signal

from gem_ma.kernel.errors import (
    ConfigError,
    DataError,
    EndpointError,
    EngineError,
    SchemaError,
)

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
