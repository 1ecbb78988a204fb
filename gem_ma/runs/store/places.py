"""`places.bin` of a large run folder: of each play how it ended, and where its last attempt lies in
the record and its row in the index; columns of one width. Made of the index when a writer closes,
whose stamp has its digest, so that whoever wants a few of a million plays decodes no other.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, sha256
from itertools import accumulate, compress
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from gem_ma.kernel.episode import End
from gem_ma.scores.groups import Id
from gem_ma.scores.rows import Head
from gem_ma.system.files import is_file, read

NAME = "places.bin"
LEAST = 5_000  # plays; the rows of fewer are read in no time
MOST = 1 << 28  # bytes
_ENDS = list(End)
_CODES = {end.value: code for code, end in enumerate(_ENDS)}
# of `Places` in the order of its fields, as `array` has them
_COLUMNS: tuple[Literal["B", "I", "Q"], ...] = ("B", "Q", "I", "I", "Q", "Q")
_WIDTH = sum(array(letter).itemsize for letter in _COLUMNS)
# numbers lie as this machine has them, and ends by their place: elsewhere nobody believes them
_FORM = " ".join(["1", sys.byteorder, str(_WIDTH), *_CODES]).encode()


@dataclass(frozen=True)
class Places:
    """The plays of a record, in the order in which their ids came first; `lines` are numbered from
    0; of `rows`, where they are known, the first byte is told."""

    ends: bytes
    keys: Sequence[Any]  # what `key` makes of their ids
    lines: Sequence[int]
    sizes: Sequence[int]
    starts: Sequence[int]
    rows: Sequence[int] = ()
    key: Callable[[Id], Any] = tuple

    @classmethod
    def of(cls, rows: Sequence[Head]) -> Places:
        """Of all lines of a record."""
        last = {(row.task, row.seed, row.repeat): line for line, row in enumerate(rows)}
        lines = list(last.values())
        sizes = list(map(attrgetter("size"), rows))
        starts = list(accumulate(sizes, initial=0))
        return cls(
            bytes([_CODES[rows[line].end] for line in lines]),
            list(last),
            lines,
            [sizes[line] for line in lines],
            [starts[line] for line in lines],
        )

    def __len__(self) -> int:
        return len(self.ends)

    def ended(self, ends: Iterable[End]) -> list[int]:
        """The plays that ended so."""
        wanted = self._flags(ends)
        return list(compress(range(len(self)), wanted)) if wanted.count(1) else []

    def count(self, ends: Iterable[End]) -> int:
        """How many there are of them."""
        return self._flags(ends).count(1)

    def find(self, id_: Id) -> int | None:
        """Which play has this id."""
        return self._numbers.get(self.key(id_))

    def _flags(self, ends: Iterable[End]) -> bytes:
        wanted = set(ends)
        codes = bytes(code < len(_ENDS) and _ENDS[code] in wanted for code in range(256))
        return self.ends.translate(codes)

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        return dict(zip(self.keys, range(len(self)), strict=True))


def _key(id_: Id) -> int:
    """What stands for an id: of two among a million alike by one chance in ten million."""
    text = "\0".join(map(str, id_)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def packed(rows: Sequence[Head], sizes: Iterable[int]) -> bytes:
    """The columns of all rows of an index, whose lines have these sizes."""
    places = Places.of(rows)
    starts = list(accumulate(sizes, initial=0))
    columns: list[Iterable[int]] = [places.ends, map(_key, places.keys), places.lines]
    columns += [places.sizes, places.starts, [starts[line] for line in places.lines]]
    made = (array(letter, column) for letter, column in zip(_COLUMNS, columns, strict=True))
    return b"".join(column.tobytes() for column in made)


def digest_of(data: bytes) -> str:
    """What a stamp says of these columns."""
    digest = sha256(_FORM)
    digest.update(data)
    return digest.hexdigest()


def load_places(path: Path, digest: str) -> Places | None:
    """Those of a run folder where they are what its stamp says, else None."""
    file = path / NAME
    if not digest or not is_file(file, path) or os.lstat(file).st_size > MOST:
        return None
    data = read(file, path, MOST)
    if digest_of(data) != digest:
        return None
    count = len(data) // _WIDTH
    columns: list[Sequence[int]] = []
    start = 0
    for letter in _COLUMNS:
        end = start + count * array(letter).itemsize
        columns.append(memoryview(data)[start:end].cast(letter))
        start = end
    _, keys, lines, sizes, starts, rows = columns
    return Places(data[:count], keys, lines, sizes, starts, rows, _key)
