"""Run folders as the commands see them: found by name, opened with what their manifest must hold,
printed as a score. Shared by run, train, study, resume, show and check; plays nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from gem_ma import registry
from gem_ma.cli.terminal import columns, emit, emit_json, progress_line
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.kernel.spelling import in_quotes, nearest
from gem_ma.runs.store import read_manifest, read_summary
from gem_ma.runs.store.used import differing
from gem_ma.scores.groups import CAUSES, cause_rows, group_rows
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import table

FEW_GROUPS = 12  # rows of measures and groups that a short score prints
LOST_SHOWN = 5


def run_folder(run: str) -> Path:
    """The run folder of this path, or of this name below runs/. Raises ConfigError with the
    nearest names."""
    # a path that exists wins over a name below runs/
    for path in (Path(run), Path("runs", run)):
        if (path / "manifest.json").is_file():
            return path
    if (Path(run) / "config.yaml").is_file() and any(Path(run).glob("*/manifest.json")):
        raise ConfigError(
            f"{run}: this is the folder of a study; type its `gem-ma study` command again, or name"
            " the run folder of one of its cells"
        )
    # as `gem-ma train --seeds` makes them
    if inside := sorted(path.parent for path in Path(run).glob("*/manifest.json")):
        few = ", ".join(map(str, inside[:3])) + (" ..." if len(inside) > 3 else "")
        raise ConfigError(f"{run}: this is a folder of runs; name one of them: {few}")
    exists = Path(run).exists()
    fault = "is not a run folder: it has no manifest.json" if exists else "no such run folder"
    # `gem-ma show kuhn_poker` is what everybody types first
    is_scenario = run in registry.catalog("scenarios")
    also = f"; to see the scenario: gem-ma show scenario {run}" if is_scenario else ""
    # a study is none, and its folder tells what to type
    marks = (*Path("runs").glob("*/manifest.json"), *Path("runs").glob("*/study.json"))
    known = sorted({str(path.parent) for path in marks})
    # by its config, as in `gem-ma train market`: the folder is runs/market-0123abcd
    if named := [path for path in known if Path(path).name.rpartition("-")[0] == Path(run).stem]:
        meant = " or ".join(map(repr, named[:3]))
        raise ConfigError(f"{run}: {fault} (did you mean {meant}?){also}")
    if also:
        raise ConfigError(f"{run}: {fault}{also}")
    # a list of all runs would be longer than the terminal
    hint = nearest(run, known, listed=False) or "; to see what there is: gem-ma list runs"
    raise ConfigError(f"{run}: {fault}{hint}")


def played_run(run: str, what: str) -> Path:
    """`run_folder` of a run that only played. Raises ConfigError for a training: its plays are of
    a policy that changed, so they have no score together."""
    path = run_folder(run)
    if read_manifest(path).get("command") == "train":
        trained = (read_summary(path) or {}).get("models")
        models = trained if isinstance(trained, dict) else {}
        words = [
            quote(f"policies.{in_quotes(name)}.model={model['engine']}/{path}/{model['path']}")
            for name, model in models.items()
        ]
        # before its end a training has no models to play
        first = f"; play its models first: gem-ma run {quote(f'{path}/resolved.yaml')}"
        raise ConfigError(
            f"{path}: this run is a training, whose plays are of a policy that changed and cannot"
            f" be {what} together{' '.join([first, *words]) if words else ''}"
        )
    return path


def tell_changes(path: Path) -> None:
    """Says what of a run's code or data was edited while it played: its plays are of before."""
    if words := differing(path):
        progress_line(f"{words}; these plays are of the code and data as they were then")


def report_of(path: Path, judge: Judge) -> Path | None:
    """Writes the page of a run; a page that cannot be written costs a line on stderr, not the
    result."""
    # late: whoever shows a score writes no page
    from gem_ma.pages.static.report import write_report

    try:
        return write_report(path, judge=judge)
    except StoreError as error:
        progress_line(f"no report: {error}")
        return None


def show_summary(
    summary: dict[str, Any],
    path: Path,
    as_json: bool,
    report: Path | None = None,
    *,
    whole: bool = False,
    more: list[tuple[str, str]] | None = None,
) -> None:
    """Prints a score; `more` rows stand before the places. Not `whole`: many measures and groups
    are one row that says how to see them."""
    if as_json:
        emit_json({"run": str(path), "report": str(report) if report else None, **summary})
        return
    rows = table(summary)
    # why plays were lost stays in sight
    folded = set(group_rows(summary)) - set(cause_rows(summary))
    if not whole and len(folded) > FEW_GROUPS:
        # forty rows of equal weight hide the few that everybody asks for
        rows = [row for row in rows if row not in folded]
        rows.append(("measures and groups", f"{len(folded)} rows: gem-ma show {path} --all"))
    # a summary of an older version lacks `planned`
    missing = summary.get("planned", 0) - summary["episodes"]
    if missing > 0:
        rows.append(("not played yet", str(missing)))
    emit(columns([*rows, *(more or []), *place_rows(path, report)]))


def lost_rows(summary: Mapping[str, Any], path: Path) -> list[tuple[str, str]]:
    """A row for each of the first lost plays: its name, as `--episode` takes it, and why."""
    # a summary of an older version lists none
    lost = summary.get("lost") or {"count": 0, "episodes": []}
    if not lost["count"]:
        return []
    rows = [("lost", f"{lost['count']}, the first of them: gem-ma show {path} --episode lost")]
    for row in lost["episodes"][:LOST_SHOWN]:
        labels = row["labels"]
        causes = [f"{name} {', '.join(labels[name])}" for name in CAUSES if labels.get(name)]
        why = row["error"] or "; ".join(causes) or row["end"]
        name = f"{row['task']}/{row['seed']}" + (f"#{row['repeat']}" if row["repeat"] else "")
        rows.append((f"lost {name}", why[:100]))
    return rows


def place_rows(path: Path, report: Path | None, name: str = "run folder") -> list[tuple[str, str]]:
    """The last rows of every table: where the run lies, and its page where there is one."""
    return [(name, str(path)), *([("report", str(report))] if report else [])]
