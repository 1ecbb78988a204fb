"""What runs behind the wall: a supervisor that forks a child for each call, and the child.

Run as a script by `gem_ma.tools.sandbox`, with the standard library alone. The supervisor runs no
text of a model. It reads requests from its standard input, one JSON line each, and answers each by
one line. Whatever happens to a child, nothing of it is there at the next call: no process, no
file, no changed module. It ends when its input does, and behind a wall all others end with it.
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
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from typing import Any

KEPT_TEXT = 65_536  # bytes of output that are kept; the rest is counted
KEPT_RESULT = 1 << 20  # bytes of a result; a longer one is none
MAX_OPEN = 64  # descriptors of a process
MAX_LEFT = 1_000  # files that are removed after a call
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36


class Child:
    """A process that runs what a model wrote. `cells` is written by us, the others are read."""

    def __init__(self, wall: dict[str, Any]) -> None:
        self.stdin = os.memfd_create("stdin")
        get, self.cells = os.pipe()
        self.out, out = os.pipe()
        self.result, result = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _live(wall, self.stdin, out, get, result)
            finally:
                os._exit(70)
        for end in (get, out, result):
            os.close(end)

    def ask(self, request: dict[str, Any]) -> None:
        """Hands it what it shall run, and what that may read as its input."""
        os.ftruncate(self.stdin, 0)
        os.pwrite(self.stdin, request.get("stdin", "").encode("utf-8", "replace"), 0)
        os.lseek(self.stdin, 0, os.SEEK_SET)  # the child reads at the same place
        _write(self.cells, (json.dumps(request) + "\n").encode())

    def close(self) -> None:
        for end in (self.stdin, self.cells, self.out, self.result):
            os.close(end)


class Supervisor:
    """Answers one request at a time."""

    def __init__(self, wall: dict[str, Any], requests: int) -> None:
        self.wall, self.requests = wall, requests
        self.child: Child | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What came of one request. `keep`: the child lives on and is asked again."""
        keep = bool(request.get("keep"))
        if request.get("end"):
            return {"status": "ok", **self._clear(None)}
        begun = time.monotonic()
        child = self.prepare()
        try:
            child.ask(request)
            came = self._await(child, begun + request["timeout"])
        except BrokenPipeError:  # a child that lived on, and ended itself since
            came = {"status": "died", "out": "", "cut": 0}
        alive = child if keep and came["status"] in ("ok", "error") else None
        return {**came, **self._clear(alive)}

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
                    room = max(0, KEPT_TEXT - len(text))
                    text += more[:room]
                    cut += max(0, len(more) - room)
                else:
                    result += more
            if result.endswith(b"\n"):
                came = _read_result(bytes(result))
                break
            if len(result) > KEPT_RESULT or os.waitpid(child.pid, os.WNOHANG)[0]:
                came = {"status": "died"}
                break
        cut += _drain(child.out, text)
        return {**came, "out": text.decode("utf-8", "replace"), "cut": cut}

    def _clear(self, alive: Child | None) -> dict[str, Any]:
        """Ends every process but the child that lives on, and without one empties the folder.
        `damaged`: something could not be removed, so this worker serves nobody again."""
        if alive is None and self.child is not None:
            _kill(self.child.pid)
            self.child.close()
            self.child = None
        self._end_strays(alive)
        damaged = alive is None and not _emptied(self.wall["folder"])
        return {"damaged": damaged, "alive": alive is not None}

    def _end_strays(self, alive: Child | None) -> None:
        if alive is None and self.wall["alone"]:
            # the first process of a namespace of its own: this reaches all the others, and a
            # bomb that forks on cannot outrun it
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            spared = {os.getpid(), alive.pid if alive else 0}
            for pid in _others(self.wall["alone"]) - spared:
                _kill(pid)
        while _reaped(alive is None):
            pass


def _read_result(line: bytes) -> dict[str, Any]:
    try:
        came = json.loads(line)
    except ValueError:
        return {"status": "died"}
    # the child could have written this line itself: it may say nothing but what a child may
    good = isinstance(came, dict) and came.get("status") in ("ok", "error")
    return (
        {key: came[key] for key in ("status", "value", "why") if key in came}
        if good
        else {"status": "died"}
    )


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
            room = max(0, KEPT_TEXT - len(text))
            text += more[:room]
            cut += max(0, len(more) - room)
    os.set_blocking(end, True)
    return cut


def _write(end: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    while data:
        data = data[write(end, data) :]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _reaped(all_: bool) -> bool:
    """Takes leave of one ended child; False where none is left, or none has ended."""
    try:
        return os.waitpid(-1, 0 if all_ else os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


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
    below, before = {os.getpid()}, 0
    while len(below) > before:
        before = len(below)
        below |= {pid for pid, parent in parents.items() if parent in below}
    return below


def _emptied(folder: str) -> bool:
    """Removes all that a folder holds; False where something stays, or where it is too much."""
    names = list(islice(os.scandir(folder), MAX_LEFT + 1))
    if not names:
        return True
    if len(names) > MAX_LEFT:  # quicker to throw the whole worker away
        return False
    with contextlib.suppress(OSError):
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


# -- the child ------------------------------------------------------------------------------------


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
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        _write(result, (dumps(came) + "\n").encode(), write)
        number += 1


def _graded(request: dict[str, Any]) -> dict[str, Any]:
    module, _, name = request["function"].partition(":")
    try:
        # a pickle of ours, which comes in: nothing that is pickled ever goes out
        args, options = pickle.loads(base64.b64decode(request["pickled"]))
        value = getattr(import_module(module), name)(*args, **options)
        json.dumps(value)
    except BaseException as error:  # SystemExit too: it is the answer that asks for the end
        return {"status": "error", "why": f"{type(error).__name__}: {error}"[:2000]}
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
        if error.code in (None, 0):
            return {"status": "ok"}
        return {"status": "error", "why": f"SystemExit: {error.code}"[:2000]}
    except BaseException as error:
        why = f"{type(error).__name__}: {_words(error)}"[:2000]
        with contextlib.suppress(BaseException):
            print(_trace(error), file=sys.stderr)
        return {"status": "error", "why": why}
    return {"status": "ok"}


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # a class of the model's own
        return "?"


def _trace(error: BaseException) -> str:
    """The traceback without the frames of this file."""
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code.co_filename == __file__:
        here = here.tb_next
    lines = io.StringIO()
    traceback.print_exception(type(error), error, here, limit=-8, file=lines, chain=False)
    return lines.getvalue().rstrip()


# -- the wall, from inside ------------------------------------------------------------------------


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
    # nobody of the same user may trace this process or read its memory and descriptors; a child
    # inherits it
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
        supervisor.prepare()


def _warm_up() -> None:
    """What every child would do anew, done once. Each page that it need not touch saves it some
    microseconds, and there are hundreds."""
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
    parts = []
    while more := os.read(end, 1 << 16):
        parts.append(more)
        if more.endswith(b"\n"):
            break
    return b"".join(parts)


if __name__ == "__main__":
    main()
