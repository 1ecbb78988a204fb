"""What runs behind the wall: a supervisor that forks a child (`cells.py`) for each call.

Run as a script by `gem_ma.tools.sandbox`, with the standard library alone. The supervisor runs no
text of a model. The first line of its standard input says what its wall is; each further line is a
request, and is answered by one line. Nothing of a child is there at the next call: no process, no
file, no changed module, no changed limit. It ends when its input does, and behind a wall all others
end with it.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import io
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_ma.tools.cells import KEPT_WHY, MAX_OPEN, line_of, live, run, write_all
else:
    sys.path.insert(0, os.path.dirname(__file__))
    from cells import KEPT_WHY, MAX_OPEN, line_of, live, run, write_all

    del sys.path[0], sys.modules["cells"]  # a model may call a file of its own so

KEPT_TEXT = 65_536  # bytes of output that are kept; the rest is counted
KEPT_RESULT = 1 << 20  # bytes of a result; a longer one is none
MAX_LEFT = 1_000  # files that are removed after a call
MOST_PASSES = 50  # over processes that are to end; without a wall some may fork on
MAX_FILES = 20_000  # at a time: each costs a kilobyte of memory that no limit counts
MAX_SOCKETS = 64  # at a time: a connection holds megabytes that no limit counts
MOST_DEATHS = 2  # of calls in a row, before the worker itself is suspected
LIMITS = range(16)  # by number: `resource` has no name for one of them
IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
LIBC = ctypes.CDLL(None)
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36


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
                live(wall, self.stdin.fileno(), out, get, result)
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
        write_all(self.cells, (json.dumps(request) + "\n").encode())

    def close(self) -> None:
        self.stdin.close()
        for end in (self.cells, self.out, self.result):
            os.close(end)


class Supervisor:
    """Answers one request at a time."""

    def __init__(self, wall: dict[str, Any], requests: int) -> None:
        self.wall = wall
        self.requests = requests
        self.child: Child | None = None
        self.deaths = 0
        self.killed_first = os.open("/proc/self/oom_score_adj", os.O_RDONLY)
        self.standing = self._standing()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What came of one request. `keep`: the child lives on and is asked again."""
        if request.get("end"):
            return {"status": "ok", **self._clear(None)}
        begun = time.monotonic()
        child = self.prepare()
        try:
            child.ask(request)
            came = self._await(child, begun + request["timeout"])
        except BrokenPipeError:  # a child that lived on, and ended itself since
            came = {"status": "died", "out": "", "cut": 0}
        goes_on = request.get("keep") and came["status"] in ("ok", "error")
        self.deaths = self.deaths + 1 if came["status"] == "died" else 0
        return {**came, **self._clear(child if goes_on else None)}

    def prepare(self) -> Child:
        """The child that runs the next request. Between two requests it is made ahead."""
        if self.child is None:
            self.child = Child(self.wall)
        return self.child

    def _await(self, child: Child, deadline: float) -> dict[str, Any]:
        text = bytearray()
        cut = 0
        result = bytearray()
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
            flooded = self.wall["alone"] and (
                held.f_files - held.f_ffree > MAX_FILES or _sockets()[0] > MAX_SOCKETS
            )
            overfull = flooded or len(result) > KEPT_RESULT
            if overfull or os.waitpid(child.pid, os.WNOHANG)[0]:
                came = {"status": "died"}
                break
        cut += _drain(child.out, text)
        return {**came, "out": text.decode("utf-8", "replace"), "cut": cut}

    def _clear(self, alive: Child | None) -> dict[str, Any]:
        """Ends every process but the child that lives on, and without one empties the folder.
        `damaged`: something could not be removed, or is not as it was before the first call, so
        this worker serves nobody again."""
        alone = self.wall["alone"]
        spared = {os.getpid(), alive.pid if alive else 0}
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
        damaged = alive is None and (
            not _emptied(self.wall["folder"])
            or self._standing() != self.standing
            or self.deaths >= MOST_DEATHS
        )
        return {"damaged": damaged, "alive": alive is not None}

    def _standing(self) -> list[Any]:
        """What a child inherits, or stands in its folder and network, and a call could change."""
        folder = self.wall["folder"]
        return [
            *map(resource.getrlimit, LIMITS),
            os.getpriority(os.PRIO_PROCESS, 0),
            os.sched_getscheduler(0),
            os.sched_getparam(0).sched_priority,
            os.sched_getaffinity(0),
            LIBC.syscall(IOPRIO_GET, 1, 0) if IOPRIO_GET else 0,
            os.pread(self.killed_first, 16, 0),
            os.stat(folder).st_mode,
            os.listxattr(folder),
            _sockets() if self.wall["alone"] else None,
        ]


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


def _signal(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _end(pids: set[int]) -> None:
    """Ends these processes, and waits: what still ends would count as one of the next call."""
    for pid in pids:
        _signal(pid)
    reaped = True
    while reaped:  # whoever is not a child of ours is one when its parent is gone
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


def _sockets() -> tuple[int, int]:
    """How many there are in this network, and how many closed ones still hold their ports."""
    with open("/proc/net/sockstat", "rb", buffering=0) as file:
        words = file.read().split()
    return int(words[words.index(b"used") + 1]), int(words[words.index(b"tw") + 1])


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


def _settle(wall: dict[str, Any]) -> None:
    """Gives up what a supervisor needs no more: its user, its size, its visibility."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory ends, this process does first
    if wall["user"]:
        os.setgroups([])
        os.setresgid(*[wall["user"]] * 3)
        os.setresuid(*[wall["user"]] * 3)
    os.umask(0o077)
    # nobody may trace this process or read its memory and descriptors; a child inherits it
    for option, value in ((PR_SET_DUMPABLE, 0), (PR_SET_CHILD_SUBREAPER, 1)):
        LIBC.prctl(option, value, 0, 0, 0)
    for limit, size in (
        (resource.RLIMIT_FSIZE, wall["file"]),
        (resource.RLIMIT_NOFILE, MAX_OPEN),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        *(((resource.RLIMIT_NPROC, wall["processes"]),) if wall["alone"] else ()),
    ):
        resource.setrlimit(limit, (size, size))


def main() -> None:
    requests = os.dup(0)
    replies = os.dup(1)
    wall = json.loads(line_of(requests))
    nothing = os.open("/dev/null", os.O_RDWR)
    for end in (0, 1):
        os.dup2(nothing, end)
    sys.path[:0] = wall["path"]
    _settle(wall)
    for module in wall["warm"]:
        import_module(module)  # once: every child has it at its birth
    _warm_up()
    if wall["alone"] and len(os.listdir("/proc/self/task")) > 1:
        # each has a number of its own, and the filter knows that of the first alone
        raise RuntimeError(f"a thread was started by importing {', '.join(wall['warm'])}")
    supervisor = Supervisor(wall, requests)
    write_all(replies, b'{"status": "ready"}\n')
    supervisor.prepare()
    while line := line_of(requests):
        write_all(replies, json.dumps(supervisor.answer(json.loads(line))).encode() + b"\n")
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
    run("x = 1\nx + 1", {"__builtins__": builtins}, 0)
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page


if __name__ == "__main__":
    main()
