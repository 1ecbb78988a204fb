"""What the viewer keeps beside a run's record, never in it: files of a JSON object a line, only
ever added to. Among them notes and tags on episodes, of which the last line counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.system import files

FILE = "notes.jsonl"
EXPLAINED = "explained.jsonl"  # what `gem-ma explain` found
# characters, tags, characters of one
MOST_TEXT = 10_000
MOST_TAGS = 20
MOST_TAG = 60


@dataclass(frozen=True, slots=True)
class Note:
    """What somebody wrote on an episode; empty where it was taken away again."""

    text: str = ""
    tags: tuple[str, ...] = ()

    @property
    def chips(self) -> list[str]:
        """The tags as the list of episodes counts and filters them."""
        return [f"tag: {tag}" for tag in self.tags]


def note_of(wish: Mapping[str, Any]) -> Note:
    """A note out of what a page sends: `text`, and `tags` as a list. Raises ConfigError where it is
    too long."""
    text = str(wish["text"]).strip()
    tags = tuple(dict.fromkeys(str(tag).strip() for tag in wish["tags"] if str(tag).strip()))
    if len(text) > MOST_TEXT:
        raise ConfigError(f"a note has {MOST_TEXT} characters at most; this one has {len(text)}")
    if len(tags) > MOST_TAGS or any(len(tag) > MOST_TAG for tag in tags):
        raise ConfigError(f"{MOST_TAGS} tags of {MOST_TAG} characters at most")
    return Note(text, tags)


def read_notes(folder: Path, warn: Callable[[str], None]) -> dict[str, Note]:
    """The notes of a run folder by the keys of their episodes; `warn` is told of damage."""
    return dict(read_rows(folder / FILE, _of_row, warn))


def _of_row(row: Any) -> tuple[str, Note]:
    return str(row["episode"]), Note(str(row["text"]), tuple(map(str, row["tags"])))


def write_note(folder: Path, key: str, note: Note) -> None:
    """Adds a note to those of a run folder. Raises StoreError."""
    row = {"episode": key, "text": note.text, "tags": list(note.tags)}
    add_row(folder / FILE, row)


# -- the files -------------------------------------------------------------------------------------


Entry = TypeVar("Entry")


def read_rows(
    path: Path, make: Callable[[Any], Entry], warn: Callable[[str], None]
) -> Iterator[Entry]:
    """What `make` makes of each line; nothing without such a file. A line that is damaged
    is passed over, and `warn` is told file and line."""
    try:
        if not files.is_file(path, path.parent):
            return
        with files.oserror(path), files.stream(path, path.parent) as opened:
            for number, line in enumerate(files.lines(opened, path), start=1):
                try:
                    yield _made(f"{path}: line {number}", line, make)
                except StoreError as error:
                    # without an end its writer was stopped, and nobody was told that it is kept
                    if line.endswith(b"\n"):
                        warn(f"{error}; mend or remove the line, the others are read")
    except StoreError as error:
        warn(str(error))


def _made(where: str, line: bytes, make: Callable[[Any], Entry]) -> Entry:
    try:
        with files.damage(Path(where)):
            return make(load_json(line))
    except StoreError as error:
        told = str(error)
        raise StoreError(told if told.startswith(where) else f"{where}: {told}") from None


def add_row(path: Path, row: Any) -> None:
    """Adds a line behind all others. One that its writer did not end is taken away, unless it is
    whole: an editor may have dropped its end. Raises StoreError."""
    data = dump_json(row).encode() + b"\n"
    with files.oserror(path):
        if torn := _torn(path):
            try:
                load_json(torn)
                data = b"\n" + data
            except (StoreError, ValueError):
                files.shorten(path, len(torn), path.parent)
        files.append(path, data, path.parent)


def _torn(path: Path) -> bytes:
    """What stands behind the last end of a line."""
    last = b""
    if files.is_file(path, path.parent):
        with files.stream(path, path.parent) as opened:
            for line in files.lines(opened, path):
                last = line
    return b"" if last.endswith(b"\n") else last
