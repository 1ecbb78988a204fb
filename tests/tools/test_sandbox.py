"""The guarded worker: what a model writes reaches nothing, outlives nothing and holds nobody up.
Without bubblewrap these tests fail; `make sandbox` installs it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.errors import CallError, ConfigError
from gem_ma.tools import sandbox, walls
from gem_ma.tools.sandbox import grade, run
from gem_ma.tools.walls import Wall

SECRET = "key-of-the-parent"


def out(code: str, timeout_s: float = 5.0, **options: object) -> str:
    """What the code printed; it must have come to its end."""
    result = run(code, timeout_s, **options)  # type: ignore[arg-type]
    assert result["status"] == "ok", result
    return str(result["out"]).strip()


def blocked(code: str) -> None:
    """The code, which prints `got it` where it succeeds, does not."""
    result = run(code + "\nprint('got it')", 5.0)
    assert "got it" not in result["out"]
    assert result["status"] in ("error", "died")


def test_a_wall_that_never_stands_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "START_S", 0.1)
    monkeypatch.setattr(sandbox, "command", lambda *_: ["sh", "-c", "exec sleep 600"])
    with pytest.raises(ConfigError, match="it fails here"):
        sandbox.Worker(Wall("bubblewrap"))


# -- an ordinary call -----------------------------------------------------------------------------


def test_the_last_line_is_shown_as_an_interactive_python_does() -> None:
    assert run("x = 3\nprint('hi')\nx + 1") == {"status": "ok", "out": "hi\n4\n", "why": ""}


def test_an_error_shows_the_own_lines_alone() -> None:
    result = run("def f():\n    return 1 / 0\nf()")
    assert result["status"] == "error"
    assert result["why"] == "ZeroDivisionError: division by zero"
    assert "return 1 / 0" in result["out"]
    assert "inside.py" not in result["out"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("(", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("class E(Exception):\n  def __str__(self): raise self\nraise E", "E: ?"),
        ("'a\\0b'.encode() + 1", "TypeError"),
    ],
)
def test_whatever_it_raises_is_told_in_a_line(code: str, why: str) -> None:
    result = run(code)
    assert (result["status"], result["why"][: len(why)]) == ("error", why)


def test_an_orderly_end_is_no_error() -> None:
    assert run("print(1)\nexit()")["status"] == "ok"


def test_stdin_is_what_is_given_and_else_empty() -> None:
    assert out("print(int(input()) + int(input()))", stdin="3\n4\n") == "7"
    assert run("input()")["why"].startswith("EOFError")
    assert out("import sys; print(repr(sys.stdin.read()))") == "''"


def test_odd_texts_pass_both_ways() -> None:
    assert out("print('ä\\n' * 2, chr(0xD800), chr(0))") == "ä\nä\n ? \0"
    assert run("print(1)\0")["status"] == "error"
    assert run("x = '\ud800'\nprint(len(x))")["status"] in ("ok", "error")


# -- nothing of a call is there at the next one ---------------------------------------------------


def test_a_call_leaves_nothing_behind() -> None:
    for _ in range(2):  # the second is served by the same worker
        code = """
import builtins, json, os, subprocess, sys
print(os.listdir("."), hasattr(builtins, "mark"), len(os.listdir("/proc/1/task")))
print({int(name) for name in os.listdir("/proc") if name.isdecimal()} - {1, os.getpid()})
builtins.mark = json.loads = json.dumps = 1
os.makedirs("a/b/c"); os.symlink("/", "root")
left = open("a/b/c/file", "w").write("x"); os.chmod("a/b", 0)
orphan = subprocess.Popen(["sleep", "60"], start_new_session=True)
"""
        assert out(code) == "[] False 1\nset()"


def test_no_call_reads_an_earlier_one_of_its_worker() -> None:
    """Neither its text nor what it was graded against stands in a variable of any frame."""
    look = """
import sys
frame, seen = sys._getframe(), []
while frame:
    seen += [str(value) for value in frame.f_locals.values() if isinstance(value, (str, bytes))]
    frame = frame.f_back
print(any('of an ' + 'earlier call' in text for text in seen))
"""
    wall = Wall(memory=500 * walls.MIB)  # workers of its own: the same one serves all three
    assert out("mark = 'of an earlier call'", wall=wall) == ""
    assert out(look, wall=wall) == "False"
    assert grade("m:f", "of an earlier call", wall=wall, source="def f(x): return 1") == 1
    assert out(look, wall=wall) == "False"


def test_a_function_whose_text_is_sent_needs_nothing_mounted() -> None:
    source = "import sys\ndef twice(x, by=2): return [x * by, 'gem_ma' in sys.modules]"
    assert grade("module:twice", 3, by=4, wall=Wall(), source=source) == [12, False]
    with pytest.raises(CallError, match="No module named 'module'"):
        grade("module:thrice", 3, wall=Wall(), source=source)


def test_the_devices_that_are_shown_can_be_used() -> None:
    code = """
import subprocess
open("/dev/null", "w").write("x")
print(len(open("/dev/urandom", "rb").read(4)), open("/dev/zero", "rb").read(1))
_ = subprocess.run(["true"], stdin=subprocess.DEVNULL, check=True)
"""
    assert out(code) == "4 b'\\x00'"
    blocked("open('/dev/other', 'w')")


def test_its_user_has_a_name_whatever_its_number() -> None:
    assert out("import getpass, os, pwd; print(pwd.getpwuid(os.getuid())[0])") == "user"
    assert (
        out("import os, grp; print(grp.getgrgid(os.getgid())[0], len(grp.getgrall()))") == "user 1"
    )


def test_a_folder_that_cannot_be_emptied_ends_its_worker() -> None:
    worker = sandbox.Worker(Wall())
    try:
        flood = f"for i in range({walls.MIB // 1024}): open(str(i), 'w').close()"
        assert worker.ask({"code": flood}, 5)["status"] == "ok"
        assert not worker.sound
    finally:
        worker.close()


# -- escapes --------------------------------------------------------------------------------------


def test_files_outside_are_not_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    for path in (secret, Path(__file__), "/etc/shadow", "/var", "/run", "/sys", "/boot"):
        blocked(f"import os; os.stat({str(path)!r})")
    # the folders on the way to the interpreter are there, and nothing else in them
    code = f"import os; os.path.isdir({str(Path.home())!r}) and os.listdir({str(Path.home())!r})"
    assert ".ssh" not in out(code) and ".bashrc" not in out(code)


@pytest.mark.parametrize("place", ["/", "/usr", "/usr/lib", "/dev", "/proc/1", "/packages", "/etc"])
def test_nothing_is_written_outside_its_folder(place: str) -> None:
    blocked(f"open('{place}/mark', 'w').write('x')")
    blocked("open('/worker/inside.py', 'a').write('x')")
    assert not Path("/mark").exists()


def test_symlinks_lead_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    blocked(f"import os; os.symlink({str(tmp_path)!r}, 'way'); open('way/secret').read()")
    blocked("import os; os.symlink('/proc/1/root', 'way'); os.listdir('way')")
    blocked("import os; os.listdir('/proc/1/cwd')")


def test_there_is_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        blocked(f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
    blocked("import socket; socket.create_connection(('192.0.2.1', 80), 1)")
    blocked("import socket; socket.getaddrinfo('localhost.localdomain', 80)")


def test_others_cannot_be_signalled() -> None:
    blocked(f"import os; os.kill({os.getpid()}, 0)")
    # its own supervisor is the first process of its world, which no signal from inside ends
    assert out("import os\ntry: os.kill(1, 9)\nexcept OSError: pass\nprint('on')") == "on"
    run("import os; os.kill(-1, 9)")
    assert out("1 + 1") == "2"


def test_the_parent_is_not_in_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert out(f"import os; print(os.path.exists('/proc/{os.getpid()}'))") == "False"
    for file in ("environ", "mem", "maps", "fd", "auxv"):
        look = "os.listdir" if file == "fd" else "open"
        blocked(f"import os; {look}('/proc/1/{file}')")


def test_the_environment_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    worker = sandbox.Worker(Wall())  # made while the key is there
    try:
        code = "import os\nprint(dict(os.environ))\nprint(open('/proc/self/environ').read())"
        answer = worker.ask({"code": code}, 5)
        assert answer["status"] in ("ok", "error")
        assert SECRET not in answer["out"] and "OPENAI" not in answer["out"]
    finally:
        worker.close()


def test_nobody_is_traced() -> None:
    trace = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, {pid}, 0, 0) == -1: raise OSError(ctypes.get_errno(), "refused")
"""
    blocked(trace.format(pid=1))
    blocked(trace.format(pid="os.getppid()"))
    blocked("open('/proc/1/mem', 'r+b').read(1)")


@pytest.mark.parametrize(
    "call",
    [
        "unshare(0x10000000)",
        "ptrace(0, 0, 0, 0)",
        "shmget(0, 4096, 0o1600)",
        "mount(0, 0, 0, 0, 0)",
        "memfd_create(b'x', 0)",
    ],
)
def test_calls_that_nobody_needs_are_refused(call: str) -> None:
    libc = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    assert out(f"{libc}(libc.{call}, ctypes.get_errno())") == "(-1, 1)"
    space = "libc.syscall(56 if __import__('platform').machine() == 'x86_64' else 220, 0x10000011)"
    assert out(f"{libc}({space}, ctypes.get_errno())") == "(-1, 1)"
    assert (
        out("import subprocess; subprocess.run(['id', '-u'], capture_output=True).returncode")
        == "0"
    )


@pytest.mark.parametrize("family", [16, 17, 38, 40])  # netlink packet alg vsock
def test_no_socket_passes_by_the_network_namespace(family: int) -> None:
    blocked(f"import socket; socket.socket({family}, socket.SOCK_RAW)")
    loopback = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].sendall(b"own"); client.recv(3)"""
    assert out(loopback) == "b'own'"


def test_it_has_no_power() -> None:
    status = out("print(open('/proc/self/status').read())")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert "0" not in fields["Uid"].split()
    blocked("import os; os.setuid(0)")


# -- no call names its supervisor -----------------------------------------------------------------

# Every call of the kernel with which a process can be named by a number, in all the ways that it
# offers: numbers on x86_64 and aarch64, and arguments, in which P is the process.
P, NULL = "P", 0
NAMING: dict[str, tuple[int, int, list[list[Any]]]] = {
    "kill": (62, 129, [[P, 0], [P, 9]]),
    "tkill": (200, 130, [[P, 0]]),
    "tgkill": (234, 131, [[P, P, 0]]),
    "rt_sigqueueinfo": (129, 138, [[P, 10, NULL]]),
    "rt_tgsigqueueinfo": (297, 240, [[P, P, 10, NULL]]),
    "pidfd_open": (434, 434, [[P, 0], [P, 0o200]]),
    "prlimit64": (302, 261, [[P, number, NULL, NULL] for number in range(16)]),
    "getpriority": (140, 141, [[0, P], [1, P]]),
    "setpriority": (141, 140, [[0, P, 0], [1, P, 0]]),
    "ioprio_set": (251, 30, [[1, P, 0x4004], [2, P, 0x4004]]),
    "ioprio_get": (252, 31, [[1, P], [2, P]]),
    "sched_setparam": (142, 118, [[P, NULL]]),
    "sched_getparam": (143, 121, [[P, NULL]]),
    "sched_setscheduler": (144, 119, [[P, 5, NULL]]),
    "sched_getscheduler": (145, 120, [[P]]),
    "sched_rr_get_interval": (148, 127, [[P, NULL]]),
    "sched_setaffinity": (203, 122, [[P, 8, NULL]]),
    "sched_getaffinity": (204, 123, [[P, 8, NULL]]),
    "sched_setattr": (314, 274, [[P, NULL, 0]]),
    "sched_getattr": (315, 275, [[P, NULL, 48, 0]]),
    "setpgid": (109, 154, [[P, 0], [0, P]]),
    "getpgid": (121, 155, [[P]]),
    "getsid": (124, 156, [[P]]),
    "get_robust_list": (274, 100, [[P, NULL, NULL]]),
}
# for whatever argument: what they name stands in memory, behind a descriptor, or is a whole user
NEVER: dict[str, tuple[int, int, list[list[Any]]]] = {
    "ptrace": (101, 117, [[16, P, 0, 0], [0x4206, P, 0, 0]]),
    "process_vm_readv": (310, 270, [[P, 0, 0, 0, 0, 0]]),
    "process_vm_writev": (311, 271, [[P, 0, 0, 0, 0, 0]]),
    "kcmp": (312, 272, [[P, P, 0, 0, 0]]),
    "move_pages": (279, 239, [[P, 0, 0, 0, 0, 0]]),
    "migrate_pages": (256, 238, [[P, 0, 0, 0]]),
    "perf_event_open": (298, 241, [[NULL, P, -1, -1, 0]]),
    "capget": (125, 90, [[NULL, NULL]]),
    "pidfd_send_signal": (424, 424, [[3, 0, 0, 0]]),
    "pidfd_getfd": (438, 438, [[3, 0, 0]]),
    "process_madvise": (440, 440, [[3, 0, 0, 4, 0]]),
    "process_mrelease": (448, 448, [[3, 0]]),
    "open_by_handle_at": (304, 265, [[3, NULL, 0]]),
    "setns": (308, 268, [[3, 0]]),
    "getpriority": (140, 141, [[2, 0]]),
    "setpriority": (141, 140, [[2, 0, 0]]),
    "ioprio_set": (251, 30, [[3, 0, 0x4004]]),
    "ioprio_get": (252, 31, [[3, 0]]),
    "fcntl": (72, 25, [[1, 8, P], [1, 8, -1], [1, 15, NULL]]),
    "ioctl": (16, 29, [[1, 0x8901, NULL], [1, 0x8902, NULL]]),
    "prctl": (157, 167, [[62, 1, P, 0, 0], [0x59616D61, P, 0, 0, 0]]),
}
MACHINES = ("x86_64", "aarch64")


def asked(calls: dict[str, tuple[int, int, list[list[Any]]]], machine: str, name: Any) -> list[Any]:
    """[number, *arguments] of each call, with a process in its place."""
    return [
        [numbers[MACHINES.index(machine)], *(name if part == P else part for part in arguments)]
        for *numbers, ways in calls.values()
        for arguments in ways
    ]


def filtered(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the filter says to a call, run as the kernel runs it."""
    fields = [number, walls.MACHINES[machine] if arch is None else arch, 0, 0]
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        fields += [argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF]
    line = value = 0
    text = walls.program(machine)
    while True:
        code, true, false, constant = struct.unpack_from("HBBI", text, 8 * line)
        line += 1
        if code == 0x06:
            return int(constant)
        if code == 0x20:
            value = fields[constant // 4]
        else:
            tests = {0x15: value == constant, 0x35: value >= constant, 0x45: value & constant}
            line += true if tests[code] else false


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_refuses_the_supervisors_number_and_no_other(machine: str) -> None:
    allowed, refused = 0x7FFF0000, 0x00050001
    for name in (1, 1 << 32 | 1, -(1 << 32) + 1):  # the kernel reads the lower half
        for call in (*asked(NAMING, machine, name), *asked(NEVER, machine, name)):
            assert filtered(machine, *call) == refused, call
    for name in (0, 2, 300, 4_000_000):
        for call in asked(NAMING, machine, name):
            assert filtered(machine, *call) == allowed, call
    for arch in (0x40000003, 0x40000028, 0xC000003E ^ 0xC00000B7):  # i386, arm, none
        assert filtered(machine, 20, arch=arch) == refused
    assert filtered(machine, 0x40000000 | 39) == refused  # x32


BY_NUMBER = """
import ctypes, json
libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(4096)
def raw(*call):
    ctypes.set_errno(0)
    given = [ctypes.c_long(part) if part else ctypes.byref(room) for part in call[1:]]
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(call[0]), *given) == -1 else 0
"""


@pytest.mark.skipif(os.uname().machine not in MACHINES, reason="its numbers are not known")
def test_no_call_names_its_supervisor_by_whatever_entrance() -> None:
    calls = [each for part in (NAMING, NEVER) for each in asked(part, os.uname().machine, 1)]
    assert set(json.loads(out(f"{BY_NUMBER}print(json.dumps([raw(*c) for c in {calls}]))"))) == {1}
    if os.uname().machine == "x86_64":  # getpid by the entrance for 32 bits
        old = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000cd80c3"))
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())"""
        assert out(old) == "-1"


INHERITED = """
import os, resource
print([resource.getrlimit(number) for number in range(16)], os.getpriority(0, 0))
print(os.sched_getscheduler(0), os.sched_getaffinity(0), open("/proc/self/oom_score_adj").read())
print(open("/proc/self/timerslack_ns").read(), open("/proc/self/coredump_filter").read())
"""
NAMED = {
    **{
        f"limit {number}": f"resource.prlimit(who, {number}, (1, 1))"
        for number in range(16)
        if number != resource.RLIMIT_CPU
    },
    "nice": "os.setpriority(os.PRIO_PROCESS, who, 19)",
    "policy": "os.sched_setscheduler(who, os.SCHED_IDLE, os.sched_param(0))",
    "affinity": "os.sched_setaffinity(who, {min(os.sched_getaffinity(0))})",
    "badness": "os.write(os.open(f'/proc/{who}/oom_score_adj', os.O_WRONLY), b'0')",
    "slack": "os.write(os.open(f'/proc/{who}/timerslack_ns', os.O_WRONLY), b'9999')",
    "folder": "os.chmod(os.getcwd(), 0o500)",
}


def test_what_a_call_inherits_no_earlier_one_has_changed() -> None:
    wall = Wall(memory=501 * walls.MIB)  # workers of its own
    before = out(INHERITED, wall=wall)
    attack = "".join(f"try: {code}\nexcept OSError: pass\n" for code in NAMED.values())
    run(f"import os, resource\nwho = 1\n{attack}", wall=wall)
    assert [out(INHERITED, wall=wall) for _ in range(2)] == [before] * 2


@pytest.mark.parametrize(
    "way", ["limit 7", "limit 9", "nice", "policy", "affinity", "badness", "folder"]
)
def test_a_worker_that_a_call_has_changed_serves_nobody_again(way: str) -> None:
    if way == "affinity" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one processor cannot be taken away")
    worker = sandbox.Worker(Wall("none"))  # where a call can name it
    try:
        assert worker.ask({"code": "1"}, 5)["status"] == "ok" and worker.sound
        code = f"import os, resource\nwho = os.getppid()\n{NAMED[way]}"
        worker.ask({"code": code}, 5)
        assert not worker.sound
    finally:
        worker.close()


def test_a_worker_whose_calls_die_in_a_row_serves_nobody_again() -> None:
    worker = sandbox.Worker(Wall())
    try:
        for code, sound in (("os._exit(0)", True), ("1", True), ("os._exit(0)", True)):
            worker.ask({"code": f"import os; {code}"}, 5)
            assert worker.sound is sound
        assert worker.ask({"code": "import os; os.abort()"}, 5)["status"] == "died"
        assert not worker.sound
    finally:
        worker.close()


def test_a_module_that_starts_a_thread_stays_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the supervisor would have a number that the filter does not know."""
    (tmp_path / "busy.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("gem_ma.tools.walls.sysconfig.get_path", lambda name: str(tmp_path))
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match="a thread was started by importing busy"):
        sandbox.Worker(Wall(packages=("busy",), warm=("busy",)))


HONEST = {
    "pool": "import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [1, -2]))",
    "queue": "import multiprocessing as m; q = m.Queue(); q.put(1); print(q.get())",
    "thread": "import threading as t; a = t.Thread(target=print, args=(1,)); a.start(); a.join()",
    "loop": "import asyncio; print(asyncio.run(asyncio.sleep(0, 1)))",
    "limit": "import resource as r; r.setrlimit(r.RLIMIT_CPU, (9, 9)); print(r.getrlimit(0))",
    "own limit": "import os, resource as r; print(r.prlimit(os.getpid(), r.RLIMIT_CPU, (9, 9)))",
    "nice": "import os; print(os.nice(3), os.getpriority(0, os.getpid()))",
    "processors": "import os; print(os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0)))",
    "own thread": "import os, threading; print(os.sched_getscheduler(threading.get_native_id()))",
    "group": """
import os, signal, subprocess
sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
os.killpg(os.getpgid(sleeper.pid), signal.SIGTERM); print(sleeper.wait())""",
    "child": """
import os, resource, subprocess
sleeper = subprocess.Popen(["sleep", "60"])
resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE, (9, 9)); os.setpriority(0, sleeper.pid, 9)
os.pidfd_open(sleeper.pid); sleeper.kill(); print(sleeper.wait())""",
    "itself": "import os, signal; signal.signal(10, print); os.kill(os.getpid(), 10)",
    "alarm": "import signal, time; signal.signal(14, print); signal.setitimer(0, 0.01); time.sleep(0.1)",
    "shell": "import subprocess as s; print(s.run('ps aux; nproc; free', shell=True, check=True))",
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_names_its_own(name: str) -> None:
    assert out(HONEST[name])


# -- what is told of the machine ------------------------------------------------------------------


def test_of_the_machine_proc_tells_its_processor_alone() -> None:
    code = """
import os
for folder, folders, files in os.walk("/proc"):
    folders[:] = [name for name in folders if not name.isdecimal() and name != "self"
        and name != "thread-self" and not os.path.islink(os.path.join(folder, name))]
    for name in files:
        path = os.path.join(folder, name)
        try: print(path, *([] if os.path.islink(path) else [len(open(path).read())]))
        except OSError: pass"""
    told = {line.split()[0] for line in out(code).splitlines() if len(line.split()) > 1}
    own = {f"/proc/{name}" for name in ("loadavg", "meminfo", "stat", "uptime")}
    assert told == own | {"/proc/cpuinfo"}
    assert out("print(open('/proc/loadavg').read())") == "0.00 0.00 0.00 1/1 1"
    memory = Wall().memory // 1024
    assert f"MemTotal: {memory} kB" in out("print(open('/proc/meminfo').read())")


def test_no_file_of_its_supervisor_tells_where_the_package_lies() -> None:
    code = """
import os
for process in ("1", "self"):
    for name in os.listdir(f"/proc/{process}"):
        try: print(open(f"/proc/{process}/{name}").read())
        except (OSError, UnicodeError): pass
print(globals())"""
    text = str(sandbox.run(code)["out"])
    assert str(Path(sandbox.__file__).parents[1]) not in text and '"alone"' not in text


@pytest.mark.parametrize("kind", ["AF_UNIX", "AF_INET"])
def test_a_flood_of_sockets_ends_with_its_call(kind: str) -> None:
    flood = f"""
import os, socket, time
os.fork()
held = [socket.socket(socket.{kind}) for _ in range(40)]
time.sleep(60)"""
    assert run(flood, 20)["status"] == "died"
    few = f"import socket; print(len([socket.socket(socket.{kind}) for _ in range(40)]))"
    assert out(few) == "40"


def test_no_call_finds_the_port_of_an_earlier_one_taken() -> None:
    code = """
import socket
server = socket.socket(); server.bind(("127.0.0.1", 8000)); server.listen()
client = socket.create_connection(("127.0.0.1", 8000))
server.accept()[0].close(); client.close(); print("bound")"""
    assert [out(code) for _ in range(3)] == ["bound"] * 3


# -- bombs ----------------------------------------------------------------------------------------


def test_a_fork_bomb_ends_with_its_call() -> None:
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    assert run(bomb, 0.5)["status"] in ("timeout", "died")
    assert out("import os; print(len([n for n in os.listdir('/proc') if n.isdecimal()]))") == "2"


def test_a_memory_bomb_is_a_memory_error() -> None:
    assert run("x = bytearray(1 << 31)")["why"].startswith("MemoryError")
    result = run("x = []\nwhile True: x.append(bytearray(1 << 24))")
    assert result["why"].startswith("MemoryError")


def test_a_file_bomb_stays_small() -> None:
    blocked("open('big', 'wb').write(bytes(1 << 26))")
    code = "import os\nfor i in range(9):\n  open(str(i), 'wb').write(bytes(1 << 23))"
    blocked(code)
    assert out("import os; print(os.listdir('.'))") == "[]"


def test_a_flood_of_files_ends_with_its_call() -> None:
    flood = """
import os
for number in range(10 ** 6):
    os.mkdir(str(number))"""
    assert run(flood, 20)["status"] == "died"
    assert out("import os; os.listdir('.')") == "[]"


def test_50_mb_of_output_are_cut() -> None:
    result = run("print('begin'); print('x' * 50_000_000); print('end')", 20)
    assert result["status"] == "ok"
    assert len(result["out"]) < 10_000
    assert result["out"].startswith("begin")
    assert "characters]" in result["out"]


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "while True: pass",
        "import signal, time; signal.pthread_sigmask(0, range(1, 64)); time.sleep(60)",
        "import os\nif os.fork() == 0: os.setsid()\nwhile True: pass",
        "while True: print('x' * 10_000)",
        "9 ** 9 ** 9",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    ],
)
def test_its_time_ends(code: str) -> None:
    before = time.monotonic()
    assert run(code, 0.4)["status"] == "timeout"
    # a guard, not a measurement: the benchmark measures
    assert time.monotonic() - before < 20
    assert out("1 + 1") == "2"


def test_a_process_that_ends_itself_is_told_so() -> None:
    assert run("import os; os._exit(0)")["status"] == "died"
    assert run("import os; os.abort()")["status"] == "died"


# -- forged answers -------------------------------------------------------------------------------

FORGE = """
import os
def forge(line):
    for end in range(64):
        try: os.write(end, line)
        except OSError: pass
"""
NESTED = b"[" * 60_000
FORGED = {
    "no line": b"nonsense",
    "nonsense": b"nonsense\n",
    "every byte": bytes(range(256)) + b"\n",
    "nothing": b"null\n",
    "a supervisor's": b'{"number": 1, "status": "ready", "damaged": false, "alive": true}\n',
    "a late one": b'{"number": 1, "status": "timeout"}\n',
    "more than a child may": b'{"number": 1, "status": "ok", "out": "it", "cut": -9, "damaged": true, "x": 1}\n',
    "no text": b'{"number": 1, "status": "error", "why": {"a": [1]}}\n',
    "a long text": b'{"number": 1, "status": "error", "why": "' + b"x" * 500_000 + b'"}\n',
    "half a letter": b'{"number": 1, "status": "error", "why": "\\ud800"}\n',
    "no number": b'{"number": 1, "status": "ok", "value": [NaN, Infinity]}\n',
    "a long number": b'{"number": 1, "status": "ok", "value": ' + b"9" * 5_000 + b"}\n",
    "depth": b'{"number": 1, "status": "ok", "value": '
    + NESTED
    + NESTED.replace(b"[", b"]")
    + b"}\n",
    "some depth": b'{"number": 1, "status": "ok", "value": ' + NESTED[:980] + b"]" * 980 + b"}\n",
    "two lines": b'{"number": 1, "status": "ok"}\n' * 2,
    "another number": b'{"status": "ok", "number": 2}\n',
    "a flood": b"x" * (1 << 21),
}


# what ends late, or at once, does so whatever it has written
@pytest.mark.parametrize(
    ("name", "after"),
    [
        *((name, "") for name in FORGED),
        ("a late one", "while True: pass"),
        ("nothing", "os._exit(0)"),
        ("a flood", "os._exit(0)"),
    ],
)
def test_code_that_writes_to_whatever_is_open_speaks_for_itself_alone(
    name: str, after: str
) -> None:
    code = f"{FORGE}forge({FORGED[name]!r})\n{after}"
    result = run(code, 2.0)
    assert set(result) == {"status", "out", "why"}
    assert result["status"] in ("ok", "error", "died", "timeout")
    assert isinstance(result["why"], str) and len(result["why"]) <= 2_000
    assert len(result["out"]) < 10_000
    json.dumps(result, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert run("1 + 1") == {"status": "ok", "out": "2\n", "why": ""}
    # a grader that evaluates shares its process with the answer, which may say any JSON value
    try:
        value = grade("builtins:exec", code, timeout_s=2.0, wall=Wall())
    except CallError as error:
        assert len(str(error)) < 2_500 and str(error).encode("utf-8")
    else:
        json.dumps(value, allow_nan=False)
    assert out("1 + 1") == "2"


def test_an_answer_that_comes_early_is_not_taken_for_that_of_the_next_call() -> None:
    worker = sandbox.Worker(Wall())
    try:
        # the forged line ends the call, and the true one is still to come
        code = f'{FORGE}forge(b\'{{"status": "ok", "number": 1}}\\n\')\nimport time; time.sleep(.3)'
        assert worker.ask({"code": code, "keep": True}, 5)["status"] == "ok"
        answer = worker.ask({"code": "print('second')", "keep": True}, 5)
        assert answer["status"] == "died" and not answer["alive"]
        assert worker.ask({"code": "print('new')", "keep": True}, 5)["out"] == "new\n"
    finally:
        worker.close()


def test_a_session_stands_still_between_two_calls() -> None:
    worker = sandbox.Worker(Wall())
    try:
        busy = "import threading\ndef run():\n  while True: pass\nthreading.Thread(target=run, daemon=True).start()"
        assert worker.ask({"code": busy, "keep": True}, 5)["alive"]
        assert stopped_below(worker._process.pid)
        assert worker.ask({"code": "1 + 1", "keep": True}, 5)["out"] == "2\n"
        assert stopped_below(worker._process.pid)
    finally:
        worker.close()


def stopped_below(pid: int) -> bool:
    """Whether a process that descends from one is stopped, or soon will be."""
    for _ in range(200):
        states: dict[int, tuple[int, str]] = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                states[int(name)] = int(fields[1]), fields[0]
        below = {pid}
        for _ in range(4):  # bubblewrap, its own child, the supervisor, the session
            below |= {child for child, (parent, _) in states.items() if parent in below}
        if "T" in {states[each][1] for each in below if each in states}:
            return True
        time.sleep(0.05)
    return False


# -- workers --------------------------------------------------------------------------------------


def test_a_worker_that_is_ended_from_outside_is_replaced() -> None:
    worker = sandbox.Worker(Wall())
    assert worker.ask({"code": "1"}, 5)["status"] == "ok"
    worker.close()
    assert worker.ask({"code": "1"}, 5)["status"] == "died"
    assert not worker.sound


def test_a_worker_outlives_the_thread_that_made_it() -> None:
    wall = Wall(processes=17)  # of its own, so that a new worker is made
    results: list[str] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: results.append(out("1 + 1", wall=wall)))
        thread.start()
        thread.join()
    assert results == ["2"] * 3
    assert len(sandbox.POOL.idle[wall]) == 1


def test_calls_side_by_side_do_not_meet() -> None:
    results: dict[int, str] = {}

    def call(number: int) -> None:
        results[number] = out(f"import time; time.sleep(.05); print({number})", 20)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: str(number) for number in range(12)}


# -- graders --------------------------------------------------------------------------------------


def test_a_grader_runs_inside() -> None:
    wall = Wall(warm=("fractions",))
    assert grade("math:gcd", 12, 18, wall=wall) == 6
    with pytest.raises(CallError, match="ValueError: math domain error"):
        grade("math:sqrt", -1, wall=wall)
    with pytest.raises(CallError, match=r"no result within 0\.3 s"):
        grade("time:sleep", 9, timeout_s=0.3, wall=wall)
    with pytest.raises(CallError, match="its process ended"):
        grade("os:_exit", 0, wall=wall)
    with pytest.raises(CallError, match="TypeError"):
        grade("fractions:Fraction", 1, 3, wall=wall)


def test_a_grader_that_evaluates_writes_nothing_outside(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(CallError):
        grade("builtins:eval", f"open({str(mark)!r}, 'w').write('x')", wall=Wall())
    assert not mark.exists()


def test_a_package_is_there_read_only_where_it_is_named() -> None:
    blocked("import numpy")
    wall = Wall(packages=("numpy", "gem_ma"))
    assert (
        out("import gem_ma.kernel.types; gem_ma.kernel.types.Action('x').text", wall=wall) == "'x'"
    )
    assert out("import numpy; int(numpy.arange(4).sum())", wall=wall) == "6"
    code = "import numpy, os; open(os.path.dirname(numpy.__file__) + '/mark', 'w')"
    assert run(code, wall=wall)["why"].startswith("OSError")
    with pytest.raises(ConfigError, match="the package 'no_such' is not installed"):
        run("1", wall=Wall(packages=("no_such",)))


# -- where no wall can be built -------------------------------------------------------------------


def test_a_worker_with_packages_under_tmp_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a checkout there, what is mounted is not what a call left behind."""
    (tmp_path / "toy.py").write_text("X = 3")
    tmp_path.chmod(0o755)  # the user behind the wall reads it
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("gem_ma.tools.walls.sysconfig.get_path", lambda name: str(tmp_path))
    worker = sandbox.Worker(Wall(packages=("toy",)))
    try:
        for _ in range(2):
            assert worker.ask({"code": "import toy; toy.X"}, 5.0)["out"] == "3\n"
            assert worker.sound
    finally:
        worker.close()


def test_without_bubblewrap_it_refuses_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError) as refused:
        sandbox.Worker(Wall())
    text = str(refused.value)
    assert "make sandbox" in text and "sandbox: none" in text and "\n" not in text


def test_bubblewrap_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(broken))
    with pytest.raises(
        ConfigError, match=r"No permissions to create new namespace.*`sandbox: none`"
    ):
        sandbox.Worker(Wall())


@pytest.mark.long
def test_none_is_typed_and_runs_without_a_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    # a worker that answers late on a busy machine would be replaced; this test keeps its own
    monkeypatch.setattr(sandbox, "PATIENCE_S", 60.0)
    wall = Wall("none")
    worker = sandbox.Worker(wall)
    try:
        assert (
            worker.ask({"code": "import os; os.environ.get('OPENAI_API_KEY', 1)"}, 5)["out"]
            == "1\n"
        )
        code = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True).pid"
        pid = int(worker.ask({"code": code}, 5)["out"])
        assert not Path(f"/proc/{pid}").exists()
        assert worker.ask({"code": "while True: pass"}, 0.3)["status"] == "timeout"
        assert worker.ask({"code": "open('a', 'w'); 1"}, 5)["out"] == "1\n"
        assert worker.ask({"code": "import os; os.listdir('.')"}, 5)["out"] == "[]\n"
    finally:
        worker.close()
    assert not Path(worker.folder).exists()
    with pytest.raises(ConfigError, match="sandbox: bubblewrap or none; got 'docker'"):
        Wall("docker")
