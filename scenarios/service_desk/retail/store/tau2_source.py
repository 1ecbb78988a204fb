"""Where typed tables come from: the db.json of a tau2-bench data folder, or the db.json.gz of the
wheel of inspect-evals, read once per process; `source.py` reads those of tau-bench."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.shapes import ShapeError, kind
from gem_ma.scenarios.service_desk.retail.store.source import naming, read_json
from gem_ma.scenarios.service_desk.retail.store.tau2 import SHAPES, typed

from gem_ma.kernel.errors import DataError

FOLDER = Path("tau2/domains/retail")
# the folder itself, data, a checkout, or inside data
_LAYOUTS = (Path(), FOLDER, Path("data") / FOLDER, Path("domains/retail"), Path("retail"))
FILES = ("db.json", "tasks.json", "split_tasks.json", "policy.md")
# as the wheel of inspect-evals has them
OTHER_NAMES = {"db.json": "db.json.gz", "policy.md": "policy.txt"}
# no folder of tau-bench has one of these
_MARKS = ("db.json", "db.json.gz", "split_tasks.json")


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


def file_in(inner: Path, name: str) -> Path:
    """Where a file of `FILES` lies in a folder, under its own name or the wheel's."""
    other = inner / OTHER_NAMES.get(name, name)
    return inner / name if os.path.isfile(inner / name) or not os.path.isfile(other) else other


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
    path = file_in(inner, FILES[0])
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"retail data: {path} is missing{named} ({error.strerror})") from error
    return _load(str(path), status.st_mtime_ns, status.st_size, named)


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
