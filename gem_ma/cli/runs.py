"""Run folders as the commands see them: found by name, opened with what their manifest must hold,
printed as a score. Shared by run, train, study, resume, show and check; plays nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gem_ma.scenario import Scenario


def run_folder(run: str) -> Path:
    """The run folder of this path, or of this name below runs/. Raises ConfigError with the
    nearest names."""
    from pathlib import Path

    from gem_ma import registry
    from gem_ma.config.spelling import nearest
    from gem_ma.errors import ConfigError

    # a path that exists wins over a name below runs/
    for path in (Path(run), Path("runs", run)):
        if (path / "manifest.json").is_file():
            return path
    if (Path(run) / "config.yaml").is_file() and any(Path(run).glob("*/manifest.json")):
        raise ConfigError(
            f"{run}: this is the folder of a study; type its `gem-ma study` command again, or name"
            " the run folder of one of its cells"
        )
    exists = Path(run).exists()
    fault = "is no run folder: it has no manifest.json" if exists else "no such run folder"
    # `gem-ma show kuhn_poker` is what everybody types first
    if run in registry.catalog("scenarios"):
        raise ConfigError(f"{run}: {fault}; to see the scenario: gem-ma show scenario {run}")
    known = [str(path.parent) for path in sorted(Path("runs").glob("*/manifest.json"))]
    # a list of all runs would be longer than the terminal
    hint = nearest(run, known, listed=False) or "; to see what there is: gem-ma list runs"
    raise ConfigError(f"{run}: {fault}{hint}")


def success_of(scenario: Scenario) -> Any:
    """The scenario's notion of success, or None where it has none."""
    from gem_ma.evaluation.judge import Judge

    return Judge.of(scenario).success


def report_of(path: Path, scenario: Scenario) -> Path | None:
    """Writes the page of a run; a page that cannot be written costs a line on stderr, not the
    result."""
    from gem_ma.cli.terminal import progress_line
    from gem_ma.errors import StoreError
    from gem_ma.evaluation.judge import Judge
    from gem_ma.view.report import write_report

    try:
        return write_report(path, judge=Judge.of(scenario))
    except StoreError as error:
        progress_line(f"no report: {error}")
        return None


def show_summary(
    summary: dict[str, Any], path: Path, as_json: bool, report: Path | None = None
) -> None:
    """Prints a score."""
    from gem_ma.cli.terminal import columns, emit, emit_json
    from gem_ma.evaluation.costs import cost_rows
    from gem_ma.evaluation.summary_rows import table

    if as_json:
        emit_json({"run": str(path), "report": str(report) if report else None, **summary})
        return
    rows = [*table(summary), *cost_rows(summary.get("costs", {}))]
    # a summary of an older version lacks `planned`
    missing = summary.get("planned", 0) - summary["episodes"]
    if missing > 0:
        rows.append(("not played yet", str(missing)))
    emit(columns([*rows, *place_rows(path, report)]))


def place_rows(path: Path, report: Path | None, name: str = "run folder") -> list[tuple[str, str]]:
    """The last rows of every table: where the run lies, and its page where there is one."""
    return [(name, str(path)), *([("report", str(report))] if report else [])]
