"""SHA-256 of what lies at a path, a file or a folder: of its bytes, whatever its times say."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path

MOST_HASHED = 4 << 30  # bytes; of a folder with more only sizes and beginnings of further files
_BEGINNING = 1 << 20


def digest_of(path: str | Path) -> str | None:
    """SHA-256 of the bytes of a file, or of the names and bytes of all files in a folder (hidden
    ones and `__pycache__` left out); None where neither is there, or it cannot be read."""
    try:
        if os.path.isdir(path):
            return _of_folder(str(path))
        return _of_file(str(path))
    except (OSError, ValueError):
        return None


def _of_file(path: str, most: int = MOST_HASHED) -> str:
    # a pipe would hang: what is not a regular file is opened without waiting, and not read
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path}: is no regular file")
        digest = sha256()
        while most > 0 and (block := file.read(min(1 << 20, most))):
            digest.update(block)
            most -= len(block)
        return digest.hexdigest()


def _of_folder(folder: str) -> str:
    digest = sha256()
    room = MOST_HASHED
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != "." and name != "__pycache__")
        for name in sorted(name for name in names if name[0] != "."):
            path = os.path.join(place, name)
            if not os.path.isfile(path):
                continue
            size = os.path.getsize(path)
            room -= size
            inside = _of_file(path, size + 1 if room >= 0 else _BEGINNING)
            line = f"{os.path.relpath(path, folder)}\0{size}\0{inside}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
