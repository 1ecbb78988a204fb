"""The plays of a run folder that is being looked at: where each episode lies, and what a list shows
of it, by the index of its folder; what that lacks is looked up in the lines. The file may be
growing: `Index.refresh` reads on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import StoreError
from gem_ma.record.codec import ENDS, load_episode
from gem_ma.runs.store.index import uncollected
from gem_ma.runs.store.lines import fitting_rows, known_rows
from gem_ma.scores.groups import Id
from gem_ma.scores.rows import Brief
from gem_ma.system.files import lines, oserror
from gem_ma.system.parts import open_parts, parts_of

DAMAGED = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError)  # of a line


class Entry(NamedTuple):
    """One episode: its id, how it ended and came out, what each agent was paid, and its bytes in
    the file."""

    id: Id
    end: End
    success: bool | None
    totals: dict[str, float]
    start: int
    size: int


class _Paid(msgspec.Struct):
    agent: str
    value: float


class _Line(msgspec.Struct):
    """What a list wants of a line that the index lacks."""

    schema: Literal[1, 2]
    id: Id
    end: str
    cast: dict[str, msgspec.Raw]
    ledger: list[_Paid]


_LINES = msgspec.json.Decoder(_Line)


class Index:
    """The episodes of a run folder, in the order of the file. An episode that was played again
    stands once, as its last line has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "episodes.jsonl"
        self.entries: dict[Id, Entry] = {}
        self.damaged: list[str] = []  # lines that do not hold an episode, in words
        self._read = self._lines = 0  # bytes of whole lines, and how many
        self._stamp: tuple[int, ...] = ()  # of the file as it was read last

    @property
    def size(self) -> int:
        """Bytes that have been read."""
        return self._read

    @uncollected()
    def refresh(self) -> None:
        """Reads what was added. A damaged line costs its episode; raises StoreError where the
        file cannot be read."""
        with oserror(self.file), open_parts(self.file, self.folder, through=True) as opened:
            parts = parts_of(self.file, self.folder)
            size = sum(part.size for part in parts)
            # the first part keeps its inode when it is closed, and grows by those behind it
            stamp = parts[0].state[3], size, *parts[-1].state
            if stamp == self._stamp:
                return
            grown = self._stamp[:1] == stamp[:1] and size > self._read and not self.damaged
            self._stamp = stamp
            if not grown:  # new, cut, exchanged or mended: from the beginning
                self.entries = {}
                self.damaged = []
                self._read = 0
                self._lines = 0
            known: Sequence[Brief] = ()
            if not grown and (rows := fitting_rows(self.file, Brief)) is not None:
                for found in rows:
                    self._take(found)
            elif not grown:
                known = known_rows(self.file, Brief)
            opened.seek(self._read)
            for line in lines(opened, self.file):
                # the last one may be half written at this moment
                if not line.endswith(b"\n"):
                    break
                row = known[self._lines] if self._lines < len(known) else None
                if row is not None and row.is_of(line):
                    self._take(row)
                else:
                    self._look(line)

    def _take(self, row: Brief) -> None:
        if row.returns is None or not row.end:  # nobody has read its play
            with oserror(self.file), open_parts(self.file, self.folder) as opened:
                opened.seek(self._read)
                self._look(opened.read(row.size))
            return
        # a task has thousands of plays, and its name is one object
        id_ = (sys.intern(row.task), row.seed, row.repeat)
        paid = row.returns
        self.entries[id_] = Entry(id_, ENDS[row.end], row.success, paid, self._read, row.size)
        self._lines += 1
        self._read += row.size

    def _look(self, line: bytes) -> None:
        self._lines += 1
        try:
            entry = self._entry(line)
            self.entries[entry.id] = entry
        except (StoreError, *DAMAGED) as error:
            self.damaged.append(f"{self.file}: line {self._lines}: {error}")
        self._read += len(line)

    def episode(self, id_: Id) -> Episode:
        """The whole of one. Raises StoreError where there is none, or for damage."""
        if (entry := self.entries.get(id_)) is None:
            raise StoreError("there is no such episode")
        with oserror(self.file), open_parts(self.file, self.folder) as opened:
            opened.seek(entry.start)
            line = opened.read(entry.size)
        episode = load_episode(line)
        if episode.id != id_:
            raise StoreError(f"{self.file}: was exchanged while it was read; load the page again")
        return episode

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def _entry(self, line: bytes) -> Entry:
        where = self._read, len(line)
        try:
            found = _LINES.decode(line)
            paid = dict.fromkeys(found.cast, 0.0)
            for one in found.ledger:
                paid[one.agent] += one.value
            return Entry(found.id, ENDS[found.end], None, paid, *where)
        except (msgspec.MsgspecError, LookupError):  # of another schema, or damaged: in words
            episode = load_episode(line)
            return Entry(episode.id, episode.end, None, episode.returns(), *where)
