"""`index.jsonl` of a run folder: a row (`gem_ma.scores.rows`) for each line of episodes.jsonl, in
its order. All of it is derived: deleting it loses nothing, and what does not fit the record is made
anew.

When a writer closes, a stamp follows as the last line: what episodes.jsonl was then, and whether
summary.json was what all of its plays come to. Where the file is still the same, readers believe
both without reading it; else each line is compared with the digest in its row.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gem_ma.runs.store import places
from gem_ma.scores.groups import Id
from gem_ma.scores.rows import Brief, Head, Kind, PlayRow
from gem_ma.system.files import MOST_LINE, is_file, open_file, oserror, replace_file, stream
from gem_ma.system.parts import RECORD, Part, open_parts, parts_of, size_of

NAME = "index.jsonl"
EPISODES = RECORD
FORM = 1  # of rows, and of the summaries that are made of them: another one is not believed
_END = 1 << 20  # bytes at both ends of the record that a stamp has digests of
_BLOCK = 1 << 18  # so many bytes of rows stay in a processor's cache until they are columns
_RACE_NS = 20_000_000  # a file may be written twice within one tick of the clock
_ENCODER = msgspec.json.Encoder()
Made = TypeVar("Made")


State = tuple[int, int, int, int]


class Stamp(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a record was, and its index, when a writer closed them."""

    form: int
    size: int  # of the record, all parts together; times and inode of the last one
    mtime: int
    ctime: int
    inode: int
    ends: str  # digest of its first and its last MB
    rows: int
    digest: str  # of the rows
    summary: str  # digest of summary.json, "" where plays were added since it was written
    of_all: bool  # whether that is what the plays of the folder come to
    places: str = ""  # digest of places.bin, "" where the run is small
    whole: bool = False  # whether each of its rows says more than how its play ended
    parts: list[State] = []  # bytes, times and inode of each part that is closed


_STAMPS = msgspec.json.Decoder(Stamp)
_ROWS = msgspec.json.Decoder(PlayRow)


def written(rows: Iterable[Head]) -> bytes:
    """The lines of these rows."""
    return b"".join([_ENCODER.encode(row) + b"\n" for row in rows])


@contextmanager
def uncollected() -> Iterator[None]:
    """Looks for no garbage meanwhile: among many rows that are made to be kept there is none, and
    to look through them again and again takes as long as to make them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# -- the stamp -------------------------------------------------------------------------------------


def read_stamp(path: Path) -> tuple[Stamp, int] | None:
    """The stamp of a folder's index, and the byte where its rows end; None where it has none, as
    while a writer is at work and after it was killed."""
    if not is_file(path / NAME, path):
        return None
    with oserror(path / NAME), stream(path / NAME, path) as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - 4096)
        file.seek(start)
        tail = file.read()
    if not tail.endswith(b"\n"):
        return None
    place = tail.rfind(b"\n", 0, -1) + 1
    try:
        stamp = _STAMPS.decode(tail[place:])
    except msgspec.MsgspecError:
        return None
    # without a line before it, it must be the whole file
    return (stamp, start + place) if stamp.form == FORM and (place or not start) else None


def fits(stamp: Stamp, path: Path) -> bool:
    """Whether the record of a folder is what it was, by all that can be told without reading
    it."""
    file = path / EPISODES
    if not is_file(file, path):
        return False
    with oserror(file):
        parts = parts_of(file, path)
        was = stamp.size, stamp.parts, (stamp.mtime, stamp.ctime, stamp.inode)
        if was != _told(parts):
            return False
        with open_parts(file, path) as opened:
            return _ends(opened, stamp.size) == stamp.ends


def _told(parts: Sequence[Part]) -> tuple[int, list[State], tuple[int, int, int]]:
    """Bytes of the record, the states of its closed parts, times and inode of the last one."""
    *closed, last = [part.state for part in parts]
    return sum(part.size for part in parts), closed, last[1:]


def _ends(file: Any, size: int) -> str:
    digest = sha256(file.read(_END))
    if size > _END:
        file.seek(max(_END, size - _END))
        digest.update(file.read(_END))
    return digest.hexdigest()


def _stamp(
    path: Path, rows: int, digest: str, summary: tuple[str, bool], columns: tuple[str, bool]
) -> Stamp:
    file = path / EPISODES
    size, closed, times = _told(parts_of(file, path))
    # what is changed within the same tick is not seen by its time, nor in the middle otherwise
    if size > 2 * _END:
        left = times[1] + _RACE_NS - time.time_ns()
        time.sleep(min(max(0, left), _RACE_NS) / 1e9)
    with open_parts(file, path) as opened:
        ends = _ends(opened, size)
    return Stamp(FORM, size, *times, ends, rows, digest, *summary, *columns, closed)


# -- reading ---------------------------------------------------------------------------------------


def load_rows(
    path: Path, kind: type[Kind], most: int, see: Callable[[bytes], object] = len
) -> tuple[list[Kind], str]:
    """The rows of a folder's index up to the first line that is not a row, and the digest of their
    bytes, blocks of which are handed to `see`. `most`: bytes of the record; a far larger file is
    not an index of it."""
    rows: list[Kind] = []
    digest = sha256()
    if not is_file(path / NAME, path) or os.lstat(path / NAME).st_size > 4 * most + (1 << 20):
        return rows, digest.hexdigest()
    decoder = msgspec.json.Decoder(kind)
    with uncollected(), oserror(path / NAME), stream(path / NAME, path, through=True) as file:
        for block in _whole_lines(file):
            try:
                more = decoder.decode_lines(block)
                known = block
            except (msgspec.MsgspecError, UnicodeDecodeError):
                more, known = _leading(block, decoder)
            rows += more
            digest.update(known)
            see(known)
            if len(known) < len(block):
                break
    return rows, digest.hexdigest()


def _whole_lines(file: Any, end: int = sys.maxsize) -> Iterator[bytes]:
    """Blocks of whole lines, up to this byte."""
    left = b""
    while block := file.read(min(_BLOCK, end)):
        end -= len(block)
        cut = block.rfind(b"\n") + 1
        if not cut:
            left += block
            continue
        yield left + block[:cut]
        left = block[cut:]


def _leading(block: bytes, decoder: msgspec.json.Decoder[Kind]) -> tuple[list[Kind], bytes]:
    """The rows up to the first line that is not a row, and their bytes."""
    rows: list[Kind] = []
    size = 0
    for line in block.splitlines(keepends=True):
        try:
            rows.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            break
        size += len(line)
    return rows, block[:size]


def map_rows(
    path: Path, stamp: Stamp, end: int, make: Callable[[bytes], Made]
) -> list[Made] | None:
    """What is made of each block of the rows, which end at this byte; None where they are not
    those of the stamp."""
    made: list[Made] = []
    digest = sha256()
    if end > 4 * stamp.size + (1 << 20):  # far larger than an index of it
        return None
    with uncollected(), oserror(path / NAME), stream(path / NAME, path, through=True) as file:
        for block in _whole_lines(file, end):
            digest.update(block)
            try:
                made.append(make(block))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return None
    return made if digest.hexdigest() == stamp.digest else None


def holds(path: Path, stamp: Stamp, end: int) -> bool:
    """Whether the rows, which end at this byte, are those of the stamp."""
    return map_rows(path, stamp, end, len) is not None


class PlacedRows(Mapping[Id, PlayRow]):
    """The rows of a large run that has not changed, each read where it is asked for; `read` gives
    all of them."""

    def __init__(
        self, path: Path, found: places.Places, read: Callable[[], Mapping[Id, PlayRow]]
    ) -> None:
        self._path = path
        self._places = found
        self._read = read

    def __getitem__(self, id_: Id) -> PlayRow:
        play = self._places.find(id_)
        if play is None:
            raise KeyError(id_)
        file = self._path / NAME
        with oserror(file), stream(file, self._path) as opened:
            opened.seek(self._places.rows[play])
            line = opened.readline(MOST_LINE)
        row = _ROWS.decode(line)
        return row if row.id == id_ else self._all[id_]  # another id has this key

    def __iter__(self) -> Iterator[Id]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._places)

    @cached_property
    def _all(self) -> Mapping[Id, PlayRow]:
        return self._read()


def _measure(sizes: array[int], block: bytes) -> None:
    sizes.extend(map(len, block.splitlines(keepends=True)))


# -- writing ---------------------------------------------------------------------------------------


class IndexWriter:
    """The index of a run folder for the holder of its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._digest: Any = sha256()  # None: of rows that are there, and not read yet
        self._descriptor = -1
        self._is_stamped = False
        self._end = 0  # of the rows
        self._summary = "", False  # digest of what was written, and whether of all plays

    def take_up(self, stamp: Stamp, end: int) -> None:
        """Goes on behind rows that fit their stamp."""
        self.count = stamp.rows
        self._summary = stamp.summary, stamp.of_all
        self._is_stamped = True
        self._digest = None
        self._end = end

    def replace(self, rows: Sequence[Head]) -> None:
        """Puts these rows in place of those that are there."""
        self.close()
        data = written(rows)
        with oserror(self.path / NAME):
            replace_file(self.path / NAME, data, self.path, synced=False)
        self.count = len(rows)
        self._digest = sha256(data)
        self._is_stamped = False
        self._end = len(data)

    def add(self, rows: Sequence[Head]) -> None:
        """Adds the rows of plays that were just recorded. Not synced: what a power cut takes is
        made again."""
        self._summary = "", False
        data = written(rows)
        with oserror(self.path / NAME):
            self._open()
            os.write(self._descriptor, data)
        self._digest.update(data)
        self.count += len(rows)
        self._end += len(data)

    def stamp(self) -> None:
        """Says what the record is now, so that readers believe the index."""
        if self._is_stamped or (self._descriptor < 0 and not self.count):
            return
        with oserror(self.path / NAME):
            self._open()
            digest = self._digest.hexdigest()
            columns = self._columns(digest)
            stamp = _stamp(self.path, self.count, digest, self._summary, columns)
            os.write(self._descriptor, _ENCODER.encode(stamp) + b"\n")
        self._is_stamped = True

    def _columns(self, digest: str) -> tuple[str, bool]:
        """Writes places.bin of a large run; gives its digest, and whether all rows are whole."""
        if self.count < places.LEAST:
            return "", False
        sizes = array("Q")
        size = size_of(self.path / EPISODES, self.path)
        rows, found = load_rows(self.path, Brief, size, partial(_measure, sizes))
        data = places.packed(rows, sizes) if found == digest else b""
        if not 0 < len(data) <= places.MOST:
            return "", False
        replace_file(self.path / places.NAME, data, self.path, synced=False)
        return places.digest_of(data), all(row.returns is not None for row in rows)

    def told(self, summary: bytes, of_all: bool) -> None:
        """Takes note of what was written into summary.json; the next stamp has it."""
        self._summary = sha256(summary).hexdigest(), of_all
        if self._is_stamped:
            self._open()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        if self._descriptor >= 0 and not self._is_stamped:
            return
        if self._descriptor < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._descriptor = open_file(self.path / NAME, flags, self.path)
        if self._is_stamped:
            # rows follow where the stamp was; its digest goes on from theirs
            os.ftruncate(self._descriptor, self._end)
            self._is_stamped = False
            if self._digest is None:
                self._digest = sha256()
                for place in range(0, self._end, _BLOCK):
                    most = min(_BLOCK, self._end - place)
                    self._digest.update(os.pread(self._descriptor, most, place))
