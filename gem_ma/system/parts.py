"""The record of a large run lies in parts: `episodes.jsonl` is the last one, which alone grows;
those before it are `episodes-0001.jsonl`, `episodes-0002.jsonl` ..., never written again, or the
same in zstd, `episodes-0001.jsonl.zst`. Readers see one file: its bytes and its lines are numbered
over all parts. `episodes-0002.closed`, which is empty, says how many are closed, so that the last
of them is missed too. It knows nothing of what is written.

A part in zstd is in frames of a MB with a table of them at its end (the seekable format of
zstd/contrib), so `zstd -d` reads it, and so do we from any byte on.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from io import DEFAULT_BUFFER_SIZE, BufferedReader, FileIO, RawIOBase
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.system.extras import install
from gem_ma.system.files import (
    THROUGH,
    lines,
    open_file,
    oserror,
    remove,
    rename,
    replace_file,
    stream,
    sync_folder,
)

RECORD = "episodes.jsonl"
PART = 1 << 27  # bytes, which one line alone may exceed
_CLOSED = re.compile(r"episodes-(\d{4,9})\.jsonl(\.zst)?")
_MARK = re.compile(r"episodes-(\d{4,9})\.closed")
_FRAME = 1 << 20  # bytes of the record in a frame
_ENTRY = struct.Struct("<II")  # of the table: bytes of a frame, bytes of the record in it
_FOOT = struct.Struct("<IBI")  # how many there are, flags, and a number that says what it is
_SKIPPED, _SEEKABLE = 0x184D2A5E, 0x8F92EAB1  # numbers of a frame of no data, and of a table


def zstd() -> Any:
    """The library. Raises ConfigError with what to type where it is missing."""
    try:
        import zstandard
    except ImportError:
        raise ConfigError(
            f"parts of a record in zstd need zstandard: {install('zstd')}; `zstd -d` unpacks them"
        ) from None
    return zstandard


class Part(NamedTuple):
    """One of them: its file, its bytes in the record, and of zstd its frames (first byte in the
    file, first byte in the part; a last one ends them)."""

    path: Path
    size: int
    state: tuple[int, int, int, int]  # bytes of the file, times, inode
    frames: Sequence[tuple[int, int]] = ()


def parts_of(file: Path, root: Path) -> list[Part]:
    """The parts of a record in their order, of any other file itself. Raises StoreError where one
    is missing or damaged, FileNotFoundError where the last one is."""
    return [_part(path, root) for path in (*closed_parts(file), file)]


def closed_parts(file: Path) -> list[Path]:
    """The files of those that are never written again. Raises StoreError where one is missing."""
    found: dict[int, Path] = {}
    names = sorted(os.listdir(file.parent), reverse=True) if file.name == RECORD else []
    # names that sort so: a part that was being packed lies there twice, and the whole one counts
    for name in names:
        if match := _CLOSED.fullmatch(name):
            found[int(match[1])] = file.with_name(name)
    for number in range(1, max([*found, *_marks(names)], default=0) + 1):
        if number not in found:
            raise StoreError(
                f"{file.with_name(_name(number))}: is missing, and later parts are not"
            )
    return [found[number] for number in sorted(found)]


def size_of(file: Path, root: Path) -> int:
    """The bytes of all parts together."""
    return sum(part.size for part in parts_of(file, root))


def open_parts(file: Path, root: Path, *, through: bool = False) -> BufferedReader:
    """All parts as one file of bytes, opened for reading; `through`: all of it, in order."""
    if not closed_parts(file):
        return stream(file, root, through=through)
    size = THROUGH if through else DEFAULT_BUFFER_SIZE
    return BufferedReader(_Parts(parts_of(file, root), root), size)


def where(file: Path, number: int) -> str:
    """The file and the number in it of a line of the record, as it is named to a person."""
    for path in closed_parts(file):
        with open_parts_of([path], file.parent) as opened:
            count = sum(1 for _ in lines(opened, path))
        if number <= count:
            return f"{path}:{number}"
        number -= count
    return f"{file}:{number}"


def open_parts_of(paths: Sequence[Path], root: Path) -> BufferedReader:
    """Some parts alone."""
    return BufferedReader(_Parts([_part(path, root) for path in paths], root), THROUGH)


class _Parts(RawIOBase):
    """Parts, read as one file."""

    def __init__(self, parts: Sequence[Part], root: Path) -> None:
        self._take(parts)
        self._root = root
        self._place = 0
        self._opened: tuple[Part | None, FileIO | None] = (None, None)
        self._frame: tuple[tuple[Path, int] | None, bytes] = (None, b"")

    def _take(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._starts = [*accumulate((part.size for part in parts), initial=0)]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        before = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._starts[-1]}
        self._place = max(0, before[whence] + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _read(self, most: int) -> bytes:
        number = min(bisect_right(self._starts, self._place), len(self._parts)) - 1
        file = self._file(number)
        if file is None:
            # A writer at work has closed the last part, or packed one; every byte of the record is
            # where it was.
            self._take(parts_of(self._parts[-1].path, self._root))
            number = min(bisect_right(self._starts, self._place), len(self._parts)) - 1
            file = self._file(number)
        part = self._parts[number]
        inner = self._place - self._starts[number]
        if file is None:
            raise StoreError(f"{part.path}: was exchanged while it was read; read it again")
        if part.frames:
            return self._out_of_frame(number, inner, file)[:most]
        # the last part may have grown, and is read to its end
        most = most if number == len(self._parts) - 1 else min(most, part.size - inner)
        file.seek(inner)
        data = file.read(most)
        if not data and inner < part.size:
            raise StoreError(f"{part.path}: has lost bytes while it was read")
        return data

    def _file(self, number: int) -> FileIO | None:
        """The open file of a part; None where another one has its name now."""
        part = self._parts[number]
        if self._opened[0] == part:
            return self._opened[1]
        self._close_one()
        try:
            file = FileIO(open_file(part.path, os.O_RDONLY, self._root), "rb")
        except FileNotFoundError:
            return None
        self._opened = part, file
        # inodes are used again, so the last part is known by the number of those before it
        is_last = part.path.name == RECORD
        if is_last and len(closed_parts(part.path)) != len(self._parts) - 1:
            self._close_one()
            return None
        return file

    def _out_of_frame(self, number: int, inner: int, file: FileIO) -> bytes:
        """What a part in zstd holds from a byte on, up to the end of the frame."""
        part = self._parts[number]
        at = bisect_right(part.frames, inner, key=lambda frame: frame[1]) - 1
        if at == len(part.frames) - 1:
            return b""
        if self._frame[0] != (part.path, at):
            self._frame = (part.path, at), _unpacked(part, at, file)
        return self._frame[1][inner - part.frames[at][1] :]

    def _close_one(self) -> None:
        if self._opened[1] is not None:
            self._opened[1].close()
        self._opened = None, None

    def close(self) -> None:
        self._close_one()
        super().close()


# -- writing ---------------------------------------------------------------------------------------


def close_part(file: Path, root: Path) -> Path:
    """Ends the last part under a name of its own; whoever holds the lock opens the next one."""
    number = len(closed_parts(file)) + 1
    closed = file.with_name(_name(number))
    rename(file, closed, root)
    sync_folder(file.parent)
    _mark(file, root, number)
    return closed


def pack(path: Path, root: Path) -> None:
    """Puts a part in zstd in place of a closed one. Raises ConfigError, StoreError."""
    compressor = zstd().ZstdCompressor(write_checksum=True)
    packed = bytearray()
    table = bytearray()
    with oserror(path), stream(path, root, through=True) as file:
        while block := file.read(_FRAME):
            frame = compressor.compress(block)
            packed += frame
            table += _ENTRY.pack(len(frame), len(block))
    foot = _FOOT.pack(len(table) // _ENTRY.size, 0, _SEEKABLE)
    head = _ENTRY.pack(_SKIPPED, len(table) + len(foot))
    with oserror(path):
        replace_file(path.with_name(f"{path.name}.zst"), bytes(packed + head + table + foot), root)
    remove(path, root)


def cut_parts(file: Path, root: Path, end: int) -> None:
    """Cuts the record where it is longer than so many bytes. A kill at any moment leaves whole
    beginnings of it."""
    *parts, last = parts_of(file, root)
    start = sum(part.size for part in parts)
    descriptor = open_file(file, os.O_RDWR, root)
    try:
        os.ftruncate(descriptor, min(last.size, max(0, end - start)))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for number in reversed(range(len(parts))):
        if end >= start:
            return
        part = parts[number]
        start -= part.size
        if end > start:  # it is the last one again
            with open_parts_of([part.path], root) as opened:
                replace_file(file, opened.read(end - start), root)
        # first: after a kill there may be more parts than it says, never fewer
        _mark(file, root, number)
        # both forms, where a kill has left both
        for path in (part.path.with_name(f"{part.path.name.removesuffix('.zst')}.zst"), part.path):
            remove(path, root)
        sync_folder(file.parent)


# -- inside ----------------------------------------------------------------------------------------


def _name(number: int) -> str:
    return f"episodes-{number:04}.jsonl"


def _marks(names: Iterable[str]) -> list[int]:
    """How many parts are closed, as the names in a folder say: mostly once."""
    return [int(match[1]) for name in names if (match := _MARK.fullmatch(name))]


def _mark(file: Path, root: Path, number: int) -> None:
    """Says how many parts are closed, in place of what was said before."""
    before = _marks(os.listdir(file.parent))
    if number not in (0, *before):
        replace_file(file.with_name(f"episodes-{number:04}.closed"), b"", root)
    for other in before:
        if other != number:
            remove(file.with_name(f"episodes-{other:04}.closed"), root)


def _part(path: Path, root: Path) -> Part:
    with oserror(path), stream(path, root) as file:
        found = os.fstat(file.fileno())
        state = found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
        if path.suffix != ".zst":
            return Part(path, found.st_size, state)
        frames = [*_frames(path, file, found.st_size)]
    return Part(path, frames[-1][1], state, frames)


def _frames(path: Path, file: BufferedReader, size: int) -> Iterator[tuple[int, int]]:
    """Raises StoreError where the table is not that of the file."""
    damaged = StoreError(f"{path}: has no table of its frames; damaged, or packed by other means")
    if size < _FOOT.size:
        raise damaged
    file.seek(size - _FOOT.size)
    count, flags, number = _FOOT.unpack(file.read(_FOOT.size))
    place = size - _FOOT.size - count * _ENTRY.size
    if number != _SEEKABLE or flags or place < _ENTRY.size:
        raise damaged
    file.seek(place)
    table = file.read(count * _ENTRY.size)
    packed = whole = 0
    for length, inside in _ENTRY.iter_unpack(table):
        if not 0 < inside <= _FRAME:
            raise damaged
        yield packed, whole
        packed += length
        whole += inside
    if packed != place - _ENTRY.size:
        raise damaged
    yield packed, whole


def _unpacked(part: Part, at: int, file: FileIO) -> bytes:
    library = zstd()
    (begin, start), (end, stop) = part.frames[at : at + 2]
    file.seek(begin)
    packed = file.read(end - begin)
    try:
        # bounded: a few bytes may stand for any number of zeros
        if library.frame_content_size(packed) == stop - start:
            return bytes(library.ZstdDecompressor().decompress(packed))
    except library.ZstdError:
        pass
    raise StoreError(f"{part.path}: damaged at byte {begin}")
