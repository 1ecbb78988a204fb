"""Files that survive a kill: synced writes, replacement in one step, one writer per folder. It
knows nothing of what is written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.system.files import make_folder, open_file, oserror, replace_file, sync_folder
from gem_ma.system.folders import check_run

# seconds that a lock may outlive the process that took it
PATIENCE = 2.0


@contextlib.contextmanager
def hold_folder(path: Path) -> Iterator[Path]:
    """Makes a folder of a study and keeps other writers out of it. Raises StoreError where another
    process holds it, or the disk refuses, ConfigError where it is the folder of a run."""
    make_folder(path, path)
    if os.path.lexists(path / "manifest.json"):
        raise another_kind(path, "run")
    # before the lock, whose file a link could lead elsewhere
    check_run(path)
    lock = take_lock(path)
    try:
        yield path
    finally:
        os.close(lock)


def another_kind(path: Path, what: str) -> ConfigError:
    """Why a folder is not written into: a run and a study have a config, a page and a lock that are
    called alike."""
    return ConfigError(f"{path}: the folder of a {what}; choose another one with --out FOLDER")


def write_file(path: Path, text: str) -> None:
    """Replaces a text file in one step, on the disk when this returns."""
    with oserror(path):
        # anything that is not text is escaped: a name from a foreign disk may hold anything
        replace_file(path, text.encode("utf-8", "backslashreplace"), path.parent)


def media_file(folder: Path, digest: str) -> Path:
    # a record may come from anybody, and a digest of ../../x would leave the folder
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise StoreError(f"{digest!r} is no SHA-256 digest of an image")
    return folder / "media" / digest


def take_lock(path: Path) -> int:
    with oserror(path / ".lock"):
        descriptor = open_file(path / ".lock", os.O_RDWR | os.O_CREAT, path)
    try:
        _lock(descriptor)
    except OSError as error:
        # read from the open lock: its file may be replaced meanwhile
        holder = _holder(descriptor)
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StoreError(
                f"{path}: in use by {holder}; wait until it ends, or stop it"
            ) from None
        raise StoreError(
            f"{path / '.lock'}: cannot be locked: {error.strerror}; put the run folder on a file"
            " system with locks"
        ) from error
    with oserror(path / ".lock"):
        try:
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "start": now()})
            # who holds it is a help for people; the lock itself is the kernel's
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def _lock(descriptor: int) -> None:
    # late: Windows has none, and reading needs none
    patience = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not _left_behind(descriptor) or time.monotonic() > patience:
                raise
        time.sleep(0.01)


def _left_behind(descriptor: int) -> bool:
    """Whether the process that took the lock is dead. What holds it then is a command that it was
    about to start: a fork has its files for the milliseconds until it becomes that command."""
    try:
        who = json.loads(os.pread(descriptor, 1000, 0))
        if who["host"] == socket.gethostname():
            os.kill(int(who["pid"]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        pass
    return False


def _holder(descriptor: int) -> str:
    try:
        who = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {who['pid']} on host {who['host']} since {who['start']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"


def move_aside(path: Path, lock: int) -> int:
    """Renames the folder to `<name>.old-<n>`, makes an empty one and gives its lock."""
    with oserror(path):
        whole = path.resolve()
        # `exists` on the resolved path: the folder may have been named by a link
        number = next(
            n for n in range(1, 10**6) if not whole.with_name(f"{whole.name}.old-{n}").exists()
        )
        whole.rename(whole.with_name(f"{whole.name}.old-{number}"))
        sync_folder(whole.parent)
        path.mkdir(parents=True)
    # the old lock is held until the new folder is ours
    taken = take_lock(path)
    os.close(lock)
    return taken


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
