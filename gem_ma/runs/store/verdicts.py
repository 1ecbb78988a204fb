"""What was said of the plays of a run when they were played: their rows in the index or, of a
folder of an older version, the lines of verdicts.jsonl; and how a judge completes them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from gem_ma.runs.store.index import EPISODES, PlacedRows, holds, read_stamp
from gem_ma.runs.store.lines import (
    fitting_rows,
    known_rows,
    read_episodes,
    read_rows,
    scan_episodes,
    stamped_places,
)
from gem_ma.scores.groups import Id
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import PlayRow, complete
from gem_ma.system.files import is_file, lines, stream

_OLDER = "verdicts.jsonl"


def read_verdicts(path: Path) -> Mapping[Id, PlayRow]:
    """Of each play its last row that says more than how it ended. A line that cannot be read is
    passed over, since its play can be judged again."""
    path = Path(path)
    found = None if is_file(path / _OLDER, path) else read_stamp(path)
    if found is not None and found[0].whole and holds(path, *found):
        places = stamped_places(path, found[0])
        if places is not None:
            return PlacedRows(path, places, partial(_read, path))
    return _read(path)


def rows_by(path: Path, judge: Judge, *, anew: bool = False) -> list[PlayRow]:
    """The rows of a run's plays as this judge has judged them; those that nobody has judged, or
    all `anew`, are read. Raises StoreError for damage."""
    made = judge.rows(strict=True)
    if anew:
        return [made.of(episode) for episode in read_episodes(path)]
    rows = read_rows(path, PlayRow)
    complete(rows, made, partial(read_episodes, path))
    return rows


def _read(path: Path) -> dict[Id, PlayRow]:
    rows = {row.id: row for row in _older(path)}
    file = path / EPISODES
    known = fitting_rows(file, PlayRow) if is_file(file, path) else []
    if known is None:
        known = scan_episodes(file, known_rows(file, PlayRow), PlayRow).rows
    return rows | {row.id: row for row in known if row.is_whole}


def _older(path: Path) -> Iterator[PlayRow]:
    with contextlib.suppress(FileNotFoundError), stream(path / _OLDER, path) as file:
        for line in lines(file, path / _OLDER):
            with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
                said = json.loads(line)
                row = PlayRow(0, "", "", *said.pop("id"))
                for hook, value in said.items():
                    setattr(row, hook, value)
                yield row
