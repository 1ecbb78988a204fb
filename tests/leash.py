"""A server of a test ends with the tests, however these end: the last lines of a fixture are not run
in a process that is killed. `python leash.py SECONDS COMMAND...` runs a command, as leader of a session,
until the command ends, it gets a SIGTERM, or nobody holds the other end of its stdin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


def leashed(command: Sequence[str], stop_s: float = 10.0, **more: Any) -> subprocess.Popen[bytes]:
    """Starts a server that lives no longer than this process. It is stopped by `terminate`, or by
    a signal to its group, whose number is its own; `kill` would leave the command behind.
    `stop_s`: the time to end by itself after the tests, before it is killed."""
    words = [sys.executable, "-I", "-S", __file__, str(stop_s), *command]
    # no parent-death signal: to Linux the parent is the thread, and tests restart servers in threads
    return subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, **more)


def main(stop_s: str, *command: str) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())

    def watch() -> None:
        os.read(0, 1)  # nothing is ever written
        os.killpg(0, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(float(stop_s))
        os.killpg(0, signal.SIGKILL)  # this process too

    threading.Thread(target=watch, daemon=True).start()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
