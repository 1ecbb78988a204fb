"""`gem-ma study`: plays every cell of a grid as a run of its own, and compares them. What is
done is never played again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gem_ma.cli.completion import sources
from gem_ma.cli.runs import report_of
from gem_ma.cli.stopping import Interrupted, Stopping
from gem_ma.cli.study_tables import show_study
from gem_ma.cli.terminal import (
    Progress,
    concurrency_option,
    json_option,
    progress_line,
    quiet_option,
    tag_option,
    tagged,
    tasks_option,
)
from gem_ma.config.loading import LoadedStudy, load_study
from gem_ma.kernel.errors import BudgetError, EndpointError, StoreError
from gem_ma.pages.static.study import write_study
from gem_ma.runs.cells import (
    Names,
    Playing,
    check_measures,
    keep_comparison,
    keep_config,
    open_cells,
    returns_of_sides,
    study_path,
)
from gem_ma.runs.open import Opened
from gem_ma.runs.store import hold_folder
from gem_ma.scores.studies import Cell
from gem_ma.scores.unheard import lines_of

EXAMPLE = """\b
Example:
  gem-ma study configs/retail_matrix.yaml study.repeats=2 -n 50"""


@click.command(epilog=EXAMPLE)
@click.argument("source", shell_complete=sources, metavar="CONFIG")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@tasks_option
@concurrency_option
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="Compare this score too; may be given several times.",
)
@tag_option
@click.option(
    "--out", type=click.Path(), help="The study's folder.  [default: runs/<config>-<digest>]"
)
@click.option(
    "--fresh", is_flag=True, help="Put the old run folders of the cells aside and start anew."
)
@json_option
@quiet_option
def command(
    source: str,
    overrides: tuple[str, ...],
    tasks: int | None,
    concurrency: int | None,
    measures: tuple[str, ...],
    tags: tuple[str, ...],
    out: str | None,
    **flags: bool,
) -> int:
    """Play every cell of a study and print one table with intervals and paired differences.

    A study is a config with `grid:`: dotted paths, each with named values that replace what
    stands there; or with `cross_play:`, `mix:`, `focal:` or `tournament:`, which say who takes the
    seats. Every cell is a run folder below the study's. The same command again continues where it
    stopped, and plays what the grid has gained.
    """
    options = {"scenario.tasks": tasks, "run.concurrency": concurrency}
    extra = [f"{key}={value}" for key, value in options.items() if value is not None]
    loaded = load_study(source, (*overrides, *extra, *tagged(tags)), typed=True)
    path = Path(out) if out else study_path(loaded)
    # without --fresh, which would put aside what has just been played
    words = ["gem-ma", "study", source, *overrides]
    words += ["-n", str(tasks)] if tasks else []
    words += [word for name in measures for word in ("--measure", name)]
    words += [word for tag in tags for word in ("--tag", tag)]
    words += ["--out", out] if out else []
    return study(loaded, path, shlex.join(words), measures=measures, **flags)


def study(
    loaded: LoadedStudy,
    path: Path,
    again: str,
    *,
    measures: Sequence[str] = (),
    fresh: bool = False,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Plays what is not done yet, compares all; gives the exit code. Raises Interrupted after a
    signal."""
    opened = open_cells(loaded)
    report = loaded.sections.report
    # a score may stand in the config and be typed too
    compared = list(dict.fromkeys([*(report.measures or ()), *measures]))
    check_measures(compared, opened, returns_of_sides(loaded))
    # held: a second command of the same study would play the same cells
    with hold_folder(path):
        keep_config(loaded, path)
        stopping = Stopping(again)
        total = sum(cell.worlds.count() for cell in opened.values())
        tournament = loaded.sections.tournament
        if tournament is not None and tournament.plays is not None:
            total = min(total, tournament.plays)
        cells = _play(loaded, opened, path, stopping, total, compared, fresh, quiet)
        if stopping.signal:
            raise Interrupted(stopping.code, stopping.resume)
        summary = keep_comparison(loaded, cells, compared, path, again)
    show_study(summary, path, as_json, _page(loaded, summary, path), report.tables)
    return _verdict(loaded, cells, summary, path)


def _play(
    loaded: LoadedStudy,
    opened: Mapping[Names, Opened],
    path: Path,
    stopping: Any,
    total: int,
    measures: Sequence[str],
    fresh: bool,
    quiet: bool,
) -> dict[Names, Cell]:
    """Plays every cell, one after the other; those up to a signal. Raises BudgetError and
    EndpointError with how to go on."""
    with stopping, Progress(total, quiet=quiet) as progress:
        playing = Playing(stopping, progress, measures, fresh, report_of)
        try:
            stopping.run(playing.all(opened, path, loaded))
        except (BudgetError, EndpointError) as error:
            # the same class, since the exit code follows from it
            raise type(error)(f"{error}\n{stopping.resume}") from None
    return playing.made


def _page(loaded: LoadedStudy, summary: Mapping[str, Any], path: Path) -> Path | None:
    """Writes the page of the study; one that cannot be written costs a line on stderr, not the
    result."""
    try:
        return write_study(
            path, summary, tables=loaded.sections.report.tables, plots=loaded.sections.report.plots
        )
    except StoreError as error:
        # study.json stands already, and the page can be made from it
        progress_line(f"no report: {error}")
        return None


def _verdict(
    loaded: LoadedStudy, cells: Mapping[Names, Cell], summary: Mapping[str, Any], path: Path
) -> int:
    """0, or 1 and a line about it where a policy of a cell never spoke, or a cell has more failed
    episodes than its config allows."""
    code = 0
    for names, played in cells.items():
        for line in lines_of(played.summary):
            progress_line(f"cell {' x '.join(names)}: {line}")
            code = 1
    for row, cell in zip(summary["cells"], loaded.cells.values(), strict=True):
        if not cell.config.run.tolerates(row["failed"], row["episodes"]):
            name = " x ".join(row["names"].values())
            again = f"gem-ma resume {path / row['run']} --retry-failed"
            progress_line(
                f"cell {name}: {row['failed']} of {row['episodes']} episodes failed,"
                f" {cell.config.run.max_failed} are allowed (run.max_failed); redo them with:"
                f" {again}"
            )
            code = 1
    return code
