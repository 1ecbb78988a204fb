"""Rows of a data set, for scenarios that ask what stands in a file: where they come from, and which
of them are held out. What the columns mean is the scenario's business.

Sources: a file (JSONL, JSON, CSV, TSV, each also with .gz; parquet), files by split, the id of a
data set of the Hugging Face hub, or a folder that its library wrote or opens. Readers of other
libraries are imported when they are used.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from gem_ma import ConfigError, Episode, Scenario
from gem_ma.kernel.errors import DataError
from gem_ma.system.extras import install
from gem_ma.system.folders import read_named

SPLITS = ("train", "dev", "test")
_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_HUB_SPLITS = {"train": "train", "validation": "dev", "dev": "dev", "test": "test"}
_NO_HUB = "no such file, and the hub does not give it"
MOST_BYTES = 1 << 30  # of a file, unpacked too
MOST_FILES = 10_000  # of a folder that are looked at

T = TypeVar("T")
Columns = dict[str, Any]
Data = str | Mapping[str, str]


def read(data: Data, what: str) -> tuple[dict[str, list[Columns]], str]:
    """({split: rows}, digest) of what a config names; the split is "" where all rows are in one
    file. `what`: the scenario, in messages. Raises ConfigError, DataError."""
    if isinstance(data, Mapping):
        if not data or not data.keys() <= set(SPLITS):
            raise ConfigError(
                f"{what}.data: a file, or files by split ({', '.join(SPLITS)}); got"
                f" {', '.join(map(str, data)) or 'none'}"
            )
        parts = {split: _file(str(path), what) for split, path in data.items()}
        digest = sha256("".join(part[1] for part in parts.values()).encode()).hexdigest()
        return {split: part[0] for split, part in parts.items()}, digest
    if not isinstance(data, str):
        raise ConfigError(f"{what}.data: a file, files by split, or an id of the hub; got {data!r}")
    if not os.path.exists(data) and _suffix(data) not in _FILES and data.count("/") == 1:
        return _hub(data, what)
    folder = Path(data).expanduser()
    if folder.is_dir():
        return _hub(str(folder), what, _stamp(folder))
    if "://" in data:
        known = "a file, a folder, or an id of the hub as owner/name"
        raise DataError(f"{what}: {data}: no address is read; fetch it first ({known})")
    rows, digest = _file(data, what)
    return {"": rows}, digest


def _stamp(folder: Path) -> int:
    """When the newest of its files was written: what is written anew is read anew, as a file is."""
    newest = 0
    for file in islice(folder.rglob("*"), MOST_FILES):
        # a link may lead nowhere, and a folder may be another user's
        with suppress(OSError):
            newest = max(newest, file.stat().st_mtime_ns)
    return newest


def _suffix(path: str) -> str:
    return Path(path.removesuffix(".gz")).suffix.lower()


def _file(path: str, what: str) -> tuple[list[Columns], str]:
    try:
        status = os.stat(Path(path).expanduser())
    except (OSError, ValueError) as error:
        raise DataError(f"{what}: {path}: cannot be read ({error})") from error
    # time and size are part of the key: a file that is written anew is read anew
    return _read_file(str(Path(path).expanduser()), what, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read_file(path: str, what: str, *stamp: int) -> tuple[list[Columns], str]:
    kind = _suffix(path)
    if kind not in _FILES:
        known = ", ".join(_FILES)
        raise DataError(f"{what}: {path}: its name ends on none of {known}, nor on one with .gz")
    try:
        content = read_named(Path(path), MOST_BYTES)
        digest = sha256(content).hexdigest()
        if path.endswith(".gz"):
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DataError(f"{what}: {path}: larger than {MOST_BYTES} bytes")
        rows = _parquet(content, what) if kind == ".parquet" else _READERS[kind](content)
    except (OSError, EOFError, ValueError, RecursionError, csv.Error) as error:
        if isinstance(error, (ConfigError, DataError)):
            raise
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{what}: {path}: {words}") from error
    if not rows:
        raise DataError(f"{what}: {path}: holds no rows")
    return rows, digest


def _lines(content: bytes) -> list[Columns]:
    rows = []
    # split at newlines alone: JSON may hold other separators of lines as they are
    for number, line in enumerate(content.decode("utf-8-sig").split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"line {number}: an object with columns is wanted")
            rows.append(row)
    return rows


def _json(content: bytes) -> list[Columns]:
    value = json.loads(content.decode("utf-8-sig"))
    # some keep their rows under one key
    lists = [value] if isinstance(value, list) else [*getattr(value, "values", list)()]
    lists = [rows for rows in lists if isinstance(rows, list)]
    if len(lists) != 1 or not all(isinstance(row, dict) for row in lists[0]):
        raise ValueError("a list of objects is wanted")
    return list(lists[0])


def _table(content: bytes, delimiter: str = ",") -> list[Columns]:
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    # a field may be as long as the file; the limit is the process's own, and put back
    before = csv.field_size_limit(MOST_BYTES)
    try:
        return [dict(row) for row in csv.DictReader(text, delimiter=delimiter)]
    finally:
        csv.field_size_limit(before)


_READERS: dict[str, Callable[[bytes], list[Columns]]] = {
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".json": _json,
    ".csv": _table,
    ".tsv": lambda content: _table(content, "\t"),
}


def _parquet(content: bytes, what: str) -> list[Columns]:
    # of these bytes, whose digest is recorded: the file may be another one by now
    table = _library("pyarrow.parquet", "parquet", what).read_table(io.BytesIO(content))
    return list(table.to_pylist())


def _library(module: str, extra: str, what: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{what}.data: there is no module {module.partition('.')[0]!r}; type {install(extra)}"
        ) from error


@lru_cache(maxsize=4)
def _hub(name: str, what: str, *stamp: int) -> tuple[dict[str, list[Columns]], str]:
    """A data set of the hub, or of its cache where the machine is offline; of a folder where its
    stamp is there."""
    library = _library("datasets", "datasets", what)
    fault = "a folder that datasets does not open" if stamp else _NO_HUB
    try:
        loaded = _opened(library, name, is_folder=bool(stamp))
    except Exception as error:  # of the library, of the network, of its script
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{what}: {name}: {fault} ({words})") from error
    splits: dict[str, list[Columns]] = {}
    for key, rows in loaded.items():
        if key in _HUB_SPLITS:
            splits.setdefault(_HUB_SPLITS[key], []).extend(map(dict, rows))
    # a data set of one part, whatever it is called, is split by our own rule
    if len(loaded) == 1:
        splits = {"": list(map(dict, next(iter(loaded.values()))))}
    text = json.dumps(splits, sort_keys=True, default=str)
    return splits, sha256(text.encode()).hexdigest()


def _opened(library: Any, name: str, *, is_folder: bool) -> Mapping[str, Any]:
    """{split: its rows}."""
    path, _, subset = (name, "", "") if is_folder else name.partition(":")
    # files of `Dataset.save_to_disk` and of `DatasetDict.save_to_disk`, which only one call reads
    saved = [Path(path, made) for made in ("state.json", "dataset_dict.json")]
    if not (is_folder and any(file.is_file() for file in saved)):
        splits: Mapping[str, Any] = library.load_dataset(path, subset or None)
        return splits
    loaded = library.load_from_disk(path)
    return loaded if isinstance(loaded, Mapping) else {"train": loaded}


class OfRows(Scenario):
    """A scenario of tasks made of rows. What stands here without a value its `__init__` sets."""

    what: str  # its name, in messages
    asked: str  # the field of a task that says what is asked
    own = "our own tasks"
    own_file = ""  # which of them is played where no data is named
    data: Data
    share: float  # of the rows that are held out for `test`
    shuffle: int | None

    made_of: Callable[..., Any]  # of (a row, where it stands, *self.options()) its task

    def options(self) -> tuple[Any, ...]:
        return ()

    def digest(self) -> str:
        return read(self.data, self.what)[1]

    def splits(self) -> Mapping[str, Sequence[Any]]:
        digest = self.digest()  # first, since it says what is wrong with the data
        data = self.data if isinstance(self.data, str) else tuple(self.data.items())
        makes = (self.made_of, self.options(), self.asked)
        return _splits(data, digest, self.what, *makes, self.share, self.shuffle)

    def tasks(self, split: str) -> Sequence[Any]:
        """A split's tasks, shuffled by `shuffle`; `all` are those of all splits."""
        splits = self.splits()
        if split == "all":
            return [task for name in SPLITS for task in splits[name]]
        if split not in splits:
            raise ConfigError(
                f"{self.what}: no split {split!r}; there are {', '.join(SPLITS)}, all"
            )
        return splits[split]

    def provenance(self) -> dict[str, Any]:
        names = self.data if isinstance(self.data, str) else dict(self.data)
        own = not names or names == self.own_file
        return {"name": self.own if own else names, "digest": self.digest()}


def first_try(episode: Episode, why: str) -> Mapping[str, float | None]:
    """`attempts`, and how often the first one was right: was paid for `why`."""
    right = any(pay.why == why for pay in episode.ledger)
    tries = len({turn.step for turn in episode.turns})
    return {"attempts": tries, "first try": float(right and tries == 1)} if tries else {}


@lru_cache(maxsize=8)
def _splits(
    data: Any,
    digest: str,  # of the data: a file that is written anew is another one
    what: str,
    made_of: Callable[..., Any],
    options: tuple[Any, ...],
    asked: str,
    share: float,
    shuffle: int | None,
) -> dict[str, list[Any]]:
    rows = read(data if isinstance(data, str) else dict(data), what)[0]
    name = data if isinstance(data, str) else "its file"
    made = {
        split: [
            made_of(row, f"{what}: {name}: {split or 'row'} {number}", *options)
            for number, row in enumerate(several, 1)
        ]
        for split, several in rows.items()
    }
    if "" in made:
        places = held_out([getattr(task, asked) for task in made[""]], share)
        made = {split: [made[""][at] for at in each] for split, each in places.items()}
    return {split: in_order(made.get(split, []), shuffle) for split in SPLITS}


def held_out(keys: Sequence[str], share: float) -> dict[str, list[int]]:
    """The rows of each split, by a digest of what is asked: a row keeps its split whatever stands
    around it, and the same question is never in two. `share` of them are for `test`, half as many
    for `dev`."""
    splits: dict[str, list[int]] = {split: [] for split in SPLITS}
    for index, key in enumerate(keys):
        place = int.from_bytes(sha256(key.encode("utf-8", "replace")).digest()[:6], "big") / 2**48
        later = "dev" if share <= place < min(1.0, 1.5 * share) else "train"
        splits["test" if place < share else later].append(index)
    return splits


def in_order(items: Sequence[T], seed: int | None) -> list[T]:
    """Shuffled by a seed; as they stand in the file without one."""
    order = list(items)
    if seed is not None:
        random.Random(seed).shuffle(order)
    return order
