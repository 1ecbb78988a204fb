"""Reading a run folder, with or without its lock: lines, ids, manifest, images. It never writes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from gem_ma.config.document import read as read_yaml
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError, SchemaError, StoreError
from gem_ma.kernel.parsing.strict_json import refuse_constant
from gem_ma.record.codec import ENDS, check_schema, load_episode
from gem_ma.record.json_text import load_json
from gem_ma.runs.store.disk import media_file
from gem_ma.runs.store.tables import read_table, table_files
from gem_ma.system.files import MOST_JSON, is_file, lines, oserror, read, read_json, stream

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


EpisodeId = tuple[str, int, int]


def read_episodes(path: Path, only: Container[EpisodeId] | None = None) -> Iterator[Episode]:
    """Yields the episodes of a run folder, of a JSONL file or of an exported table, in the order of
    the file; of each id only the last attempt.

    `only`: these ids; the others are skipped cheaply.

    A torn tail (a writer may be at work) is passed over. Raises StoreError with the line number
    for damage, SchemaError for a newer schema.
    """
    if tables := table_files(Path(path)):
        return read_table(tables, only)
    file = _lines_file(path, "episodes.jsonl")
    # two passes: which line is the last attempt is known at the end of the file alone
    last: dict[EpisodeId, int] = {}
    for number, line in _whole_lines(file):
        last[_identity(file, number, line)] = number
    return _decoded(file, {number for id_, number in last.items() if only is None or id_ in only})


def read_ends(path: Path) -> dict[EpisodeId, End]:
    """How each episode of a run ended, without decoding them. Raises StoreError with the line
    number for damage."""
    file = _lines_file(path, "episodes.jsonl")
    scanned = scan_episodes(file)
    if scanned.fault:
        raise StoreError(
            f"{scanned.fault}; `gem-ma resume {file.parent}` puts it aside and plays it again"
        )
    return scanned.ends


def _decoded(file: Path, wanted: set[int]) -> Iterator[Episode]:
    for number, line in _whole_lines(file):
        if number in wanted:
            try:
                episode = load_episode(line)
                check_play(episode)
            except StoreError as error:
                # of its own class: a newer schema has another exit code
                raise type(error)(f"{file}:{number}: {error}") from None
            yield episode


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


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """What was said of each play when it was played: the last row of each id. A line that cannot
    be read is passed over, since its play can be judged again."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    path = Path(path)
    with contextlib.suppress(FileNotFoundError), stream(path / "verdicts.jsonl", path) as file:
        for line in lines(file, path / "verdicts.jsonl"):
            with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
                row = json.loads(line)
                task, seed, repeat = row["id"]
                rows[task, seed, repeat] = row
    return list(rows.values())


def read_manifest(path: Path) -> dict[str, Any]:
    """manifest.json of a run folder. Raises StoreError where it is damaged, SchemaError where it
    is newer."""
    file = Path(path) / "manifest.json"
    manifest = read_json(file, Path(path))
    if not isinstance(manifest, dict):
        raise StoreError(f"{file}: expected an object, got {type(manifest).__name__}")
    try:
        check_schema(manifest)
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
    with oserror(file), stream(file, file.parent, through=True) as opened:
        # JSON escapes every newline inside of a value, so that a line is a record
        for number, line in enumerate(lines(opened, file), 1):
            # the last one may be half written at this moment
            if line.endswith(b"\n"):
                yield number, line


# what we write begins so; another order of keys is read in full
_ID = re.compile(rb'\{"schema":1,"id":(\["(?:[^"\\]|\\.)*",-?\d+,-?\d+\]),"')


def _identity(file: Path, number: int, line: bytes) -> EpisodeId:
    """The id of a line, without decoding all of it where we wrote it ourselves."""
    try:
        ours = _ID.match(line)
        if ours:
            task, seed, repeat = load_json(ours[1])
            return (task, seed, repeat)
        return _checked(load_json(line))[0]
    except StoreError as error:
        raise type(error)(f"{file}:{number}: {error}") from None


def _checked(data: Any) -> tuple[EpisodeId, End]:
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
        raise StoreError(f"{file}:{number}: {error}") from None
    if not isinstance(values, dict):
        raise StoreError(f"{file}:{number}: expected an object, got {type(values).__name__}")
    return values


class Scan:
    """What a file of lines holds: ids, the end of its last good line, whether something torn
    follows; of a whole line also its `fault`."""

    def __init__(self) -> None:
        self.ends: dict[EpisodeId, End] = {}
        self.end = 0
        self.torn = False
        self.fault = ""


def scan_episodes(file: Path) -> Scan:
    scanned = Scan()

    def take(number: int, line: bytes) -> None:
        try:
            id_, end = _checked(_quick(line))
        except StoreError as error:
            raise type(error)(f"{file}:{number}: {error}") from None
        scanned.ends[id_] = end

    return _scan(file, scanned, take)


def scan_metrics(file: Path) -> Scan:
    return _scan(file, Scan(), lambda number, line: _metrics_line(file, number, line))


def _scan(file: Path, scanned: Scan, take: Callable[[int, bytes], Any]) -> Scan:
    """Hands every line to `take`. What it refuses is damage, and raised; on the last line it is
    a torn tail."""
    # one line is held back: only the last one may be torn
    number = 0
    last = b""
    with oserror(file), stream(file, file.parent, through=True) as opened:
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
        raise StoreError(f"{file}:{number}: {error}") from None


# the fast decoder: on opening, every line of a long run is read once
_QUICK = json.JSONDecoder(parse_constant=refuse_constant)


def _quick(line: bytes) -> Any:
    """The JSON of a line without the checks that cost most; whoever reads the episode makes
    them."""
    try:
        return _QUICK.decode(line.decode())  # of bytes json.loads would guess an encoding
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON: {error}") from None


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
