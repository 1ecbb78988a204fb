"""Notes and tags that somebody puts on episodes: notes.jsonl beside a run's record, never in it.
The last line about an episode counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.static.beside import add_row, read_rows

FILE = "notes.jsonl"
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
