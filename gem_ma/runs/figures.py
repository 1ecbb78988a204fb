"""The numbers of a figure out of its run folders: one record a run, a line of JSON, which is
all that tables and curves are made of. Whoever reads records needs neither models nor plays.

A record: `row column seed rate tries` of its cell, `scale`, `run` (the folder's name, which holds a
digest of the config), `steps episodes failed seconds`, `score` (what `curve` and `change` are of),
`curve`: [step, turns sampled so far, mean, low, high] of every exam, `change`: the last exam less
the first over the same plays, `also`: other scores, [before, after], `baselines`: name -> [mean,
low, high], and `alarms`: [step, policy, signal], the first of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gem_ma.config.figures import Cell, Figure, RowSettings
from gem_ma.config.loading import Loaded
from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.parsing.strict_json import load_json
from gem_ma.runs.store import read_metrics, read_summary, read_timings, run_path, write_file
from gem_ma.scores.exams import estimate_in
from gem_ma.scores.groups import RETURN, SUCCESS
from gem_ma.system.files import is_file, lines, stream

Record = dict[str, Any]
_DIGITS = 6  # of a number in a record: the rest is rounding
_KEYS = ("row", "column", "seed", "rate", "tries", "scale", "run", "score", "curve")


def cell_path(root: Path, figure: Figure, cell: Cell, loaded: Loaded) -> Path:
    """The run folder of a cell: named by what it sets, so that another setting is another
    training."""
    return run_path(figure.run_name(cell), loaded.identity(), root=root / figure.name)


def record_of(row: RowSettings, cell: Cell, path: Path, scale: str) -> Record | None:
    """The record of a run that has ended, else None; of one that learns nothing the curve is one
    point. Raises StoreError where its folder is damaged, or it has no such score."""
    summary = read_summary(path)
    if summary is None:
        return None
    about = {**cell._asdict(), "scale": scale, "run": path.name, "score": row.score}
    if "after" not in summary:
        whole = summary["episodes"] >= summary.get("planned", 0)
        return {**about, **_played(summary, row.score)} if whole else None
    metrics = list(read_metrics(path))
    curve = _curve(metrics, row)
    if not curve:
        known = ", ".join(summary["after"].get(row.exam, {}).get("scores", {}))
        raise StoreError(f"{path}: its exams have no score {row.score!r} (others: {known})")
    trained = [line for line in metrics if line["kind"] == "train"]
    spent = [line.get("step_s", 0.0) for line in read_timings(path).values()]
    change = summary.get("changes", {}).get(row.exam, {}).get(row.score)
    return {
        **about,
        "steps": summary["steps"],
        "episodes": sum(line["episodes"] for line in trained),
        "failed": sum(line["failed"] for line in trained),
        "seconds": round(sum(spent), 1),
        "curve": curve,
        "change": [_short(change[key]) for key in ("difference", "low", "high")] if change else [],
        "also": _also(summary, row.exam),
        "baselines": _baselines(summary, row.score),
        "alarms": _alarms(metrics),
    }


def _played(summary: Mapping[str, Any], score: str) -> Record:
    """What a run says that learns nothing."""
    agent = score.removeprefix(RETURN)
    estimate = summary["success"] if score == SUCCESS else summary["returns"][agent]
    return {
        "steps": 0,
        "episodes": summary["episodes"],
        "failed": summary["failed"],
        "seconds": 0.0,
        "curve": [[0, 0.0, *(_short(estimate[key]) for key in ("mean", "low", "high"))]],
        "change": [],
        "also": {},
        "baselines": _baselines(summary, score),
        "alarms": [],
    }


def _curve(metrics: Iterable[Mapping[str, Any]], row: RowSettings) -> list[list[float | None]]:
    turns = 0.0
    curve = []
    for line in metrics:
        if line["kind"] == "train":
            turns += sum(policy.get("turns", 0.0) for policy in line["policies"].values())
        if line["kind"] == "evaluation":
            estimate = estimate_in(line, row.exam, row.score)
            if estimate is not None:
                bounds = [_short(estimate[key]) for key in ("mean", "low", "high")]
                curve.append([line["step"], turns, *bounds])
    return curve


def _also(summary: Mapping[str, Any], exam: str) -> dict[str, list[float | None]]:
    """What else the exam counts, before and after: turns and the scenario's own scores."""
    before, after = (summary[when].get(exam, {}) for when in ("before", "after"))
    first, last = (
        {"turns": one["turns"], **one.get("scores", {})} if "turns" in one else {}
        for one in (before, after)
    )
    return {name: [_short(first[name]), _short(last[name])] for name in first if name in last}


def _baselines(summary: Mapping[str, Any], score: str) -> dict[str, list[float | None]]:
    found = {}
    for name, one in summary.get("baselines", {}).items():
        agent = score.removeprefix(RETURN)
        estimate = one["success"] if score == SUCCESS else one["returns"].get(agent)
        if estimate:
            found[name] = [_short(estimate[key]) for key in ("mean", "low", "high")]
    return found


def _alarms(metrics: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """The first alarm of each kind."""
    first: dict[tuple[str, str], int] = {}
    for line in metrics:
        if line["kind"] == "alarm":
            first.setdefault((str(line.get("policy")), str(line.get("signal"))), line["step"])
    return [[step, *about] for about, step in first.items()]


def _short(value: float | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)


def write_records(file: Path, records: Iterable[Record]) -> None:
    """Writes the records of a figure, a line each."""
    text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
    write_file(file, text)


def read_records(file: Path) -> list[Record]:
    """The records of a file, [] where there is none. Raises StoreError that names the line."""
    if not is_file(file):
        return []
    records = []
    with stream(file) as opened:
        for number, line in enumerate(lines(opened, file), 1):
            try:
                record = load_json(line)
            except StoreError as error:
                raise StoreError(f"{file}:{number}: {error}") from None
            if not isinstance(record, dict) or (missing := [k for k in _KEYS if k not in record]):
                lacks = f"without {missing[0]!r}" if isinstance(record, dict) else "is an object"
                raise StoreError(f"{file}:{number}: a record {lacks}")
            records.append(record)
    return records
