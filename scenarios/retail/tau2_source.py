"""Where typed tables come from: the db.json of a tau2-bench data folder, read once per process;
`source.py` reads those of tau-bench."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from gem_ma.scenarios.retail.source import naming, read_json
from gem_ma.scenarios.retail.tau2 import SHAPES, typed
from gem_ma.scenarios.service.desk.overlay import Base
from gem_ma.scenarios.service.desk.shapes import ShapeError, kind

from gem_ma.errors import DataError

FOLDER = Path("tau2/domains/retail")
# the folder itself, data, a checkout, or inside data
_LAYOUTS = (Path(), FOLDER, Path("data") / FOLDER, Path("domains/retail"), Path("retail"))
FILES = ("db.json", "tasks.json", "split_tasks.json", "policy.md")
_MARKS = ("db.json", "split_tasks.json")  # no folder of tau-bench has one of these


def retail_folder(folder: str | Path) -> Path | None:
    """The folder that holds tau2's retail data, whole or in parts; None where there is none."""
    root = Path(folder).expanduser()
    return next(
        (
            root / inner
            for inner in _LAYOUTS
            for name in _MARKS
            if os.path.isfile(root / inner / name)
        ),
        None,
    )


def is_tau2(folder: str | Path) -> bool:
    """Whether the folder holds retail data of tau2-bench."""
    return retail_folder(folder) is not None


def load_typed(folder: str | Path) -> Base:
    """The typed tables as a shared base, read once per process. Raises DataError."""
    inner, named = retail_folder(folder), naming(folder)
    if inner is None:
        root = Path(folder).expanduser()
        what = (
            "does not exist"
            if not os.path.exists(root)
            else "is not a folder"
            if not os.path.isdir(root)
            else f"holds no {FOLDER / FILES[0]}"
        )
        raise DataError(
            f"retail data: {root} {what}{named}; expected the data folder of tau2-bench, or its"
            f" {FOLDER}"
        )
    try:
        status = (inner / FILES[0]).stat()
    except OSError as error:
        raise DataError(
            f"retail data: {inner / FILES[0]} is missing{named} ({error.strerror})"
        ) from error
    return _load(str(inner / FILES[0]), status.st_mtime_ns, status.st_size, named)


@cache
def _load(name: str, stamp: int, size: int, named: str) -> Base:
    tables = read_json(Path(name), named)
    try:
        if not isinstance(tables, dict):
            raise ShapeError(
                f"the file: expected an object with {', '.join(SHAPES)}, got {kind(tables)}"
            )
        for table in SHAPES:
            if table not in tables:
                raise ShapeError(f"the file: the table {table} is missing")
        return Base({table: typed(table, tables[table]) for table in SHAPES})
    except ShapeError as fault:
        raise DataError(f"retail data: {name}{named}: {fault}") from None
