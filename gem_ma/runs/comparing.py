"""Two run folders, compared play by play without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import names_code
from gem_ma.runs.store import read_episodes, read_manifest, read_settings, rows_by
from gem_ma.runs.store.names import changed_keys
from gem_ma.runs.store.used import scenario_versions
from gem_ma.runs.stored import Say, open_record
from gem_ma.scores.comparison import compare_cells
from gem_ma.scores.judge import Judge
from gem_ma.scores.metrics import copied_worlds
from gem_ma.scores.rows import last_attempts
from gem_ma.scores.studies import Cell, kinds_of, scores_of
from gem_ma.system.files import damage


def compare_runs(first: Path, second: Path, say: Say, scores: Sequence[str] = ()) -> dict[str, Any]:
    """The keys of `gem_ma.scores.comparison.compare_cells`, with `a` and `b` (the folders) and
    `settings`: what differs between their configs, in words.

    Raises ConfigError for a training, two scenarios and where no play is in both, StoreError for
    damage.
    """
    for path in (first, second):
        if read_manifest(path).get("command") == "train":
            raise ConfigError(
                f"{path}: this run is a training, whose plays are of a policy that changed; play"
                " its models first, and compare those runs"
            )
    cells = [judged_cell(path, open_record(path, say).judge) for path in (first, second)]
    return compared(first, second, cells[0], cells[1], scores)


def compared(
    first: Path, second: Path, before: Cell, after: Cell, scores: Sequence[str] = ()
) -> dict[str, Any]:
    """What `compare_runs` gives, of two folders whose cells are made already."""
    played = [scenario_versions(read_manifest(path)) for path in (first, second)]
    # Seeds and names of tasks are alike in all scenarios. Two files may hold one game.
    own = any(map(names_code, [*played[0], *played[1]]))
    if all(played) and not own and played[0].keys().isdisjoint(played[1]):
        names = [", ".join(ids) for ids in played]
        raise ConfigError(
            f"{second}: it played {names[1]}, and {first} played {names[0]}; only runs of one"
            " scenario are compared"
        )
    # returns may each be finite, and their differences not
    with damage(Path(f"{first} or {second}")):
        comparison = compare_cells(before, after, scores)
    for path, cell in ((first, before), (second, after)):
        if not any(cell.values.values()):
            raise ConfigError(
                f"{path}: it has no play to compare: each failed or was interrupted; gem-ma show"
                f" {path} says why"
            )
    if not comparison["pairs"]:
        raise ConfigError(
            f"{second}: it has no play in common with {first}: no task with the same seed; play"
            " both with the same scenario and the same run.seed"
        )
    settings = changed_keys(read_settings(first), read_settings(second))
    return {"a": str(first), "b": str(second), "settings": settings, **comparison}


def judged_cell(path: Path, judge: Judge, *, anew: bool = False) -> Cell:
    """The scores of a run folder's plays; without a summary but for the names of the measures.
    Raises StoreError for damage."""
    with damage(path / "episodes.jsonl"):
        rows = rows_by(path, judge, anew=anew)
        counted = last_attempts(rows)
        values, measures = scores_of(counted, judge)
        copied = copied_worlds(rows, counted, lambda: read_episodes(path))
    named = {"measures": dict.fromkeys(measures)}
    one_play = bool(copied) and len({row.world for row in counted}) == 1
    kinds = kinds_of(judge.kinds, values, measures)
    return Cell(named, values, world_of(path), str(path), kinds, one_play, frozenset(copied))


def world_of(path: Path) -> str:
    """The scenario's settings of a run folder: equal where equal tasks are the same problems."""
    settings = read_settings(path)
    worlds = settings.get("scenarios") or {"": settings.get("scenario") or {}}
    same = {name: _options_of(dict(world)) for name, world in worlds.items()}
    return json.dumps(same, sort_keys=True, default=str)


def _options_of(world: dict[str, Any]) -> dict[str, Any]:
    # how many tasks were asked for changes none of them, and neither does who plays; a number of
    # agents is an option as any other
    world.pop("tasks", None)
    if isinstance(world.get("agents"), dict):
        del world["agents"]
    return world
