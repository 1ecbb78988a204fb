"""`interrupted.jsonl` of a run folder: plays that a budget stopped in the middle, for the replies that they have got already.

They are no episodes of the run. A line that cannot be read costs its replies, nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

from gem_ma.codec import dump_episode, load_episode
from gem_ma.errors import StoreError
from gem_ma.store.disk import oserror
from gem_ma.types import Episode

NAME = "interrupted.jsonl"


def keep_interrupted(path: Path, episode: Episode) -> None:
    """Appends a play that was stopped. Raises StoreError where the disk refuses."""
    file = path / NAME
    with oserror(file), open(file, "ab") as lines:
        lines.write(b"\n" * (lines.tell() > 0 and not _ends_whole(file)) + dump_episode(episode).encode() + b"\n")


def read_interrupted(path: Path) -> list[Episode]:
    """The plays that were stopped, in the order in which they were; [] where there are none."""
    file = path / NAME
    if not file.exists():
        return []
    found = []
    with oserror(file):
        lines = file.read_bytes().split(b"\n")
    for line in lines:
        try:
            found += [load_episode(line)] if line.strip() else []
        except StoreError:
            continue
    return found


def _ends_whole(file: Path) -> bool:
    with open(file, "rb") as lines:
        lines.seek(-1, os.SEEK_END)
        return lines.read(1) == b"\n"
