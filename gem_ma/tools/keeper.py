"""Runs a command, and ends all of its processes: when it ends, on SIGTERM, and when its own parent
is gone. `python keeper.py PARENT COMMAND...`, with the number of the parent's process.

A server of tools may hang at its end, ignore signals, and leave children in sessions of their own.
Elsewhere than on Linux these children stay.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

# numbers of prctl
PARENT_DEATH = 1
SUBREAPER = 36
END_S = 5.0  # for processes that cannot be killed: they wait for a disk


def main(parent: str, *command: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: _leave(128 + signal.SIGTERM))
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(SUBREAPER, 1, 0, 0, 0)  # who loses a parent below becomes a child of this process
        prctl(PARENT_DEATH, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):  # it was gone before it could be told
        return 1
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    nothing = os.open(os.devnull, os.O_RDWR)
    for pipe in (0, 1):  # else the other side never sees that the command closed its own
        os.dup2(nothing, pipe)
    ended = None
    while ended != process.pid:  # others are orphans, which are taken in
        ended, status = os.wait()
    _leave(os.waitstatus_to_exitcode(status) & 0xFF)
    return 0


def _leave(code: int) -> None:
    """Ends what is below, and this process."""
    if sys.platform != "linux":
        os.killpg(0, signal.SIGKILL)  # this process too
    until = time.monotonic() + END_S
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            for child in _children():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.005)
    os._exit(code)


def _children() -> list[int]:
    # the parent is the second field behind the name, which may hold anything
    children = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(file.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(file.parent.name))
    return children


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
