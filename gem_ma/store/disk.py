"""Files that survive a kill: synced writes, replacement in one step, one writer per folder. It knows nothing of what is written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gem_ma.errors import StoreError


@contextlib.contextmanager
def oserror(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses into a StoreError of one line."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{error.filename or path}: {error.strerror or error}") from error


def write_synced(path: Path, data: bytes) -> None:
    """Writes a new file and waits for the disk."""
    with open(path, "wb") as target:
        target.write(data)
        target.flush()
        os.fsync(target.fileno())


def sync_folder(path: Path) -> None:
    """Waits until names created in or moved into the folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def hold_folder(path: Path) -> Iterator[Path]:
    """Makes a folder and keeps other writers out of it. Raises StoreError where another process holds it, or the disk refuses."""
    with oserror(path):
        path.mkdir(parents=True, exist_ok=True)
    lock = take_lock(path)
    try:
        yield path
    finally:
        os.close(lock)


def write_file(path: Path, text: str) -> None:
    """Replaces a text file in one step, on the disk when this returns."""
    with oserror(path):
        replace_file(path, text.encode("utf-8", "backslashreplace"))


def media_file(folder: Path, digest: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise StoreError(f"{digest!r} is no SHA-256 digest of an image")
    return folder / "media" / digest


def take_lock(path: Path) -> int:
    import fcntl

    with oserror(path / ".lock"):
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StoreError(f"{path}: in use by {holder}; wait until it ends, or stop it") from None
        raise StoreError(f"{path / '.lock'}: cannot be locked: {error.strerror}; put the run folder on a file system with locks") from error
    with oserror(path / ".lock"):
        try:
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "start": now()})
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


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
        number = next(n for n in range(1, 10**6) if not whole.with_name(f"{whole.name}.old-{n}").exists())
        whole.rename(whole.with_name(f"{whole.name}.old-{number}"))
        sync_folder(whole.parent)
        path.mkdir(parents=True)
    taken = take_lock(path)
    os.close(lock)
    return taken


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
