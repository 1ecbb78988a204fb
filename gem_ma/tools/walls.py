"""The wall around what a model wrote: the command line that starts a worker behind it, and whether
this machine can build one. Workers themselves: `gem_ma.tools.sandbox`.

The default tier is bubblewrap: namespaces of its own (processes, network, mounts, IPC), an empty
file system with the interpreter read-only in it and a small `/tmp`, a `/proc` of its own processes
alone, no environment, no capabilities, a user that owns nothing, and limits on size and number of
everything.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.tools.syscalls import program

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
