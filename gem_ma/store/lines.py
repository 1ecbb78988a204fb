"""Reading a run folder, with or without its lock: lines, ids, manifest, images. It never writes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from gem_ma.codec import ENDS, check_schema, load_episode, load_json
from gem_ma.errors import SchemaError, StoreError
from gem_ma.store.disk import media_file, oserror
from gem_ma.types import End, Episode

EpisodeId = tuple[str, int, int]


def read_episodes(path: Path, only: Container[EpisodeId] | None = None) -> Iterator[Episode]:
    """Episodes of a run folder or of one episodes.jsonl, the last attempt of each id, in the order of the file; one at a time.

    `only`: these ids, which costs little for the others.

    A torn tail (a writer may be at work) is passed over. Raises StoreError with the line number for damage, SchemaError for a newer schema.
    """
    file = _lines_file(path, "episodes.jsonl")
    last: dict[EpisodeId, int] = {}
    for number, line in _whole_lines(file):
        last[_identity(file, number, line)] = number
    return _decoded(file, {number for id_, number in last.items() if only is None or id_ in only})


def read_ends(path: Path) -> dict[EpisodeId, End]:
    """How each episode of a run ended, without decoding them. Raises StoreError with the line number for damage."""
    file = _lines_file(path, "episodes.jsonl")
    with oserror(file):
        return scan_episodes(file).ends


def _decoded(file: Path, wanted: set[int]) -> Iterator[Episode]:
    for number, line in _whole_lines(file):
        if number in wanted:
            try:
                episode = load_episode(line)
            except StoreError as error:
                raise type(error)(f"{file}:{number}: {error}") from None
            yield episode


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run folder's metrics.jsonl (or of the file itself). Raises StoreError with the line number for damage."""
    file = _lines_file(path, "metrics.jsonl", missing_is_empty=True)
    return (_metrics_line(file, number, line) for number, line in _whole_lines(file))


def read_timings(path: Path) -> dict[int, dict[str, Any]]:
    """Step -> its row of a run folder's timings.jsonl; of a step that was made twice the later one. A line that cannot be read is passed over."""
    found: dict[int, dict[str, Any]] = {}
    with contextlib.suppress(OSError), open(Path(path) / "timings.jsonl", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict) and type(row.get("step")) is int:
                    found[row["step"]] = row
    return found


def read_manifest(path: Path) -> dict[str, Any]:
    """manifest.json of a run folder. Raises StoreError where it is damaged, SchemaError where it is newer."""
    file = Path(path) / "manifest.json"
    with oserror(file):
        text = file.read_bytes()
    try:
        manifest = load_json(text)
        check_schema(manifest if isinstance(manifest, dict) else {})
    except StoreError as error:
        raise type(error)(f"{file}: {error}") from None
    return manifest


def read_summary(path: Path, wants: Iterable[str] = ()) -> dict[str, Any] | None:
    """summary.json of a run folder, None where there is none yet. Raises StoreError where it is damaged, or lacks a key of `wants`."""
    file = Path(path) / "summary.json"
    if not file.exists():
        return None
    with oserror(file):
        text = file.read_bytes()
    try:
        summary = load_json(text)
    except StoreError as error:
        raise StoreError(f"{file}: {error}") from None
    if not isinstance(summary, dict):
        raise StoreError(f"{file}: expected an object, got {type(summary).__name__}")
    missing = [key for key in wants if key not in summary]
    if missing:
        raise StoreError(f"{file}: {missing[0]!r} is missing")
    return summary


def read_media(path: Path, digest: str) -> bytes:
    """The bytes of an image of a run folder. Raises StoreError where they are absent or differ from the digest."""
    file = media_file(Path(path), digest)
    with oserror(file):
        data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreError(f"{file}: its bytes differ from its name, which is their SHA-256")
    return data


def list_runs(root: Path = Path("runs")) -> list[dict[str, Any]]:
    """Run folders below `root`, newest first: `name`, `path`, `created`, `scenario`, `lines`, `finished`, or `error` for an unreadable one."""
    found: list[dict[str, Any]] = []
    root = Path(root)
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not (folder / "manifest.json").is_file():
            continue
        run: dict[str, Any] = {"name": folder.name, "path": str(folder)}
        try:
            manifest = read_manifest(folder)
            scenario = read_resolved(folder).get("scenario", {})
            run |= {"created": manifest.get("created", ""), "scenario": scenario.get("id") if isinstance(scenario, dict) else scenario}
            run |= {"lines": _count_lines(folder / "episodes.jsonl"), "finished": (folder / "summary.json").exists(), "error": None}
        except (StoreError, OSError) as error:
            run["error"] = str(error)
        found.append(run)
    return sorted(found, key=lambda run: str(run.get("created", "")), reverse=True)


def _count_lines(file: Path) -> int:
    with file.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def _lines_file(path: Path, name: str, missing_is_empty: bool = False) -> Path:
    path = Path(path)
    file = path / name if path.is_dir() else path
    if not file.is_file() and not (missing_is_empty and path.is_dir()):
        raise StoreError(f"{file}: there is no such file; is {path} a run folder? (`gem-ma list runs` shows them)")
    return file


def _whole_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of every line that ends with a newline; an unreadable last one is the writer's torn tail and passed over."""
    if not file.exists():
        return
    with oserror(file), file.open("rb") as stream:
        held: tuple[int, bytes] | None = None
        for number, line in enumerate(stream, 1):
            if held is not None:
                yield held
            held = (number, line) if line.endswith(b"\n") else None
        if held is not None and _is_json(held[1]):
            yield held


def _is_json(line: bytes) -> bool:
    try:
        load_json(line)
    except StoreError:
        return False
    return True


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
    id_, end = data.get("id"), data.get("end")
    if not (isinstance(id_, list) and len(id_) == 3 and isinstance(id_[0], str) and type(id_[1]) is int and type(id_[2]) is int):
        raise StoreError(f"id: expected [task, seed, repeat], got {id_!r}")
    if not isinstance(end, str) or end not in ENDS:
        raise StoreError(f"end: {end!r} is not one of {', '.join(ENDS)}")
    return (id_[0], id_[1], id_[2]), ENDS[end]


def _metrics_line(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        values = load_json(line)
    except StoreError as error:
        raise StoreError(f"{file}:{number}: {error}") from None
    if not isinstance(values, dict):
        raise StoreError(f"{file}:{number}: expected an object, got {type(values).__name__}")
    return values


class Scan:
    """What a file of lines holds: ids, the end of its last good line, whether something torn follows."""

    def __init__(self) -> None:
        self.ends: dict[EpisodeId, End] = {}
        self.end = 0
        self.torn = False


def scan_episodes(file: Path) -> Scan:
    found = Scan()

    def take(number: int, line: bytes) -> None:
        try:
            id_, end = _checked(_quick(line))
        except SchemaError as error:
            raise SchemaError(f"{file}:{number}: {error}") from None
        except StoreError as error:
            where = f"{file}:{number}: {error}"
            raise StoreError(f"{where}; the file is damaged in the middle, restore this line or cut it out by hand") from None
        found.ends[id_] = end

    return _scan(file, found, take)


def scan_metrics(file: Path) -> Scan:
    return _scan(file, Scan(), lambda number, line: _metrics_line(file, number, line))


def _scan(file: Path, found: Scan, take: Callable[[int, bytes], Any]) -> Scan:
    """Hands every line to `take`. What it refuses is a torn tail on the last line, damage before it: only then its error is raised."""
    damage: StoreError | None = None
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if damage is not None:
                raise damage
            try:
                if not line.endswith(b"\n"):
                    raise StoreError("no newline at its end")
                take(number, line)
            except SchemaError:
                raise
            except StoreError as error:
                damage = error
                continue
            found.end += len(line)
    found.torn = damage is not None
    return found


def _quick(line: bytes) -> Any:
    """The JSON of a line without the checks that cost most; whoever reads the episode makes them."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON: {error}") from None


def read_resolved(path: Path) -> dict[str, Any]:
    import yaml

    file = path / "resolved.yaml"
    with oserror(file):
        text = file.read_bytes()
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise StoreError(f"{file}: damaged: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(value, dict):
        raise StoreError(f"{file}: expected a mapping, got {type(value).__name__}")
    return value
