"""The wall around what a model wrote: the command line that starts a worker behind it, and whether
this machine can build one. Workers themselves: `gem_ma.tools.sandbox`.

The default tier is bubblewrap: namespaces of its own (processes, network, mounts, IPC), an empty
file system with the interpreter read-only in it and a small `/tmp`, a `/proc` of its own processes
alone, no environment, no capabilities, a user that owns nothing, and limits on size and number of
everything.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import ConfigError

# Calls to the kernel that no Python of a model needs, refused by a seccomp filter: tracing, new
# namespaces and mounts, key rings, memory that outlives a process or is counted by no limit,
# sockets of families that no namespace holds back, as those to the host of a virtual machine, and
# every way to name the supervisor.
# The supervisor of a worker is the only process in sight that does not belong to the call. It is
# process 1 and has one thread, so a call may name every number but that one.
# The filter is a program of classic BPF, as in the kernel's `seccomp_filter.rst`.

SUPERVISOR = 1
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # and their AUDIT_ARCH
Numbers = tuple[int, int]  # of a call, on each of the machines

REFUSED: dict[str, Numbers] = {
    "ptrace": (101, 117),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "memfd_secret": (447, 447),
    # they take a descriptor of a process, which also a folder of /proc is
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    # the handle of such a descriptor is a number that can be guessed
    "open_by_handle_at": (304, 265),
    # the number of a process stands in memory, which no filter reads
    "capget": (125, 90),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
}
# Calls that are refused for a value of an argument: {argument: values}.
Arguments = dict[int, tuple[int, ...]]
_FIRST: Arguments = {0: (SUPERVISOR,)}
_EITHER: Arguments = {0: (SUPERVISOR,), 1: (SUPERVISOR,)}
ARGUMENTS: dict[str, tuple[Numbers, Arguments]] = {
    "kill": ((62, 129), _FIRST),
    "tkill": ((200, 130), _FIRST),
    "tgkill": ((234, 131), _EITHER),
    "rt_sigqueueinfo": ((129, 138), _FIRST),
    "rt_tgsigqueueinfo": ((297, 240), _EITHER),
    "pidfd_open": ((434, 434), _FIRST),
    "prlimit64": ((302, 261), _FIRST),
    # of a user: PRIO_USER, IOPRIO_WHO_USER; the supervisor has the same one
    "getpriority": ((140, 141), {0: (2,), 1: (SUPERVISOR,)}),
    "setpriority": ((141, 140), {0: (2,), 1: (SUPERVISOR,)}),
    "ioprio_set": ((251, 30), {0: (3,), 1: (SUPERVISOR,)}),
    "ioprio_get": ((252, 31), {0: (3,), 1: (SUPERVISOR,)}),
    "sched_setparam": ((142, 118), _FIRST),
    "sched_getparam": ((143, 121), _FIRST),
    "sched_setscheduler": ((144, 119), _FIRST),
    "sched_getscheduler": ((145, 120), _FIRST),
    "sched_rr_get_interval": ((148, 127), _FIRST),
    "sched_setaffinity": ((203, 122), _FIRST),
    "sched_getaffinity": ((204, 123), _FIRST),
    "sched_setattr": ((314, 274), _FIRST),
    "sched_getattr": ((315, 275), _FIRST),
    "setpgid": ((109, 154), _EITHER),
    "getpgid": ((121, 155), _FIRST),
    "getsid": ((124, 156), _FIRST),
    "get_robust_list": ((274, 100), _FIRST),
    # F_SETOWN, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP: whom a signal tells of a descriptor
    "fcntl": ((72, 25), {1: (8, 15)}),
    "ioctl": ((16, 29), {1: (0x8901, 0x8902)}),
    # PR_SCHED_CORE, PR_SET_PTRACER
    "prctl": ((157, 167), {0: (62, 0x59616D61)}),
}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_EPERM = 0x00050001
_ENOSYS = 0x00050026
_EAFNOSUPPORT = 0x00050061
# offsets in struct seccomp_data; arguments take 8 bytes
_NUMBER = 0
_ARCH = 4
_ARGUMENT = 16
# families that end at the namespace's own loopback
_UNIX = 1
_INET = 2
_INET6 = 10
_SPACES = 0x7E020000  # every CLONE_NEW... flag
_X32 = 0x40000000  # on x86_64 a second set of numbers
Line = tuple[int, int, int, int]  # code, value, jump where true, jump where false


def program(machine: str = platform.machine()) -> bytes:
    """The filter for a machine; b"" where its numbers are not known."""
    if machine not in MACHINES:
        return b""
    kind = list(MACHINES).index(machine)
    # jumps are counted from the next line
    lines = [(_LOAD, _ARCH, 0, 0), (_EQUAL, MACHINES[machine], 1, 0), (_RETURN, _EPERM, 0, 0)]
    lines += [(_LOAD, _NUMBER, 0, 0), (_AT_LEAST, _X32, 0, 1), (_RETURN, _EPERM, 0, 0)]
    for numbers in REFUSED.values():
        lines += [(_EQUAL, numbers[kind], 0, 1), (_RETURN, _EPERM, 0, 0)]
    for numbers, refused in ARGUMENTS.values():
        body = _refusals(refused)
        lines += [(_EQUAL, numbers[kind], 0, len(body)), *body]
    lines += [(_EQUAL, _SOCKET[kind], 0, 6), (_LOAD, _ARGUMENT, 0, 0), (_EQUAL, _UNIX, 2, 0)]
    lines += [(_EQUAL, _INET, 1, 0), (_EQUAL, _INET6, 0, 1), (_RETURN, _ALLOW, 0, 0)]
    lines += [(_RETURN, _EAFNOSUPPORT, 0, 0)]
    # its flags lie in memory, which no filter reads; without it libraries take clone
    lines += [(_EQUAL, _CLONE3[kind], 0, 1), (_RETURN, _ENOSYS, 0, 0)]
    lines += [(_EQUAL, _CLONE[kind], 0, 3)]
    lines += [(_LOAD, _ARGUMENT, 0, 0), (_ANY_BIT, _SPACES, 0, 1), (_RETURN, _EPERM, 0, 0)]
    lines += [(_RETURN, _ALLOW, 0, 0)]
    return b"".join(struct.pack("HBBI", code, true, no, value) for code, value, true, no in lines)


def _refusals(refused: Mapping[int, tuple[int, ...]]) -> list[Line]:
    """Refuses by arguments, of which the kernel takes the lower half, and allows the rest."""
    lines: list[Line] = []
    for argument, values in refused.items():
        lines.append((_LOAD, _ARGUMENT + 8 * argument, 0, 0))
        for value in values:
            lines += [(_EQUAL, value, 0, 1), (_RETURN, _EPERM, 0, 0)]
    return [*lines, (_RETURN, _ALLOW, 0, 0)]


TIERS = ("bubblewrap", "none")
INSIDE = Path(__file__).with_name("inside.py")
CELLS = INSIDE.with_name("cells.py")
FILTER = "seccomp"  # among the texts of a worker: the program that bubblewrap loads
MIB = 1 << 20
NOBODY = 65534
_SERIAL = count()
DEVICES = ("null", "zero", "random", "urandom")
PROC_FILES = ("cpuinfo",)  # of the machine's own files in /proc
LINKS = {
    "fd": "/proc/self/fd",
    "shm": "/tmp",  # where the locks of `multiprocessing` are files
    **{name: f"/proc/self/fd/{end}" for end, name in enumerate(("stdin", "stdout", "stderr"))},
}
# A thread of a library per core would count as a process, and book memory.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # a session that is built again iterates its sets in the same order
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Wall:
    """What a worker may have. Workers of equal walls serve each other's calls.

    `packages`: top-level names that are importable inside, read-only, with all that is installed
    beside them; () = the standard library alone. `warm`: modules that are imported once, before
    the first call. `memory` (bytes) is of each process, `file` (bytes) of each file and of all of
    `/tmp`.
    """

    tier: str = "bubblewrap"
    packages: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    memory: int = 512 * MIB
    file: int = 16 * MIB
    processes: int = 16

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ConfigError(f"sandbox: {' or '.join(TIERS)}; got {self.tier!r}")


def advice(reason: str) -> str:
    """One line that says what to type where no wall can be built."""
    return (
        f"what a model writes runs behind bubblewrap, and {reason}; type `make sandbox` (or"
        " `apt-get install bubblewrap`), or `sandbox: none` to run it without any wall"
    )


def facts_of(wall: Wall, folder: str) -> dict[str, Any]:
    """What a worker learns about its wall. `folder` is where it works without one."""
    walled = wall.tier == "bubblewrap"
    sources, path = mounts(wall.packages)
    return {
        "alone": walled,
        "folder": "/tmp" if walled else folder,
        # a number that nobody has: its limit on processes counts this worker alone
        "user": 1_000_000_000 + os.getpid() % (1 << 22) * 128 + next(_SERIAL) % 128
        if walled and os.geteuid() == 0
        else 0,
        "path": path if walled else [source for source, place in sources.items() if place in path],
        "warm": wall.warm,
        "memory": wall.memory,
        "file": wall.file,
        "processes": wall.processes,
    }


def texts(facts: dict[str, Any]) -> dict[str, bytes]:
    """The files that are written for a worker behind a wall, by their place inside, and its FILTER
    where there is one for this machine."""
    size = facts["memory"] // 1024
    meminfo = "".join(f"{name}: {size} kB\n" for name in ("MemTotal", "MemFree", "MemAvailable"))
    number = facts["user"] or NOBODY
    refused = program()
    return {
        **({FILTER: refused} if refused else {}),
        # one line that reads the same as an entry of users and of groups
        "/etc/passwd": f"user:x:{number}:{number}::/tmp:/bin/bash\n".encode(),
        # not from where they lie, which would be told inside
        "/worker/inside.py": INSIDE.read_bytes(),
        "/worker/cells.py": CELLS.read_bytes(),
        # what `ps`, `free` and `uptime` read
        "/proc/meminfo": meminfo.encode(),
        "/proc/loadavg": b"0.00 0.00 0.00 1/1 1\n",
        "/proc/stat": b"cpu  0 0 0 0 0 0 0 0 0 0\nbtime 1\n",
        "/proc/uptime": b"0.00 0.00\n",
    }


def command(wall: Wall, info: int, ends: Mapping[str, int]) -> list[str]:
    """The command line of a worker. `info` is the descriptor to which bubblewrap writes the number
    of the first process inside, `ends` those from which it reads each of `texts`. Raises
    ConfigError where bubblewrap is missing."""
    python = [os.path.realpath(sys.executable), "-s", "-S", "-P"]
    if wall.tier != "bubblewrap":
        return [*python, str(INSIDE)]
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise ConfigError(advice("it is not installed"))
    # root drops its user inside, after the interpreter is read: /root may be closed to others
    power = ["--cap-drop", "ALL"]
    power += (
        [part for cap in ("CAP_SETUID", "CAP_SETGID") for part in ("--cap-add", cap)]
        if os.geteuid() == 0
        else ["--unshare-user", "--uid", f"{NOBODY}", "--gid", f"{NOBODY}"]
    )
    spaces = [f"--unshare-{name}" for name in ("pid", "net", "ipc", "uts", "cgroup-try")]
    environment = [part for pair in ENVIRONMENT.items() for part in ("--setenv", *pair)]
    files = [(place, str(end)) for place, end in ends.items() if place != FILTER]
    # The first process of its namespace cannot be ended from inside, and takes all with it.
    # No --die-with-parent: that parent is a thread, and calls end theirs.
    return [
        *(bwrap, *spaces, *power, "--as-pid-1", "--info-fd", str(info)),
        *(("--seccomp", str(ends[FILTER])) if FILTER in ends else ()),
        *("--clearenv", *environment, "--hostname", "sandbox"),
        # before what is shown: a checkout may lie under /tmp, with its packages
        *("--perms", "1777", "--size", str(wall.file), "--tmpfs", "/tmp"),
        *("--perms", "0755", "--dir", "/etc", "--symlink", "passwd", "/etc/group"),
        *_system(),
        *(part for pair in mounts(wall.packages)[0].items() for part in _mount(*pair)),
        # bubblewrap would make the folder for its first user alone, who is given up inside
        *("--proc", "/proc", *_masks(), "--perms", "0755", "--dir", "/dev"),
        *(part for name in DEVICES for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")),
        *(part for pair in LINKS.items() for part in ("--symlink", pair[1], f"/dev/{pair[0]}")),
        *(
            part
            for place, end in files
            for part in ("--perms", "0444", "--ro-bind-data", end, place)
        ),
        *("--remount-ro", "/", "--chdir", "/tmp", "--", *python, "/worker/inside.py"),
    ]


def _masks() -> list[str]:
    """Hides what /proc tells of the whole machine: a file may not be opened, a folder is empty."""
    parts = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() or entry.name in PROC_FILES or entry.is_symlink():
            continue
        if entry.is_dir():
            parts += ["--perms", "0555", "--tmpfs", entry.path, "--remount-ro", entry.path]
        else:
            parts += ["--ro-bind", "/dev/null", entry.path]  # without the right to use a device
    return parts


def _system() -> list[str]:
    """The interpreter and the libraries that it is linked to."""
    parts = _mount("/usr", "/usr")
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(name):
            parts += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            parts += _mount(name, name)
    # Debian's names for awk and others lead through alternatives
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        parts += ["--ro-bind-try", path, path]
    for home in {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}:
        if not home.startswith("/usr/"):
            parts += _mount(home, home)
    return parts


def _mount(source: str, place: str) -> list[str]:
    """A file or folder, read-only, below folders that everybody may pass through."""
    above = [str(parent) for parent in reversed(Path(place).parents)][1:]
    parts = [part for parent in above for part in ("--perms", "0755", "--dir", parent)]
    return [*parts, "--ro-bind", source, place]


def mounts(names: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """What must be mounted so that these packages can be imported, as {source: place}, and the
    search path inside. Raises ConfigError for one that is not installed."""
    if not names:
        return {}, []
    installed = dict.fromkeys(
        os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")
    )
    there = [folder for folder in installed if os.path.isdir(folder)]
    # not at their places: those may lie under /tmp, which a worker has to find empty after a call
    sources = {folder: f"/site{number}" for number, folder in enumerate(there)}
    for name in names:
        if not str(name).isidentifier():
            raise ConfigError(f"a package is a top-level name, as numpy; got {name!r}")
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        source = places[0] if places else spec.origin if spec is not None else None
        if source is None:
            raise ConfigError(f"the package {name!r} is not installed")
        source = os.path.realpath(source)
        # its own folder alone: beside it may lie anything, such as a checkout with its runs
        if not any(source.startswith(folder + os.sep) for folder in there):
            sources[source] = f"/packages/{os.path.basename(source)}"
    return sources, ["/packages", *(sources[folder] for folder in there)]
