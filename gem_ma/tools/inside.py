"""What runs behind the wall: a supervisor that forks a child for each call, and the child.

Run as a script by `gem_ma.tools.sandbox`, with the standard library alone. The supervisor runs no
text of a model. It answers requests, JSON lines on its standard input, by one line each. Nothing of
a child is there at the next call: no process, no file, no changed module. It ends when its input
does, and behind a wall all others end with it.
"""

from __future__ import annotations

import ast
import base64
import builtins
import contextlib
import ctypes
import gc
import io
import json
import linecache
import os
import pickle
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from typing import Any

KEPT_TEXT = 65_536  # bytes of output that are kept; the rest is counted
KEPT_WHY = 2_000  # characters of an error
KEPT_RESULT = 1 << 20  # bytes of a result; a longer one is none
MAX_OPEN = 64  # descriptors of a process
MAX_LEFT = 1_000  # files that are removed after a call
MOST_PASSES = 50  # over processes that are to end; without a wall some may fork on
MAX_FILES = 20_000  # at a time: each costs a kilobyte of memory that no limit counts
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36


class Child:
    """A process that runs what a model wrote. `cells` is written by us, the others are read."""

    def __init__(self, wall: dict[str, Any]) -> None:
        self.asked = 0
        # in the folder, where its size is counted; closed with the child
        self.stdin = tempfile.TemporaryFile(dir=wall["folder"], buffering=0)  # noqa: SIM115
        get, self.cells = os.pipe()
        self.out, out = os.pipe()
        self.result, result = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _live(wall, self.stdin.fileno(), out, get, result)
            finally:
                os._exit(70)
        for end in (get, out, result):
            os.close(end)

    def ask(self, request: dict[str, Any]) -> None:
        """Hands it what it shall run, and what that may read as its input."""
        _signal(self.pid, signal.SIGCONT)
        self.asked += 1
        os.ftruncate(self.stdin.fileno(), 0)
        os.pwrite(self.stdin.fileno(), request.get("stdin", "").encode("utf-8", "replace"), 0)
        self.stdin.seek(0)  # the child reads at the same place
        _write(self.cells, (json.dumps(request) + "\n").encode())

    def close(self) -> None:
        self.stdin.close()
        for end in (self.cells, self.out, self.result):
            os.close(end)


class Supervisor:
    """Answers one request at a time."""

    def __init__(self, wall: dict[str, Any], requests: int) -> None:
        self.wall, self.requests = wall, requests
        self.child: Child | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What came of one request. `keep`: the child lives on and is asked again."""
        if request.get("end"):
            return {"status": "ok", **self._clear(None)}
        begun, child = time.monotonic(), self.prepare()
        try:
            child.ask(request)
            came = self._await(child, begun + request["timeout"])
        except BrokenPipeError:  # a child that lived on, and ended itself since
            came = {"status": "died", "out": "", "cut": 0}
        goes_on = request.get("keep") and came["status"] in ("ok", "error")
        return {**came, **self._clear(child if goes_on else None)}

    def prepare(self) -> Child:
        """The child that runs the next request. Between two requests it is made ahead."""
        if self.child is None:
            self.child = Child(self.wall)
        return self.child

    def _await(self, child: Child, deadline: float) -> dict[str, Any]:
        text, cut, result = bytearray(), 0, bytearray()
        poll = select.poll()
        for end in (child.out, child.result, self.requests):
            poll.register(end, select.POLLIN | select.POLLHUP)
        came: dict[str, Any] = {"status": "timeout"}
        while (left := deadline - time.monotonic()) > 0:
            # short looks: a child may die while a grandchild holds its ends of the pipes open
            for end, _ in poll.poll(min(left, 0.05) * 1000):
                if end == self.requests:  # whoever asked is gone: no request comes before an answer
                    self._clear(None)
                    os._exit(0)
                more = os.read(end, 65_536)
                if not more:
                    poll.unregister(end)
                elif end == child.out:
                    cut += _added(text, more)
                else:
                    result += more
            if result.endswith(b"\n"):
                came = _read_result(bytes(result), child.asked)
                break
            held = os.statvfs(self.wall["folder"])  # of its own; attributes count as files
            flooded = self.wall["alone"] and held.f_files - held.f_ffree > MAX_FILES
            overfull = flooded or len(result) > KEPT_RESULT
            if overfull or os.waitpid(child.pid, os.WNOHANG)[0]:
                came = {"status": "died"}
                break
        cut += _drain(child.out, text)
        return {**came, "out": text.decode("utf-8", "replace"), "cut": cut}

    def _clear(self, alive: Child | None) -> dict[str, Any]:
        """Ends every process but the child that lives on, and without one empties the folder.
        `damaged`: something could not be removed, so this worker serves nobody again."""
        alone, spared = self.wall["alone"], {os.getpid(), alive.pid if alive else 0}
        if alive is not None:
            # Its threads run on while it is waited for, and others fork on: here all stop at once.
            _signal(-1 if alone else alive.pid, signal.SIGSTOP)
        elif self.child is not None:
            _signal(self.child.pid)
            self.child.close()
            self.child = None
        # A fork that was under way when all stopped shows its child later. -1 reaches all.
        for _ in range(MOST_PASSES):
            if not (others := (_others(alone) if alive or not alone else {-1}) - spared):
                break
            _end(others)
            spared |= others
        if alive is not None:
            _drain(alive.out, bytearray())  # what others wrote up to their end
        damaged = alive is None and not _emptied(self.wall["folder"])
        return {"damaged": damaged, "alive": alive is not None}


def _read_result(line: bytes, number: int) -> dict[str, Any]:
    # the child could have written this line itself: it may say nothing but what a child may
    try:
        came = json.loads(line, parse_constant=int)  # which reads no NaN
    except (ValueError, RecursionError):
        return {"status": "died"}
    # a line that came early would be the answer to the next request, and each answer one late
    status = came.get("status") if isinstance(came, dict) and came.get("number") == number else None
    if status == "ok":
        return {key: came[key] for key in ("status", "value") if key in came}
    why = came.get("why") if status == "error" else None
    if not isinstance(why, str):
        return {"status": "died"}
    return {"status": "error", "why": why[:KEPT_WHY].encode("utf-8", "replace").decode()}


def _added(text: bytearray, more: bytes) -> int:
    """Keeps what there is room for; gives the bytes that are cut."""
    room = max(0, KEPT_TEXT - len(text))
    text += more[:room]
    return max(0, len(more) - room)


def _drain(end: int, text: bytearray) -> int:
    """Reads what is left in a pipe; gives the bytes for which there was no room."""
    os.set_blocking(end, False)
    cut = 0
    with contextlib.suppress(BlockingIOError):
        # as much as a pipe holds: a grandchild may write for ever
        for _ in range(16):
            more = os.read(end, 65_536)
            if not more:
                break
            cut += _added(text, more)
    os.set_blocking(end, True)
    return cut


def _write(end: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    while data:
        data = data[write(end, data) :]


def _signal(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _end(pids: set[int]) -> None:
    """Ends these processes, and waits: what still ends would count as one of the next call."""
    for pid in pids:
        _signal(pid)
    reaped = True
    while reaped:  # whoever is no child of ours is one when its parent is gone
        reaped = False
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                reaped = bool(os.waitpid(pid, 0)) or reaped


def _others(alone: bool) -> set[int]:
    """The processes that descend from this one. Behind a wall that is every process in sight."""
    numbers = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
    if alone:
        return numbers
    parents = {}
    for pid in numbers:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            # the name of a process may hold spaces and brackets
            parents[pid] = int(file.read().rpartition(")")[2].split()[1])
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below


def _emptied(folder: str) -> bool:
    """Removes all that a folder holds; False where something stays, or where it is too much."""
    names = list(islice(os.scandir(folder), MAX_LEFT + 1))
    if len(names) > MAX_LEFT:  # quicker to throw the whole worker away
        return False
    with contextlib.suppress(OSError, RecursionError):  # folders may be very deep
        for entry in names:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            closed = [entry.path]
            while closed:  # folders that their maker has locked
                path = closed.pop()
                os.chmod(path, 0o700)
                closed += [e.path for e in os.scandir(path) if e.is_dir(follow_symlinks=False)]
            shutil.rmtree(entry.path)
    return not os.listdir(folder)


def _live(wall: dict[str, Any], stdin: int, out: int, cells: int, result: int) -> None:
    """Runs cell after cell in one namespace."""
    os.setsid()
    for old, new in ((stdin, 0), (out, 1), (out, 2)):
        os.dup2(old, new)
    low, high = sorted((cells, result))
    for first, behind in ((3, low), (low + 1, high), (high + 1, MAX_OPEN)):
        os.closerange(first, behind)  # the supervisor's: a child may not answer in its name
    memory = wall["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.chdir(wall["folder"])
    random.seed(0)  # a session that is built again draws what it drew
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    number = 0
    while line := _line(cells):
        request = json.loads(line)
        # bound before the text of a model runs: it may replace what these modules offer
        dumps, write = json.dumps, os.write
        came = _graded(request) if "function" in request else _ran(request["code"], space, number)
        for name in ("stdout", "stderr"):
            with contextlib.suppress(Exception):
                getattr(sys, name).flush()
        number += 1
        _write(result, (dumps({**came, "number": number}) + "\n").encode(), write)


def _graded(request: dict[str, Any]) -> dict[str, Any]:
    module, _, name = request["function"].partition(":")
    try:
        # a pickle of ours, which comes in: nothing that is pickled ever goes out
        args, options = pickle.loads(base64.b64decode(request["pickled"]))
        space: Any = {"__name__": module}
        # of ours too, where the package is not mounted
        exec(compile(request.get("source", ""), f"<{module}>", "exec"), space)
        value = (space.get(name) or getattr(import_module(module), name))(*args, **options)
        json.dumps(value, allow_nan=False)
    except BaseException as error:  # SystemExit too: it is the answer that asks for the end
        return {"status": "error", "why": f"{type(error).__name__}: {error}"[:KEPT_WHY]}
    return {"status": "ok", "value": value}


def _ran(code: str, space: dict[str, Any], number: int) -> dict[str, Any]:
    """Runs a cell as an interactive Python does: what its last line gives is printed."""
    file = f"<cell {number}>" if number else "<cell>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    try:
        tree = ast.parse(code, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), space)
            if value is not None:
                print(repr(value))
    except SystemExit as error:
        why = f"SystemExit: {error.code}"[:KEPT_WHY]
        return {"status": "error", "why": why} if error.code not in (None, 0) else {"status": "ok"}
    except BaseException as error:
        why = f"{type(error).__name__}: {_words(error)}"[:KEPT_WHY]
        with contextlib.suppress(BaseException):
            print(_trace(error), file=sys.stderr)
        return {"status": "error", "why": why}
    return {"status": "ok"}


def _words(error: BaseException) -> str:
    with contextlib.suppress(BaseException):  # of a class of the model's own
        return str(error)
    return "?"


def _trace(error: BaseException) -> str:
    """The traceback without the frames of this file."""
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code.co_filename == __file__:
        here = here.tb_next
    text = traceback.format_exception(type(error), error, here, limit=-8, chain=False)
    return "".join(text).rstrip()


def _settle(wall: dict[str, Any]) -> None:
    """Gives up what a supervisor needs no more: its user, its size, its visibility."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory ends, this process does first
    if wall["user"]:
        os.setgroups([])
        os.setresgid(*[wall["user"]] * 3)
        os.setresuid(*[wall["user"]] * 3)
    os.umask(0o077)
    libc = ctypes.CDLL(None)
    # nobody may trace this process or read its memory and descriptors; a child inherits it
    for option, value in ((PR_SET_DUMPABLE, 0), (PR_SET_CHILD_SUBREAPER, 1)):
        libc.prctl(option, value, 0, 0, 0)
    for limit, size in (
        (resource.RLIMIT_FSIZE, wall["file"]),
        (resource.RLIMIT_NOFILE, MAX_OPEN),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        *(((resource.RLIMIT_NPROC, wall["processes"]),) if wall["alone"] else ()),
    ):
        resource.setrlimit(limit, (size, size))


def main() -> None:
    wall = json.loads(sys.argv[1])
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    for end in (0, 1):
        os.dup2(nothing, end)
    sys.path[:0] = wall["path"]
    _settle(wall)
    for module in wall["warm"]:
        import_module(module)  # once: every child has it at its birth
    _warm_up()
    supervisor = Supervisor(wall, requests)
    _write(replies, b'{"status": "ready"}\n')
    supervisor.prepare()
    while line := _line(requests):
        _write(replies, json.dumps(supervisor.answer(json.loads(line))).encode() + b"\n")
        line = b""  # the next child is a copy of this process, and could read what is in it
        supervisor.prepare()


def _warm_up() -> None:
    """What every child would do anew, done once: a page that it need not touch saves it time."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="replace")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in ("exit", "quit"):  # no site module makes them here
        setattr(builtins, name, sys.exit)
    _ran("x = 1\nx + 1", {"__builtins__": builtins}, 0)
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page


def _line(end: int) -> bytes:
    """The next line of a pipe on which nobody writes a second one before it is answered."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(end, 1 << 16)):
        line += more
    return line


if __name__ == "__main__":
    main()
