"""Files that the viewer keeps beside a run's record: a JSON object a line, only ever added to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from gem_ma.kernel.errors import StoreError
from gem_ma.record.json_text import dump_json, load_json
from gem_ma.system import files

Entry = TypeVar("Entry")


def read_rows(
    path: Path, make: Callable[[Any], Entry], warn: Callable[[str], None]
) -> Iterator[Entry]:
    """What `make` makes of each line; nothing where there is no such file. A line that is damaged
    is passed over, and `warn` is told file and line."""
    try:
        if not files.is_file(path, path.parent):
            return
        with files.oserror(path), files.stream(path, path.parent) as opened:
            for number, line in enumerate(files.lines(opened, path), start=1):
                try:
                    yield _made(f"{path}: line {number}", line, make)
                except StoreError as error:
                    # without an end its writer was stopped, and nobody was told that it is kept
                    if line.endswith(b"\n"):
                        warn(f"{error}; mend or remove the line, the others are read")
    except StoreError as error:
        warn(str(error))


def _made(where: str, line: bytes, make: Callable[[Any], Entry]) -> Entry:
    try:
        with files.damage(Path(where)):
            return make(load_json(line))
    except StoreError as error:
        told = str(error)
        raise StoreError(told if told.startswith(where) else f"{where}: {told}") from None


def add_row(path: Path, row: Any) -> None:
    """Adds a line behind all others. One that its writer did not end is taken away, unless it is
    whole: an editor may have dropped its end. Raises StoreError."""
    data = dump_json(row).encode() + b"\n"
    with files.oserror(path):
        if torn := _torn(path):
            try:
                load_json(torn)
                data = b"\n" + data
            except (StoreError, ValueError):
                files.shorten(path, len(torn), path.parent)
        files.append(path, data, path.parent)


def _torn(path: Path) -> bytes:
    """What stands behind the last end of a line."""
    last = b""
    if files.is_file(path, path.parent):
        with files.stream(path, path.parent) as opened:
            for line in files.lines(opened, path):
                last = line
    return b"" if last.endswith(b"\n") else last
