"""A process that has imported gem_ma once and forks for every command: each command is a process
of its own, with its folder, environment, streams, signals and exit code, and costs no imports.

    python -m tests.warm SOCKET

Two of them take turns, so that one command and the next never have the same salt of `hash`: an
order of a set that reaches a file is seen, as it is between two processes of a user. What happens
before the first line of `gem_ma.cli` (streams that are closed, settings of Python, what is
imported) is not tested by a fork; such tests start Python themselves.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from tests import unsynced

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 1 << 17  # bytes of a request, less than a socket buffers
# packages none of whose modules loads a library of models or of environments
ROOMS = tuple(
    f"gem_ma.{name}"
    for name in (
        *("cli", "config", "scores", "runs", "runs.store", "pages.static"),
        *("engines.api", "engines.local", "engines.small", "engines.vllm"),
        *("training.loop", "training.schedule", "training.selfplay"),
    )
)
LIGHT = (*ROOMS, "numpy.ma", "numpy.random", "gem_ma.training.learner.table_learner")


class Command:
    """A command that runs in a fork of a warm process."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self._status = pid, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("gem-ma", timeout or 0.0)
            self._read()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self) -> None:
        text = os.read(self._status, 64)
        os.close(self._status)
        assert text, "the warm process has ended"
        self.returncode = int(text)


class Warm:
    """The client's side of one warm process."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        outer = {key: value for key, value in os.environ.items() if not key.startswith("GEM_MA")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
            cwd=ROOT,
            env={**outer, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # no terminal, and no stream of pytest
        )
        theirs.close()

    def start(
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: Sequence[Any],
        hidden: str = "",
    ) -> Command:
        """`python -m gem_ma ARGUMENTS`; `streams`: its stdin, stdout and stderr, as files;
        `hidden`: a module that it finds not installed."""
        request = json.dumps([list(arguments), os.fspath(cwd), dict(env), hidden]).encode()
        ours, theirs = os.pipe()
        try:
            given = [*(stream.fileno() for stream in streams), theirs]
            socket.send_fds(self.socket, [request], given)
        finally:
            os.close(theirs)
        pid = os.read(ours, 16)  # exactly 16 bytes, so that no exit code comes with them
        assert pid, "the warm process has ended"
        return Command(int(pid), ours)

    def close(self) -> None:
        self.socket.close()
        self.process.wait()


_pair: list[Warm] = []


def start(*words: Any, **how: Any) -> Command:
    """Starts a command in one of two warm processes, in turns; `how` as of `Warm.start`."""
    if len(_pair) < 2:
        _pair.append(Warm())
    else:
        _pair.reverse()
    return _pair[-1].start([str(word) for word in words], **how)


def close() -> None:
    """Ends the warm processes of this test process."""
    while _pair:
        _pair.pop().close()


# -- the process ---------------------------------------------------------------------------------


def serve(requests: socket.socket) -> list[str]:
    """Forks for each request; returns in the fork, with the words of the command line, and never
    where it forks. It ends with the last client."""
    bell, wakes = os.pipe()
    for number in (bell, wakes):
        os.set_blocking(number, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, bell], [], [])
        if bell in ready:
            os.read(bell, 4096)
            _reap(running)
        if requests not in ready:
            continue
        request, numbers, _, _ = socket.recv_fds(requests, LARGEST, 4)
        if not request:
            sys.exit()
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (bell, wakes, requests.detach(), *running.values()):
                os.close(number)
            return _become(json.loads(request), numbers)
        os.write(numbers[3], b"%-16d" % child)
        running[child] = numbers[3]
        for number in numbers[:3]:
            os.close(number)


def _reap(running: dict[int, int]) -> None:
    for child in list(running):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            number = running.pop(child)
            os.write(number, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(number)


def _import_all(name: str) -> None:
    """Imports a module and, of a package of ours, what is in it."""
    module = import_module(name)
    if name in ROOMS:
        for inside in iter_modules(module.__path__, f"{name}."):
            import_module(inside.name)


def _become(request: list[Any], numbers: list[int]) -> list[str]:
    """What the system and Python do before the first line of a program."""
    words, folder, environment, hidden = request
    if hidden:
        assert hidden not in sys.modules, f"{hidden} was imported before the fork"
        sys.modules[hidden] = None  # type: ignore[assignment]
    for stream, number in enumerate(numbers[:3]):
        os.dup2(number, stream)
    for number in numbers:
        os.close(number)
    # ignored in what a shell runs in the background, where nobody types Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored below nohup
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[0] = folder  # as `python -m` does
    sys.argv[1:] = words
    return words


def _run() -> int:
    """`python -m gem_ma`, up to what Python does at its end."""
    try:
        runpy.run_module("gem_ma", run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    unsynced.begin()
    for name in LIGHT:
        _import_all(name)
    gc.collect()
    gc.freeze()  # a fork whose collector looks at what was imported copies all of it
    serve(socket.socket(fileno=int(sys.argv[1])))
    code = _run()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # the end of Python would only take the imported modules to pieces, in 50 ms
