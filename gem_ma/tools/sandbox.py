"""Guarded workers: what a model wrote, and graders that evaluate it, run in processes behind a wall
(`gem_ma.tools.walls`).

`run` executes Python, `grade` calls a function of an installed package. Both are made for
`Call`: they block, give JSON values, and end within half a second of their limit. A worker is
kept warm and reused; each call gets a child of it that is forked for it and ended with it. A
worker that is damaged, late or dead is ended and replaced.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any

from gem_ma.kernel.errors import CallError, ConfigError
from gem_ma.tools.walls import ENVIRONMENT, Wall, advice, command, facts_of, texts

TIMEOUT_S = 5.0
START_S = 120.0  # of a worker with heavy packages on a busy machine
# seconds beyond the limit of a call after which the worker itself is taken for dead
PATIENCE_S = 0.4
MAX_IDLE = 64  # workers that wait, of each wall
MAX_BUSY = 32  # calls at a time, of each wall
OUTPUT = 8_000  # characters of output that a caller gets

Result = dict[str, Any]


class Worker:
    """A supervisor behind a wall. It serves one call at a time."""

    def __init__(self, wall: Wall) -> None:
        """Raises ConfigError where the wall cannot be built."""
        self.wall = wall
        self.sound = True
        self._inner = -1
        self._asked = threading.Lock()
        self.folder = tempfile.mkdtemp(prefix="gem_ma-") if wall.tier == "none" else ""
        get, put = os.pipe()
        try:
            self._start(wall, get, put)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(get)

    def _start(self, wall: Wall, get: int, put: int) -> None:
        self._process = None
        facts = facts_of(wall, self.folder)
        try:
            with ExitStack() as stack:
                log = stack.enter_context(tempfile.TemporaryFile())
                ends = {}
                for place, content in texts(facts).items() if facts["alone"] else ():
                    file = stack.enter_context(tempfile.TemporaryFile())
                    file.write(content)
                    file.seek(0)
                    ends[place] = file.fileno()
                self._process = subprocess.Popen(
                    command(wall, put, ends),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=ENVIRONMENT if wall.tier == "none" else {},
                    cwd="/",
                    pass_fds=(put, *ends.values()),
                    start_new_session=True,  # Ctrl-C in a terminal means the run, not the worker
                )
                os.close(put)
                put = -1
                deadline = time.monotonic() + START_S
                with suppress(BrokenPipeError):  # it says why on its log
                    self._send(json.dumps(facts).encode() + b"\n", START_S)
                if wall.tier != "none":
                    self._inner = _first_process(get, deadline)
                if not self._line(deadline):
                    log.seek(0)
                    said = log.read()[-4000:].decode("utf-8", "replace").strip()
                    raise ConfigError(advice(f"it fails here: {said.splitlines()[-1:] or ['?']}"))
        finally:
            if put >= 0:
                os.close(put)

    def ask(self, request: Result, timeout_s: float) -> Result:
        """The answer to one request. `sound` tells afterwards whether it can serve another."""
        data = json.dumps({**request, "timeout": timeout_s}).encode() + b"\n"
        line: bytes | None = b""
        # ValueError: it was closed before
        with self._asked, suppress(OSError, ValueError):
            self._send(data, timeout_s)
            line = self._line(time.monotonic() + timeout_s + PATIENCE_S)
        if not line:
            self.sound = False
            return {"status": "timeout" if line is None else "died", "out": "", "cut": 0}
        try:
            answer: Result = json.loads(line)
        except RecursionError:  # a value too deep for the stack here
            self.sound = False
            return {"status": "died", "out": "", "cut": 0}
        self.sound = not answer.pop("damaged")
        return answer

    def _send(self, data: bytes, timeout_s: float) -> None:
        assert self._process is not None and self._process.stdin is not None
        end = self._process.stdin.fileno()
        os.set_blocking(end, False)  # a worker that does not read may not hold its caller
        deadline = time.monotonic() + timeout_s
        while data:
            try:
                data = data[os.write(end, data) :]
            except BlockingIOError:
                if not select.select((), (end,), (), max(0.0, deadline - time.monotonic()))[1]:
                    raise TimeoutError from None

    def _line(self, deadline: float) -> bytes | None:
        """The next line of the worker; None where it does not come in time, b"" where it never
        will."""
        assert self._process is not None and self._process.stdout is not None
        end = self._process.stdout.fileno()
        parts: list[bytes] = []
        poll = select.poll()  # select cannot watch more than 1,024 descriptors
        poll.register(end, select.POLLIN)
        while not parts or not parts[-1].endswith(b"\n"):
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            more = os.read(end, 1 << 16)
            if not more:
                return b""
            parts.append(more)
        return b"".join(parts)

    def close(self) -> None:
        """Ends it and all that runs in it. May be called twice, and from another thread."""
        self.sound = False
        process = self._process
        inner = self._inner
        self._inner = -1
        if inner >= 0:
            with suppress(OSError):
                signal.pidfd_send_signal(inner, signal.SIGKILL)
            os.close(inner)
        if process is not None and process.stdin is not None and process.stdout is not None:
            if self.wall.tier == "none":
                # at the end of its input it ends its children, which no namespace does here
                with suppress(OSError, subprocess.TimeoutExpired):
                    process.stdin.close()
                    process.wait(0.5)
            process.kill()
            process.wait()
            # whoever waits for an answer gets none now; before that the descriptors are in use
            with self._asked, suppress(OSError):
                process.stdin.close()
                process.stdout.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _first_process(info: int, deadline: float) -> int:
    """A descriptor of the first process inside; -1 where bubblewrap began none in time. With this
    process everything inside ends, whatever bubblewrap's own process does."""
    text = b""
    poll = select.poll()
    poll.register(info, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        if not (more := os.read(info, 4096)):
            break
        text += more
        with suppress(ValueError):
            number = json.loads(text)["child-pid"]
            with suppress(ProcessLookupError):
                return os.pidfd_open(number)
            break
    return -1


class _Pool:
    """The workers of this process that wait for calls."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.idle: dict[Wall, list[Worker]] = {}
        self.busy: dict[Wall, threading.BoundedSemaphore] = {}

    def take(self, wall: Wall) -> Worker:
        with self.lock:
            if self.pid != os.getpid():  # after a fork the workers are the parent's
                self.pid = os.getpid()
                self.idle = {}
                self.busy = {}
            waiting = self.idle.setdefault(wall, [])
            if waiting:
                return waiting.pop()
        return Worker(wall)

    def give_back(self, worker: Worker) -> None:
        with self.lock:
            waiting = self.idle.setdefault(worker.wall, [])
            if worker.sound and len(waiting) < MAX_IDLE:
                waiting.append(worker)
                return
        worker.close()

    def room(self, wall: Wall) -> threading.BoundedSemaphore:
        most = MAX_BUSY if not wall.warm else max(2, os.cpu_count() or 2)
        with self.lock:
            return self.busy.setdefault(wall, threading.BoundedSemaphore(most))

    def close(self) -> None:
        with self.lock:
            workers = [worker for waiting in self.idle.values() for worker in waiting]
            self.idle.clear()
        if self.pid == os.getpid():
            for worker in workers:
                worker.close()


POOL = _Pool()
atexit.register(POOL.close)


@contextmanager
def _leased(wall: Wall) -> Iterator[Worker]:
    with POOL.room(wall):
        worker = POOL.take(wall)
        try:
            yield worker
        except BaseException:
            worker.close()
            raise
        POOL.give_back(worker)


@cache
def require(tier: str = "bubblewrap") -> None:
    """Raises ConfigError, in one line that says what to type, where this machine cannot build
    the wall. Asks once."""
    with _leased(Wall(tier)):
        pass


def run(
    code: str, timeout_s: float = TIMEOUT_S, *, stdin: str = "", wall: Wall | None = None
) -> Result:
    """Runs Python in an empty folder and gives `{status, out, why}`.

    `status`: ok, error (it raised; `why` is the last line), timeout, or died (it ended its own
    process, or was ended). `out` is what it printed and what its last line gives, cut in the
    middle at `OUTPUT` characters.
    """
    with _leased(wall or Wall()) as worker:
        return cut_output(worker.ask({"code": code, "stdin": stdin}, timeout_s))


def grade(
    function: str,
    *args: Any,
    timeout_s: float = TIMEOUT_S,
    wall: Wall,
    source: str = "",
    **options: Any,
) -> Any:
    """What `module:function` gives for these arguments, a JSON value. `source`: the text of that
    module, where nothing of ours shall be readable inside. Raises CallError with what it raised,
    or why there is no result."""
    request = {
        "function": function,
        "pickled": base64.b64encode(pickle.dumps((args, options))).decode(),
        **({"source": source} if source else {}),
    }
    with _leased(wall) as worker:
        answer = worker.ask(request, timeout_s)
    if answer["status"] == "ok" and "value" in answer:
        return answer["value"]
    why = {"timeout": f"no result within {timeout_s:g} s", "error": answer.get("why", "?")}
    raise CallError(f"{function}: {why.get(answer['status'], 'its process ended')}")


def judge(
    function: str, *args: Any, control: tuple[Any, ...], unjudged: Any, **options: Any
) -> Any:
    """`grade` of what a model wrote, which may end its judge or hold it up.

    `unjudged` is its value where the answer is to blame: no verdict comes twice, but one comes for
    the arguments `control`, in which an answer of ours stands. Raises CallError where none comes
    for those either, since then nobody knows what the answer is worth.
    """
    with suppress(CallError):
        return grade(function, *args, **options)
    try:
        return grade(function, *args, **options)
    except CallError as error:
        try:
            grade(function, *control, **options)
        except CallError:
            raise CallError(f"no verdict, nor one of an answer of ours: {error}") from error
        return unjudged


def cut_output(answer: Result) -> Result:
    """The answer of a worker as callers get it."""
    text = answer["out"]
    cut = answer["cut"]
    if cut or len(text) > OUTPUT:
        # both ends: a traceback stands at the end, the first result at the beginning
        left = cut + len(text) - OUTPUT
        text = f"{text[: OUTPUT // 2]}\n... [{left} characters]\n{text[-OUTPUT // 2 :]}"
    return {"status": answer["status"], "out": text, "why": answer.get("why", "")}
