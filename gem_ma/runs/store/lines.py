"""Reading a run folder, with or without its lock: lines, ids, manifest, images. It never writes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from gem_ma.config.document import read as read_yaml
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError, SchemaError, StoreError
from gem_ma.kernel.parsing.strict_json import load_json, refuse_constant
from gem_ma.record.codec import ENDS, SCHEMA, check_schema, load_episode
from gem_ma.runs.store.disk import media_file
from gem_ma.runs.store.index import (
    EPISODES,
    Stamp,
    fits,
    load_rows,
    map_rows,
    read_stamp,
)
from gem_ma.runs.store.index import NAME as INDEX
from gem_ma.runs.store.names import with_changes
from gem_ma.runs.store.places import Places, load_places
from gem_ma.runs.store.tables import read_table, table_files
from gem_ma.scores.groups import Id
from gem_ma.scores.rows import Head, Kind, line_digest
from gem_ma.system.files import (
    MOST_JSON,
    damage,
    is_file,
    lines,
    oserror,
    read,
    read_json,
    stream,
)
from gem_ma.system.parts import open_parts, size_of, where

# What a recorded play must be beside well-formed: acts and payments of its own cast, at steps that
# a play can have.

MOST_STEPS = 10**9


def check_play(episode: Episode) -> None:
    """Raises StoreError, which names the turn or the ledger's entry that no play can have."""
    step = 0
    for number, turn in enumerate(episode.turns):
        if turn.agent not in episode.cast:
            raise StoreError(f"turns[{number}]: {turn.agent!r} is not in the cast")
        if not step <= turn.step <= MOST_STEPS:
            raise StoreError(
                f"turns[{number}]: {turn.agent!r} acts at step {turn.step}, behind step {step}"
            )
        step = turn.step
    for number, entry in enumerate(episode.ledger):
        if entry.agent not in episode.cast:
            raise StoreError(f"ledger[{number}]: {entry.agent!r} is not in the cast")
        if not -1 <= entry.step <= MOST_STEPS:
            raise StoreError(f"ledger[{number}]: no play has a step {entry.step}")


SUMMARY = "summary.json"


def read_episodes(
    path: Path, only: Container[Id] | None = None, rows: Sequence[Head] | None = None
) -> Iterator[Episode]:
    """Yields the episodes of a run folder, of a JSONL file or of an exported table, in the order of
    the file; of each id only the last attempt.

    `only`: these ids; the others are skipped. `rows`: what `read_rows` has given, so that nobody
    looks for them again.

    A torn tail (a writer may be at work) is passed over. Raises StoreError with the line number
    for damage, SchemaError for a newer schema.
    """
    if tables := table_files(Path(path)):
        return read_table(tables, only)
    file = _lines_file(path, EPISODES)
    rows = fitting_rows(file, Head) if rows is None else rows
    if rows is None:
        # which line is the last attempt is known at the end of the file alone
        rows = [
            Head(len(line), "", "", *_located_head(file, number, line)[0])
            for number, line in _whole_lines(file)
        ]
    places: dict[Id, tuple[int, int, int]] = {}
    start = 0
    for number, row in enumerate(rows, 1):
        id_ = (row.task, row.seed, row.repeat)
        if only is None or id_ in only:
            places[id_] = number, start, row.size
        start += row.size
    return _decoded(file, places) if only is None else _sought(file, places)


def read_rows(path: Path, kind: type[Kind]) -> list[Kind]:
    """The rows of a run's plays, one for each line of the record, earlier attempts included; those
    of lines that nobody has judged have an id and an end alone. Raises StoreError with the line
    number for damage."""
    file = _lines_file(path, EPISODES)
    rows = fitting_rows(file, kind)
    if rows is not None:
        return rows
    known = known_rows(file, kind)
    scanned = scan_episodes(file, known, kind)
    if scanned.fault:
        raise StoreError(
            f"{scanned.fault}; `gem-ma resume {file.parent}` puts it aside and plays it again"
        )
    return scanned.rows


def read_places(path: Path) -> Places:
    """Where the plays of a run lie, and how they ended. Raises StoreError with the line number for
    damage."""
    found = read_stamp(path)
    if found is not None and (places := stamped_places(path, found[0])) is not None:
        return places
    return Places.of(read_rows(path, Head))


def stamped_places(path: Path, stamp: Stamp) -> Places | None:
    """Those of a large run that is what its stamp says; else None."""
    return load_places(path, stamp.places) if stamp.places and fits(stamp, path) else None


def read_plays(path: Path, places: Places, plays: Iterable[int]) -> Iterator[tuple[int, Episode]]:
    """Some plays of a run, by their number in its places, in the order of the file. Raises
    StoreError as `read_episodes`."""
    file = path / EPISODES
    with oserror(file), open_parts(file, path) as opened:
        for play in sorted(plays, key=places.lines.__getitem__):
            number = places.lines[play] + 1
            opened.seek(places.starts[play])
            episode = _episode(file, number, opened.read(places.sizes[play]))
            if places.key(episode.id) != places.keys[play]:
                raise StoreError(f"{where(file, number)}: {_OTHER}")
            yield play, episode


def read_ends(path: Path) -> dict[Id, End]:
    """How each episode of a run ended, without decoding them. Raises StoreError with the line
    number for damage."""
    return ends_of(read_rows(path, Head))


def ends_of(rows: Iterable[Head]) -> dict[Id, End]:
    """How each play ended in its last attempt."""
    return {(row.task, row.seed, row.repeat): ENDS[row.end] for row in rows}


def fitting_stamp(file: Path) -> tuple[Stamp, int] | None:
    """The stamp of a record's index, and the byte where its rows end, where the record is what it
    was when that was stamped; else None."""
    found = read_stamp(file.parent) if file.name == EPISODES else None
    return found if found is not None and fits(found[0], file.parent) else None


def fitting_rows(file: Path, kind: type[Kind]) -> list[Kind] | None:
    """The rows of a record that is what it was when its index was stamped, else None."""
    if (found := fitting_stamp(file)) is None:
        return None
    stamp = found[0]
    blocks = map_rows(file.parent, *found, msgspec.json.Decoder(kind).decode_lines)
    rows = [*chain.from_iterable(blocks or ())]
    if blocks is None or len(rows) != stamp.rows:
        return None
    return rows if sum(map(attrgetter("size"), rows)) == stamp.size else None


def known_rows(file: Path, kind: type[Kind]) -> list[Kind]:
    """The rows of the index beside a record, whatever they are of."""
    folder = file.parent
    return load_rows(folder, kind, size_of(file, folder))[0] if file.name == EPISODES else []


def standing_summary(path: Path, *, of_all: bool = True) -> dict[str, Any] | None:
    """summary.json of a run folder where it is of the plays as they lie here now, `of_all`: of all
    of them; None where that is not known: plays were added or changed since, or an older version
    wrote it. A copy of a folder is read once, line by line. Raises StoreError."""
    found = read_stamp(path)
    if found is None or of_all > found[0].of_all or not is_as_written(path):
        return None
    stamp = found[0]
    return read_summary(path) if fits(stamp, path) or _is_copy(stamp, path) else None


def is_as_written(path: Path) -> bool:
    """Whether summary.json is, byte for byte, what the last writer of the folder wrote."""
    found = read_stamp(path)
    if found is None or not is_file(path / SUMMARY, path):
        return False
    digest = hashlib.sha256(read(path / SUMMARY, path, MOST_JSON)).hexdigest()
    return digest == found[0].summary


def _is_copy(stamp: Stamp, path: Path) -> bool:
    """Whether a record of other times holds the lines that its index was made of."""
    file = _lines_file(path, EPISODES)
    if size_of(file, path) != stamp.size:
        return False
    known, digest = load_rows(path, Head, stamp.size)
    return digest == stamp.digest and scan_episodes(file, known).is_known


def older_summary(path: Path) -> dict[str, Any] | None:
    """summary.json of a folder of an older version, which has no index, as long as the record is
    not newer. Raises StoreError."""
    if not is_file(path / SUMMARY, path) or is_file(path / INDEX, path):
        return None
    is_newer = os.lstat(path / EPISODES).st_mtime_ns > os.lstat(path / SUMMARY).st_mtime_ns
    return None if is_newer else read_summary(path)


Place = tuple[int, int, int]  # number of a line from 1, its first byte, its bytes


def _decoded(file: Path, places: Mapping[Id, Place]) -> Iterator[Episode]:
    wanted = {number for number, _, _ in places.values()}
    for number, line in _whole_lines(file):
        if number in wanted:
            yield _episode(file, number, line)


def _sought(file: Path, places: Mapping[Id, Place]) -> Iterator[Episode]:
    with oserror(file), open_parts(file, file.parent) as opened:
        for id_, (number, start, size) in sorted(places.items(), key=lambda pair: pair[1]):
            opened.seek(start)
            episode = _episode(file, number, opened.read(size))
            if episode.id != id_:
                raise StoreError(f"{where(file, number)}: {_OTHER}")
            yield episode


_OTHER = "is another play than index.jsonl says; delete that file"


def _episode(file: Path, number: int, line: bytes) -> Episode:
    try:
        episode = load_episode(line)
        check_play(episode)
    except StoreError as error:
        # of its own class: a newer schema has another exit code
        raise type(error)(f"{where(file, number)}: {error}") from None
    return episode


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run folder's metrics.jsonl (or of the file itself). Raises StoreError with
    the line number for damage."""
    file = _lines_file(path, "metrics.jsonl", missing_is_empty=True)
    return (_metrics_line(file, number, line) for number, line in _whole_lines(file))


def read_timings(path: Path) -> dict[int, dict[str, Any]]:
    """Step -> its row of a run folder's timings.jsonl; of a step that was made twice the later
    one. A line that cannot be read is passed over."""
    timings: dict[int, dict[str, Any]] = {}
    path = Path(path)
    # timings are a help, no record: a damaged file costs its drawing only
    with contextlib.suppress(OSError), stream(path / "timings.jsonl", path) as file:
        for line in lines(file, path / "timings.jsonl"):
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line.decode("utf-8", "replace"))
                if isinstance(row, dict) and type(row.get("step")) is int:
                    timings[row["step"]] = row
    return timings


def read_manifest(path: Path) -> dict[str, Any]:
    """manifest.json of a run folder. Raises StoreError where it is damaged, SchemaError where it
    is newer."""
    file = Path(path) / "manifest.json"
    manifest = read_json(file, Path(path))
    if not isinstance(manifest, dict):
        raise StoreError(f"{file}: expected an object, got {type(manifest).__name__}")
    try:
        check_schema(manifest, newest=1)  # its own, not that of a line
    except StoreError as error:
        raise type(error)(f"{file}: {error}") from None
    return manifest


def read_summary(path: Path, wants: Iterable[str] = ()) -> dict[str, Any] | None:
    """summary.json of a run folder, None where there is none yet. Raises StoreError where it is
    damaged, or lacks a key of `wants`."""
    file = Path(path) / "summary.json"
    if not is_file(file, Path(path)):
        return None
    summary = read_json(file, Path(path))
    if not isinstance(summary, dict):
        raise StoreError(f"{file}: expected an object, got {type(summary).__name__}")
    missing = [key for key in wants if key not in summary]
    if missing:
        raise StoreError(f"{file}: {missing[0]!r} is missing")
    return summary


def read_media(path: Path, digest: str) -> bytes:
    """The bytes of an image of a run folder. Raises StoreError where they are absent or differ
    from the digest."""
    file = media_file(Path(path), digest)
    data = read(file, Path(path))
    # a picture that was exchanged would be shown as what the agent saw
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreError(f"{file}: its bytes differ from its name, which is their SHA-256")
    return data


def _lines_file(path: Path, name: str, missing_is_empty: bool = False) -> Path:
    path = Path(path)
    file = path / name if path.is_dir() else path
    if not is_file(file, file.parent) and not (missing_is_empty and path.is_dir()):
        raise StoreError(
            f"{file}: there is no such file; is {path} a run folder? (`gem-ma list runs` shows"
            " them)"
        )
    return file


def _whole_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of every line that ends with a newline; what follows the last one is
    being written, or was torn by a crash."""
    if not is_file(file, file.parent):
        return
    with oserror(file), open_parts(file, file.parent, through=True) as opened:
        # JSON escapes every newline inside of a value, so that a line is a record
        for number, line in enumerate(lines(opened, file), 1):
            # the last one may be half written at this moment
            if line.endswith(b"\n"):
                yield number, line


def _checked(data: Any) -> tuple[Id, End]:
    if not isinstance(data, dict):
        raise StoreError(f"expected an object, got {type(data).__name__}")
    check_schema(data)
    id_ = data.get("id")
    end = data.get("end")
    if not (
        isinstance(id_, list)
        and len(id_) == 3
        and isinstance(id_[0], str)
        and type(id_[1]) is int
        and type(id_[2]) is int
    ):
        raise StoreError(f"id: expected [task, seed, repeat], got {id_!r}")
    if not isinstance(end, str) or end not in ENDS:
        raise StoreError(f"end: {end!r} is not one of {', '.join(ENDS)}")
    return (id_[0], id_[1], id_[2]), ENDS[end]


def _metrics_line(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        values = load_json(line, bounded=True)
    except StoreError as error:
        raise StoreError(f"{where(file, number)}: {error}") from None
    if not isinstance(values, dict):
        raise StoreError(f"{file}:{number}: expected an object, got {type(values).__name__}")
    return values


class Scan:
    """What a file of lines holds: rows of its lines, the end of its last good line, whether
    something torn follows; of a whole line also its `fault`. `is_known`: every line is that of a
    row that was there before."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.end = 0
        self.torn = False
        self.fault = ""
        self.is_known = True


def scan_episodes(file: Path, known: Sequence[Kind] = (), kind: type[Kind] = Head) -> Scan:  # type: ignore[assignment]
    """Looks at every line; what is `known` of an equal line at its place is taken over."""
    scanned = Scan()

    def take(number: int, line: bytes) -> None:
        row = known[number - 1] if number <= len(known) else None
        if row is None or not row.is_of(line):
            scanned.is_known = False
            id_, end = _located_head(file, number, line)
            row = kind(len(line), line_digest(line), end.value, *id_)
        scanned.rows.append(row)

    return _scan(file, scanned, take)


class _Line(msgspec.Struct):
    """What a scan wants of a line."""

    schema: int
    id: Id
    end: str


_LINES = msgspec.json.Decoder(_Line)


def _located_head(file: Path, number: int, line: bytes) -> tuple[Id, End]:
    try:
        return _head(line)
    except StoreError as error:
        # of its own class: a newer schema has another exit code
        raise type(error)(f"{where(file, number)}: {error}") from None


def _head(line: bytes) -> tuple[Id, End]:
    try:
        found = _LINES.decode(line)
        if 0 < found.schema <= SCHEMA and found.end in ENDS:
            return found.id, ENDS[found.end]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    # in words, and with the last of two equal keys
    return _checked(_quick(line))


def scan_metrics(file: Path) -> Scan:
    return _scan(file, Scan(), lambda number, line: _metrics_line(file, number, line))


def _scan(file: Path, scanned: Scan, take: Callable[[int, bytes], Any]) -> Scan:
    """Hands every line to `take`. What it refuses is damage, and raised; on the last line it is
    a torn tail."""
    # one line is held back: only the last one may be torn
    number = 0
    last = b""
    with oserror(file), open_parts(file, file.parent, through=True) as opened:
        for line in lines(opened, file):
            if last:
                _take_inner(number, last, take)
                scanned.end += len(last)
            number = number + 1
            last = line
    try:
        if last.endswith(b"\n"):
            _check_strict(file, number, last)
            take(number, last)
            scanned.end += len(last)
        scanned.torn = bool(last) and not last.endswith(b"\n")
    # a newer line is not a damage: nothing may be cut off it
    except SchemaError:
        raise
    except StoreError as error:
        scanned.torn = True
        scanned.fault = str(error)
    return scanned


def _take_inner(number: int, line: bytes, take: Callable[[int, bytes], Any]) -> None:
    try:
        take(number, line)
    except SchemaError:
        raise
    except StoreError as error:
        raise StoreError(
            f"{error}; the file is damaged in the middle, restore this line or cut it out by hand"
        ) from None


def _check_strict(file: Path, number: int, line: bytes) -> None:
    """Raises StoreError for what the quick reader of ids lets pass and a reader of episodes does
    not."""
    try:
        load_json(line)
    except StoreError as error:
        raise StoreError(f"{where(file, number)}: {error}") from None


# the fast decoder: on opening, every line of a long run is read once
_QUICK = json.JSONDecoder(parse_constant=refuse_constant)


def _quick(line: bytes) -> Any:
    """The JSON of a line without the checks that cost most; whoever reads the episode makes
    them."""
    try:
        return _QUICK.decode(line.decode())  # of bytes json.loads would guess an encoding
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON: {error}") from None


def read_settings(path: Path) -> dict[str, Any]:
    """The settings that a run has now: resolved.yaml with what resumes have changed, such as more
    tasks, and the prices of the last command. Raises StoreError."""
    manifest = read_manifest(path)
    settings = with_changes(read_resolved(path), manifest.get("resumed"))
    if (prices := manifest.get("prices")) is None:
        return settings
    with damage(path / "manifest.json"):
        for name, policy in settings["policies"].items():
            if name in prices or "price" in policy:
                policy["price"] = prices.get(name)
    return settings


def read_resolved(path: Path) -> dict[str, Any]:
    """resolved.yaml of a run folder as it was written; what changed at a resume stands in the
    manifest. Raises StoreError."""
    file = path / "resolved.yaml"
    data = read(file, path, MOST_JSON)
    try:
        # an editor may have put a mark of byte order in front
        document = read_yaml(data.decode("utf-8-sig"), str(file))
        document.refuse()
    except UnicodeDecodeError as error:
        raise StoreError(f"{file}: damaged: not UTF-8 at byte {error.start}") from None
    except ConfigError as error:
        raise StoreError(f"{str(error).splitlines()[0]} (damaged)") from None
    if not isinstance(document.value, dict):
        raise StoreError(f"{file}: expected a mapping, got {type(document.value).__name__}")
    return document.value
