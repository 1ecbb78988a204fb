"""A task for a shell: its words, the files that it begins with, and the script that checks it.

Read from a row (`instruction, files, check`, and `run`, `solution` where they are there), or from a
folder with one folder for each task: `instruction.md`, `files/`, `check.sh`, `run.sh`,
`solution.sh`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.system.folders import read_named
from gem_ma.tools.shell import MOST_FILES, File, files_of
from gem_ma.tools.walls import MIB, Wall

WRITTEN = 1_735_689_600  # the time that files of a row bear: a new year's night
MOST_NAME = 255  # bytes of a file's name, on Linux
PARTS = {"instruction": "instruction.md", "check": "check.sh"}
MAY = {"run": "run.sh", "solution": "solution.sh"}


@dataclass(frozen=True, slots=True)
class Chore:
    """`check` exits with 0 where the task is done. `run` goes before it, for what executes files
    that the solver wrote: nothing of it is alive when the check runs. `solution`: commands."""

    name: str
    instruction: str
    files: Mapping[str, File]
    check: str
    run: str = ""
    solution: tuple[str, ...] = ()


def file_of(content: str | bytes) -> File:
    """A file with this content; a script is executable."""
    data = content.encode() if isinstance(content, str) else content
    return (0o755 if data.startswith(b"#!") else 0o644, WRITTEN, data)


def task_of_row(row: Mapping[str, Any], where: str, wall: Wall) -> Chore:
    """The task of a row. Raises DataError with `where`, also where its files are more than the
    wall allows."""
    texts = {name: row.get(name) for name in (*PARTS, *MAY) if name != "solution"}
    for name, text in texts.items():
        needed = name in PARTS
        if not isinstance(text, str if needed else (str, type(None))) or (needed and not text):
            raise DataError(f"{where}: no text in the column {name}; it has {', '.join(row)}")
        if "\0" in (text or ""):
            raise DataError(f"{where}: {name} holds a NUL byte, which no bash reads")
    files = _files(row.get("files") or {}, where)
    size = sum(len(file[2]) for file in files.values())
    if size > wall.file // 2 or len(files) > MOST_FILES:
        raise DataError(
            f"{where}: its {len(files)} files take {size / MIB:.1f} MiB; a session begins with at"
            f" most {MOST_FILES} files and {wall.file // 2 / MIB:g} MiB, half of limits.disk_mb"
        )
    solution = row.get("solution") or ()
    solution = (solution,) if isinstance(solution, str) else solution
    if not (isinstance(solution, (list, tuple)) and all(isinstance(c, str) for c in solution)):
        raise DataError(f"{where}: a solution is a command, or a list of commands")
    name = str(row.get("name") or row.get("task_id") or where.rpartition(" ")[2])
    instruction, check, run = (texts[key] or "" for key in ("instruction", "check", "run"))
    return Chore(name, instruction, files, check, run, tuple(solution))


def _length(name: str) -> float:
    """Bytes of a file's name; infinite where it has none."""
    try:
        return len(os.fsencode(name))
    except UnicodeEncodeError:
        return math.inf


def _files(named: Any, where: str) -> dict[str, File]:
    if not isinstance(named, Mapping):
        raise DataError(f"{where}: files are an object, path: text")
    files = {}
    for path, content in named.items():
        parts = PurePosixPath(path).parts
        plain = path and "/".join(parts) == path and ".." not in parts and "\0" not in path
        if not plain or max(map(_length, parts), default=0) > MOST_NAME:
            raise DataError(f"{where}: {path!r} is not a path below the session's home")
        try:
            files[path] = content if isinstance(content, tuple) else file_of(content)
        except (AttributeError, TypeError, UnicodeEncodeError) as error:
            raise DataError(f"{where}: {path}: the content of a file is a text") from error
    clash = [path for path in files if any(str(up) in files for up in PurePosixPath(path).parents)]
    if clash:
        raise DataError(f"{where}: {clash[0]} lies below a file")
    return files


def rows_of_folder(folder: Path, wall: Wall) -> tuple[list[dict[str, Any]], str]:
    """The tasks of a folder as rows, and their digest. Raises DataError."""
    rows: list[dict[str, Any]] = []
    digest = sha256()
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        row: dict[str, Any] = {"name": place.name, "files": {}}
        try:
            for key, name in {**PARTS, **MAY}.items():
                if key in PARTS or (place / name).is_file():
                    row[key] = read_named(place / name).decode()
            if (place / "files").is_dir():
                row["files"] = files_of(place / "files", wall)
        except (OSError, ValueError, ConfigError) as error:
            raise DataError(f"terminal: {place}: {error}") from error
        content = {path: (file[0], file[2]) for path, file in row["files"].items()}
        digest.update(repr({**row, "files": content}).encode())
        rows.append(row)
    if not rows:
        raise DataError(f"terminal: {folder} holds no folder of a task")
    return rows, digest.hexdigest()
