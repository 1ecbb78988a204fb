"""`gem-ma report`: writes the page of one or several runs, or of a study, anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from gem_ma.cli.completion import run_names
from gem_ma.cli.runs import run_folder
from gem_ma.cli.terminal import emit, emit_json, json_option, once, progress_line
from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.static.report import Section, write_report
from gem_ma.runs.store import is_study, since_compared
from gem_ma.runs.store.used import as_played
from gem_ma.scores.judge import Judge
from gem_ma.system.files import damage, read_json

EXAMPLE = """\b
Examples:
  gem-ma report runs/dilemma-01616cee
  gem-ma report runs/kuhn-1 runs/kuhn-2 -o both.html"""


@click.command(epilog=EXAMPLE)
@click.argument("runs", shell_complete=run_names, nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o",
    "--out",
    type=click.Path(),
    help="The file.  [default: report.html in the run folder; several: report.html here]",
)
@json_option
def command(runs: tuple[str, ...], out: str | None, as_json: bool) -> int:
    """Write the page of a run: one file with scores, lost plays, curves and transcripts, which
    needs no server. Also of several runs together, and of a study's folder."""
    target = Path(out) if out is not None else None
    # the page of another run is not replaced
    if target is not None and target.is_dir() and not (target / "manifest.json").exists():
        target /= "report.html"
    if len(runs) == 1 and is_study(Path(runs[0])):
        page = _study(Path(runs[0]), target)
    else:
        page = _runs(runs, target)
    if as_json:
        emit_json({"report": str(page), "runs": list(runs)})
    else:
        emit(str(page))
    return 0


def _runs(runs: tuple[str, ...], target: Path | None) -> Path:
    """The page of runs that play or learn, each judged by its own scenario."""
    paths = [run_folder(run) for run in runs]
    say = once()
    judges = [_judge(path, say) for path in paths]
    if len(paths) == 1:
        return write_report(paths[0], target, judge=judges[0])
    sections = [
        Section(path.resolve().name, runs=(path,), judge=judge)
        for path, judge in zip(paths, judges, strict=True)
    ]
    # the page of several lies beside none of them
    return write_report(out=target or Path("report.html"), sections=sections)


def _judge(path: Path, say: Callable[[str], None]) -> Judge:
    """Who judges the plays of a run."""
    scenario = as_played(path)
    if scenario is not None:
        return Judge.of(scenario)
    # late: to import the config takes longer than all the rest
    from gem_ma.runs.stored import record_for_page

    return record_for_page(path, say, say).judge


def _study(path: Path, target: Path | None) -> Path:
    # late: the page of a run needs none of it
    from gem_ma.config.settings import StudyReportSettings
    from gem_ma.pages.static.study import write_study

    if target is not None:
        raise ConfigError(f"{path}: the page of a study lies in its folder; leave out --out")
    settings = StudyReportSettings()  # a page that is made anew shows all there is
    summary = read_json(path / "study.json", path)
    with damage(path / "study.json"):
        if line := since_compared(path, summary):
            progress_line(line)
        return write_study(path, summary, tables=settings.tables, plots=settings.plots)
