"""Where each episode of a run lies in its file, and what a list shows of it, without decoding the
plays: 10,000 episodes cost a fraction of a second, and 50 MB are read when they are opened.

The file may be growing. `Index.refresh` reads on from where it stopped.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import StoreError
from gem_ma.record.codec import ENDS, load_episode
from gem_ma.record.json_text import load_json
from gem_ma.system.files import lines, oserror, stream

EpisodeId = tuple[str, int, int]
# as the store writes them; `end` and `error` follow the ledger, and no text holds a bare quote
_HEAD = re.compile(rb'\{"schema":1,"id":(\["(?:[^"\\]|\\.)*",-?\d+,-?\d+\]),"')
_CAST = re.compile(rb',"cast":(\{.*?\}),"calls":\[')
_LEDGER = re.compile(rb',"ledger":(\[[^\]]*\]),"end":"(\w+)","error":')
_NEAR = 20_000  # bytes from the beginning of a line in which the ledger mostly ends


DAMAGED = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError)  # of a line


class Entry(NamedTuple):
    """One episode: its id, how it ended, what each agent was paid, and its bytes in the file."""

    id: EpisodeId
    end: End
    totals: dict[str, float]
    start: int
    size: int


class Index:
    """The episodes of a run folder, in the order of the file. An episode that was played again
    stands once, as its last line has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "episodes.jsonl"
        self.entries: dict[EpisodeId, Entry] = {}
        self.damaged: list[str] = []  # lines that are no episode, in words
        self._read = self._lines = 0  # bytes of whole lines, and how many
        self._changed = 0  # when the file was changed last, in ns

    @property
    def size(self) -> int:
        """Bytes that have been read."""
        return self._read

    def refresh(self) -> None:
        """Reads what was added. A damaged line costs its episode; raises StoreError where the
        file cannot be read."""
        with oserror(self.file), stream(self.file, self.folder, through=True) as opened:
            now = os.fstat(opened.fileno())
            mended = self.damaged and now.st_mtime_ns != self._changed
            # cut, exchanged or mended since: from the beginning
            if now.st_size < self._read or mended:
                self.entries = {}
                self.damaged = []
                self._read = 0
                self._lines = 0
            self._changed = now.st_mtime_ns
            opened.seek(self._read)
            for line in lines(opened, self.file):
                # the last one may be half written at this moment
                if not line.endswith(b"\n"):
                    break
                self._lines += 1
                try:
                    entry = self._entry(line)
                    self.entries[entry.id] = entry
                except (StoreError, *DAMAGED) as error:
                    self.damaged.append(f"{self.file}: line {self._lines}: {error}")
                self._read += len(line)

    def episode(self, id_: EpisodeId) -> Episode:
        """The whole of one. Raises StoreError where there is none, or for damage."""
        if (entry := self.entries.get(id_)) is None:
            raise StoreError("there is no such episode")
        with oserror(self.file), stream(self.file, self.folder) as opened:
            opened.seek(entry.start)
            line = opened.read(entry.size)
        episode = load_episode(line)
        if episode.id != id_:
            raise StoreError(f"{self.file}: was exchanged while it was read; load the page again")
        return episode

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def _entry(self, line: bytes) -> Entry:
        head = _HEAD.match(line)
        cast = _CAST.search(line, 0, _NEAR)
        tail = _LEDGER.search(line, cast.end() if cast else 0, _NEAR)
        if head and cast and tail and tail[2].decode() in ENDS:
            # at once: a call costs more than what it reads here
            parts = load_json(b"[%b,%b,%b]" % (head[1], cast[1], tail[1]))
            (task, seed, repeat) = parts[0]
            paid = _totals(parts[1], parts[2])
            where = self._read, len(line)
            return Entry((task, seed, repeat), ENDS[tail[2].decode()], paid, *where)
        # of an older version, with a reason that holds a bracket, or a long one
        episode = load_episode(line)
        return Entry(episode.id, episode.end, episode.returns(), self._read, len(line))


def _totals(agents: Iterable[str], ledger: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    paid: dict[str, list[float]] = {agent: [] for agent in agents}
    for entry in ledger:
        paid[entry["agent"]].append(float(entry["value"]))
    return {agent: math.fsum(values) for agent, values in paid.items()}
