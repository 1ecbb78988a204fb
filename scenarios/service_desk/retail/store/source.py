"""Where the tables come from: a flat folder or a checkout of tau-bench, read once per process.
Nothing of the benchmark is ever imported.

What is missing or damaged is a DataError of one line: the path, how the folder was named, the
field.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.shapes import (
    ShapeError,
    anything,
    flag,
    keyed,
    listed,
    mapping,
    number,
    record,
    text,
    wrong,
)

from gem_ma.kernel.errors import DataError

# As these benchmarks' own loaders call them.
VARIABLE, TAU2_VARIABLE = "TAU_BENCH_PATH", "TAU2_DATA_DIR"
MOST_BYTES = 2**28  # of a packed file when it is unpacked
TABLES = ("users", "orders", "products")
CHECKOUT = Path("tau_bench/envs/retail")
# the folder itself, a checkout, or one of its inner folders
_LAYOUTS = (Path(), CHECKOUT / "data", Path("data"), Path("envs/retail/data"))


def tables_folder(folder: str | Path) -> Path:
    """The folder that holds the three tables. Raises DataError naming what was tried."""
    root = Path(folder).expanduser()
    if not os.path.isdir(root):  # unlike Path.is_dir, it does not raise for a name that is too long
        what = "is not a folder" if os.path.exists(root) else "does not exist"
        raise DataError(
            f"retail data: {root} {what}{naming(folder)}; expected users.json, orders.json and"
            " products.json, or data of tau-bench or tau2-bench"
        )
    for inner in _LAYOUTS:
        if any(os.path.isfile(root / inner / f"{table}.json") for table in TABLES):
            return root / inner
    # One level below: somebody named the parent of several worlds that were written there.
    neighbour = next(
        (
            each
            for pattern in ("*/users.json", "*/tau2/domains/retail/db.json")
            for each in sorted(root.glob(pattern))
        ),
        None,
    )
    hint = f"; did you mean {root / neighbour.relative_to(root).parts[0]}?" if neighbour else ""
    raise DataError(
        f"retail data: {root} holds no users.json that can be read{naming(folder)}, nor"
        f" {CHECKOUT / 'data'}/users.json, nor tau2's db.json{hint}"
    )


def load_tables(folder: str | Path) -> Base:
    """The tables as a shared base. Raises DataError."""
    inner = tables_folder(folder)
    # Path, time and size are the key of the cache: a file that is written anew is read anew.
    stamps = []
    for table in TABLES:
        path = inner / f"{table}.json"
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(
                f"retail data: {path} is missing{naming(folder)} ({error.strerror})"
            ) from error
        stamps.append((str(path), status.st_mtime_ns, status.st_size))
    return _load(tuple(stamps), naming(folder))


@cache
def _load(stamps: tuple[tuple[str, int, int], ...], named: str) -> Base:
    tables = {}
    # What is named is a part of the key too, since it stands in the messages.
    for table, (name, _, _) in zip(TABLES, stamps, strict=True):
        path = Path(name)
        tables[table] = read_json(path, named)
        _check_table(path, tables[table], table, named)
    return Base(tables)


def read_bytes(path: Path, named: str = "") -> bytes:
    """A file. Raises DataError."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):  # a pipe would hang, a device never end
            return path.read_bytes()
    except OSError as error:
        raise DataError(f"retail data: {path} cannot be read{named} ({error.strerror})") from error
    raise DataError(f"retail data: {path} cannot be read{named} (it is not a regular file)")


def digest_of(paths: Iterable[Path], named: str) -> str:
    """SHA-256 over the names and bytes of files. Raises DataError."""
    sha = hashlib.sha256()
    for path in paths:
        sha.update(f"{path.name}\n".encode() + hashlib.sha256(read_bytes(path, named)).digest())
    return sha.hexdigest()


def read_text(path: Path, named: str = "") -> str:
    """A text file in UTF-8, packed by gzip where its name ends in .gz, with or without a mark of
    its encoding, its lines ended by newlines. Raises DataError."""
    data = read_bytes(path, named)
    try:
        if path.suffix == ".gz":
            data = _unpacked(data)
        # A byte order mark is what some editors on Windows write; it would be an odd first key.
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"retail data: {path}: not a gzip file{named}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"retail data: {path}: not UTF-8 at byte {error.start}{named}") from error


def _unpacked(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise OSError(f"it holds more than {MOST_BYTES} bytes")
    return text


def read_json(path: Path, named: str = "") -> Any:
    """A JSON file. Raises DataError with path, line and column."""
    text = read_text(path, named)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"retail data: {path}:{error.lineno}:{error.colno}: not JSON{named}: {error.msg}; is"
            " the file cut short?"
        ) from error
    # JSON may nest deeper than Python recurses, and hold numbers of any length.
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"retail data: {path}: not JSON{named}: {str(error).splitlines()[0]}"
        ) from error


def naming(folder: str | Path) -> str:
    """How the user named the folder, as a part of a message."""
    variable = next(
        (name for name in (VARIABLE, TAU2_VARIABLE) if os.environ.get(name) == str(folder)),
        "scenario.data",
    )
    return f" ({variable}={folder})"


def commit_of(*folders: str | Path) -> str | None:
    """The git commit of the first of these folders that is a checkout; None where none says.

    Only a commit is ever read, and only inside `.git`: what it says lands in a manifest that is
    passed on. So no link is followed, no ref leaves the folder, and a `.git` file (of a
    worktree, whose folder lies elsewhere) says nothing.
    """
    for folder in folders:
        git = Path(folder).expanduser() / ".git"
        head = _inside(git, "HEAD")
        if head is None:
            continue
        ref = _REF.fullmatch(head)
        if ref is None:
            return _commit(head)
        if (found := _commit(_inside(git, ref[1]) or "")) is not None:
            return found
        # Packed refs hold what a fresh clone has no file for.
        packed = (_inside(git, "packed-refs") or "").splitlines()
        return next(
            (_commit(line.split()[0]) for line in packed if line.endswith(f" {ref[1]}")), None
        )
    return None


_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"ref: (refs(?:/[\w@+-][\w.@+-]*)+)")  # no part of it is hidden or leads upwards


def _commit(text: str) -> str | None:
    return text if _COMMIT.fullmatch(text) else None


def _inside(git: Path, name: str) -> str | None:
    """The text of a file of `.git`, stripped; None where it, or a folder on the way to it, is
    missing, a link or no regular file."""
    try:
        parts = [
            git,
            *(git.joinpath(*Path(name).parts[:count]) for count in range(1, len(Path(name).parts))),
        ]
        file = git / name
        # `lstat`, since `stat` would follow the link that must not be followed.
        if not all(stat.S_ISDIR(os.lstat(part).st_mode) for part in parts) or not stat.S_ISREG(
            os.lstat(file).st_mode
        ):
            return None
        return file.read_bytes().decode().strip()
    except (OSError, UnicodeDecodeError):
        return None


# -- shape ---------------------------------------------------------------------------------------

LARGEST = sys.float_info.max  # of a number; nan is not within any bounds


def _number(where: str, value: Any) -> None:
    # Python's JSON reader takes NaN; it is told as it stands there.
    if isinstance(value, (int, float)) and not -LARGEST <= value <= LARGEST:
        raise ShapeError(f"{where}: expected a number, got {repr(value)[:40]}")
    number(where, value)


def _payment_method(where: str, value: Any) -> None:
    method = record(source=text)(where, value)
    if method["source"] == "gift_card":
        record(balance=_number)(where, value)


_RECORDS = {
    "users": record(
        name=record(first_name=text, last_name=text),
        address=record(zip=text),
        email=text,
        payment_methods=keyed(_payment_method),
        orders=listed(anything),
    ),
    "orders": record(
        order_id=text,
        user_id=text,
        address=mapping,
        items=listed(
            record(name=text, product_id=text, item_id=text, price=_number, options=mapping)
        ),
        status=text,
        payment_history=listed(
            record(transaction_type=text, amount=_number, payment_method_id=text)
        ),
    ),
    "products": record(
        name=text,
        product_id=text,
        variants=keyed(record(item_id=text, options=mapping, available=flag, price=_number)),
    ),
}


def _check_table(path: Path, rows: Any, table: str, named: str) -> None:
    """The first fault of a table is told, with its record."""
    try:
        if not isinstance(rows, dict):
            raise wrong("the file", f"an object of {table} by id", rows)
        for key, row in rows.items():
            _RECORDS[table](f"[{json.dumps(key)}]", row)
    except ShapeError as fault:
        raise DataError(f"retail data: {path}{named}: {fault}") from None
