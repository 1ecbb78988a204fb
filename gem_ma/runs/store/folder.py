"""The writer of a run folder: create or take up, append, mark, rewind. The rules that it keeps
stand in `gem_ma.runs.store`."""

from __future__ import annotations

import contextlib
import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.parsing.strict_json import dump_json
from gem_ma.kernel.types import Image
from gem_ma.record.codec import ENDS, dump_episode, schema_of
from gem_ma.record.shapes import shown_in
from gem_ma.runs.store.disk import another_kind, media_file, move_aside, take_lock
from gem_ma.runs.store.index import NAME as INDEX
from gem_ma.runs.store.index import IndexWriter, read_stamp, uncollected
from gem_ma.runs.store.lines import (
    ends_of,
    fitting_rows,
    known_rows,
    read_episodes,
    read_manifest,
    read_media,
    read_metrics,
    read_rows,
    scan_episodes,
    scan_metrics,
)
from gem_ma.runs.store.manifest import create_or_check, note_more_files
from gem_ma.runs.store.names import finite, plain
from gem_ma.scores.groups import Id
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import Head, PlayRow, Rows, complete, line_digest
from gem_ma.system.files import (
    append,
    is_file,
    kind,
    make_folder,
    open_file,
    oserror,
    replace_file,
    sync_folder,
)
from gem_ma.system.folders import check_run
from gem_ma.system.parts import close_part, closed_parts, cut_parts, open_parts, pack, size_of

# what a power cut may cost; a sync takes milliseconds, which a table's play does not
SYNC_EPISODES = 32
SYNC_S = 1.0


class RunFolder:
    """The one writer of a run folder. A context manager; not for use by several threads at once."""

    def __init__(self, path: Path, lock: int) -> None:
        """Use `RunFolder.open`."""
        self.path = path
        self._lock = lock
        self._files: dict[str, int] = {}
        self._index = IndexWriter(path)
        self._broken = ""
        self._unsynced = 0
        self._synced_at = time.monotonic()
        self._ends: dict[Id, End] = {}
        self._schema = 0
        self._part = 0  # bytes of a part of the record; 0: it stays one file
        self.packs = False  # whether parts that are closed are put in zstd
        # asked before plays are written: what they have used is written down first
        self.before_append: Callable[[RunFolder], None] | None = None
        # what judges a play that has just ended, for its row in the index
        self.rows = Rows()
        # weakly: being listed here keeps no folder alive
        _OPEN.add(self)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        config_text: str,
        resolved: Mapping[str, Any],
        manifest: Mapping[str, Any] | None = None,
        fresh: bool = False,
        resuming: bool = False,
    ) -> RunFolder:
        """Creates the run folder, or takes it up again where the last writer left it; a torn tail
        is repaired.

        `resolved` are plain values; `manifest` adds facts such as `seeds`, `data` and `models`
        (with digests). `resuming`: the run goes on with its own settings, of which `RESUME_KEYS`
        may differ now; the manifest notes them. Raises StoreError (in use, refused, damaged),
        SchemaError (newer), ConfigError naming the keys that changed or where resolved.yaml was
        edited, DataError where data or models changed.
        """
        path = Path(path)
        make_folder(path, path)
        if kind(path / "study.json", path) and kind(path / "manifest.json", path) is None:
            raise another_kind(path, "study")
        if not fresh:
            check_run(path)
        lock = take_lock(path)
        try:
            # an empty folder needs no second name
            if fresh and any(
                os.path.lexists(path / name) for name in ("manifest.json", "episodes.jsonl")
            ):
                lock = move_aside(path, lock)
            folder = cls(path, lock)
        except BaseException:
            os.close(lock)
            raise
        try:
            with oserror(path):
                facts = dict(manifest or {})
                create_or_check(path, config_text, plain(resolved), facts, resuming)
                folder._take_up()
        except BaseException:
            # not `close`, which would sync files that were never opened for good
            folder._free()
            raise
        return folder

    # -- reading ----------------------------------------------------------------------------------

    def done(self) -> set[Id]:
        """(task, seed, repeat) of every ended episode, FAILED ones included."""
        return set(self._ends)

    def failed(self) -> set[Id]:
        """The ids whose last attempt FAILED."""
        return {id_ for id_, end in self._ends.items() if end is End.FAILED}

    def episodes(self) -> Iterator[Episode]:
        """Every episode, the last attempt of each id, in the order of the file."""
        return read_episodes(self.path)

    def scored(self, judge: Judge) -> list[PlayRow]:
        """The rows of all plays, earlier attempts included, each judged once: as it ended, or now
        where it was recorded before it could be. Raises ScenarioError and what the judge raises."""
        rows = read_rows(self.path, PlayRow)
        if complete(rows, judge.rows(strict=True), partial(read_episodes, self.path)):
            self._index.replace(rows)
        return rows

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Every line of `log`."""
        return read_metrics(self.path)

    def media(self, digest: str) -> bytes:
        """The bytes of a stored image. Raises StoreError where they are absent or differ from
        the digest."""
        return read_media(self.path, digest)

    # -- writing ----------------------------------------------------------------------------------

    def append(self, episodes: Sequence[Episode], *, fsync: bool = False) -> None:
        """Appends whole lines in one write. Raises StoreError; the file then holds all of these
        episodes or none."""
        self.add([self.made(episode) for episode in episodes], fsync=fsync)

    def made(self, episode: Episode) -> tuple[PlayRow, bytes]:
        """The row and the line of a play, for `add`. It stores the images that the play shows and
        writes nothing else, so that another process may make them. Raises StoreError."""
        line = (dump_episode(episode, self._schema) + "\n").encode()
        # first: a line never names an image that is not there
        self.keep_images([episode])
        row = self.rows.of(episode)
        row.size = len(line)
        row.digest = line_digest(line)
        return row, line

    def add(self, plays: Sequence[tuple[PlayRow, bytes]], *, fsync: bool = False) -> None:
        """Appends what `made` gave, as `append` does. Raises StoreError."""
        if self.before_append is not None:
            self.before_append(self)
        rows = [row for row, _ in plays]
        data = b"".join([line for _, line in plays])
        if self._part and self._files and not self._broken:
            self._close_part(len(data))
        self._write("episodes.jsonl", data)
        # only now: what failed to be written is not done
        self._ends.update((row.id, ENDS[row.end]) for row in rows)
        self._index.add(rows)
        self._sync_when_due(len(rows), fsync)

    def keep_images(self, episodes: Iterable[Episode]) -> None:
        """Stores the images that these episodes show, before their lines are written. Raises
        StoreError."""
        for image in chain.from_iterable(map(shown_in, episodes)):
            if image.data:  # an image that was read from a record has none
                self._keep_image(image)

    def log(self, values: Mapping[str, Any]) -> None:
        """Appends one line to metrics.jsonl. Numbers that are not finite are written as null."""
        self._write("metrics.jsonl", (dump_json(finite(values)) + "\n").encode())
        self._sync_when_due(0, False)

    def sync(self) -> None:
        """Returns when everything written is on the disk."""
        for name, descriptor in self._files.items():
            try:
                os.fsync(descriptor)
            except OSError as error:
                # nobody knows what is on the disk now, until the folder is opened anew
                self._broken = f"an earlier sync failed ({error.strerror})"
                raise StoreError(
                    f"{self.path / name}: {error.strerror or error}; {_HELP}"
                ) from error
        self._unsynced = 0
        self._synced_at = time.monotonic()

    def mark(self) -> dict[str, int]:
        """Where the files end now, for a checkpoint; what lies before the mark is on the disk."""
        self.sync()
        return {name.split(".")[0]: self._size(name) for name in sorted(self._files)}

    def rewind(self, mark: Mapping[str, int]) -> None:
        """Takes the folder back to a `mark`: the lines after it move to `episodes.torn` and
        `metrics.torn`, to be made again.

        Raises StoreError where a file ends before the mark or the mark is not between two lines.
        """
        if set(mark) != {"episodes", "metrics"} or not all(
            type(offset) is int and offset >= 0 for offset in mark.values()
        ):
            raise StoreError(f"{self.path}: {dict(mark)!r} is not a mark of a run folder")
        with oserror(self.path):
            # all are checked before any is cut
            for name, offset in mark.items():
                self._check_mark(f"{name}.jsonl", offset)
            for name, offset in mark.items():
                self._cut(f"{name}.jsonl", offset)
        # read anew: what was cut off may have replaced an earlier attempt
        self._take_rows()

    def misfit(self, mark: Mapping[str, int]) -> str:
        """Why the folder cannot be taken back to this mark, "" where it can."""
        try:
            for name, offset in mark.items():
                self._check_mark(f"{name}.jsonl", offset)
        except (StoreError, KeyError) as error:
            return str(error)
        return ""

    def note_files(self, files: Mapping[str, Any]) -> None:
        """Adds to the manifest what code and data plays have used since the run began."""
        note_more_files(self.path, files)

    def write_summary(self, summary: Mapping[str, Any], *, of_all: bool = False) -> None:
        """Replaces summary.json in one step. `of_all`: it is what the plays of this folder come
        to by `scored`, so that readers may believe it as long as these do not change."""
        with oserror(self.path / "summary.json"):
            text = json.dumps(finite(summary), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
            data = text.encode()
            replace_file(self.path / "summary.json", data, self.path)
            self._index.told(data, of_all)

    def close(self) -> None:
        """Syncs, frees the lock. May be called twice."""
        if self._lock < 0:
            return
        try:
            # after a failed sync the next one may succeed falsely: the kernel reports an error once
            if not self._broken:
                self.sync()
                self._index.stamp()
        finally:
            self._free()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _free(self) -> None:
        # the lock last: until then nobody else may write
        for descriptor in (*self._files.values(), self._lock):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._files = {}
        self._lock = -1
        self._index.close()

    # -- inside -----------------------------------------------------------------------------------

    def _create(self, name: str) -> None:
        self._files[name] = open_file(
            self.path / name, os.O_RDWR | os.O_CREAT | os.O_APPEND, self.path
        )

    def _take_up(self) -> None:
        for name in ("episodes.jsonl", "metrics.jsonl"):
            self._create(name)
        scanned = scan_metrics(self.path / "metrics.jsonl")
        if scanned.torn:
            self._cut("metrics.jsonl", scanned.end)
        self._take_rows()
        # a folder stays in the schema in which it was begun
        with open_parts(self.path / "episodes.jsonl", self.path) as record:
            self._schema = schema_of(record.read(16))
        part = read_manifest(self.path).get("part_bytes")
        self._part = part if type(part) is int else 0
        sync_folder(self.path)

    def _close_part(self, more: int) -> None:
        """Ends the last part of the record where it has no room for so many bytes more."""
        file = self.path / "episodes.jsonl"
        size = os.fstat(self._files["episodes.jsonl"]).st_size
        if not size or size + more <= self._part:
            return
        with oserror(file):
            self.sync()
            self._broken = "a part of the record could not be closed"
            os.close(self._files.pop("episodes.jsonl"))
            close_part(file, self.path)
            self._create("episodes.jsonl")
            sync_folder(self.path)
            self._broken = ""
            for path in closed_parts(file) if self.packs else ():
                if path.suffix != ".zst":
                    pack(path, self.path)

    def _size(self, name: str) -> int:
        return size_of(self.path / name, self.path)

    @uncollected()
    def _take_rows(self) -> None:
        """Takes over the index where it fits; else makes rows of the lines that it lacks."""
        file = self.path / "episodes.jsonl"
        self._index.close()
        found = read_stamp(self.path)
        heads = fitting_rows(file, Head)
        if heads is not None and found is not None:
            self._index.take_up(*found)
        else:
            scanned = scan_episodes(file, known_rows(file, PlayRow), PlayRow)
            if scanned.torn:
                self._cut("episodes.jsonl", scanned.end)
            heads = scanned.rows
            if heads or is_file(self.path / INDEX, self.path):
                self._index.replace(scanned.rows)
        # whether later plays are like the first is asked for a new record alone
        self.rows.compares = not heads
        self._ends = ends_of(heads)

    def _write(self, name: str, data: bytes) -> None:
        if self._lock < 0 or self._broken:
            why = "closed" if self._lock < 0 else f"unsure: {self._broken}"
            raise StoreError(f"{self.path / name}: the run folder is {why}; open it again")
        descriptor = self._files[name]
        written = 0
        before = os.fstat(descriptor).st_size
        try:
            # a second round only where the disk took a part: full, or a limit on file size
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except BaseException as error:
            # a KeyboardInterrupt between two writes leaves half a line too
            self._undo(name, before, len(data))
            if isinstance(error, OSError):
                raise StoreError(
                    f"{self.path / name}: {error.strerror or error}; {_HELP}"
                ) from error
            raise

    def _undo(self, name: str, before: int, length: int) -> None:
        descriptor = self._files[name]
        try:
            # a write that was interrupted after its end is whole
            if os.fstat(descriptor).st_size not in (before, before + length):
                os.ftruncate(descriptor, before)
        except OSError as error:
            self._broken = f"an earlier write failed ({error.strerror})"

    def _sync_when_due(self, episodes: int, now: bool) -> None:
        self._unsynced += episodes
        if now or self._unsynced >= SYNC_EPISODES or time.monotonic() - self._synced_at >= SYNC_S:
            self.sync()

    def _check_mark(self, name: str, offset: int) -> None:
        size = self._size(name)
        if offset > size:
            raise StoreError(
                f"{self.path / name}: has {size} bytes, the checkpoint was written at {offset}; the"
                " file lost lines"
            )
        with open_parts(self.path / name, self.path) as opened:
            opened.seek(max(0, offset - 1))
            before = opened.read(1)
        if offset and before != b"\n":
            raise StoreError(
                f"{self.path / name}: byte {offset} is not the end of a line; the checkpoint"
                " belongs to another file"
            )

    def _cut(self, name: str, end: int) -> None:
        if self._size(name) == end:
            return
        torn = self.path / f"{name.split('.')[0]}.torn"
        with open_parts(self.path / name, self.path) as source:
            source.seek(end)
            last = b""
            # in pieces, since hours of play may lie after the mark
            while block := source.read(1 << 20):
                append(torn, block, self.path)
                last = block
        # the torn file keeps whole lines, so that it can be read
        append(torn, b"" if last.endswith(b"\n") else b"\n", self.path, sync=True)
        sync_folder(self.path)  # kept before it is cut: a kill in between only keeps it twice
        os.close(self._files.pop(name))
        cut_parts(self.path / name, self.path, end)
        self._create(name)

    def _keep_image(self, image: Image) -> None:
        target = media_file(self.path, image.digest)
        # its name is a digest of its content, so a file of this name holds the same
        if is_file(target, self.path):
            return
        with oserror(target):
            make_folder(target.parent, self.path)
            # of another name in each process that plays: two may see the same image
            aside = f".{image.digest}.{os.getpid()}.tmp"
            replace_file(target, image.data, self.path, aside=aside)


_HELP = "free some space or fix the disk, then type the same command again"
_OPEN: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child would keep the lock alive after its parent is killed."""
    for folder in list(_OPEN):
        if folder._lock >= 0:
            os.close(folder._lock)
            folder._lock = -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
