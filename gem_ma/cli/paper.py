"""`gem-ma paper`: runs every cell of the figures of configs/paper, and writes one page of what came
out. A cell is an ordinary run folder of `gem-ma train` (or `gem-ma run`, where its config learns
nothing); one that has ended is never begun again, and what is not run yet stays in the tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from gem_ma.cli.new import command as new
from gem_ma.cli.run import play
from gem_ma.cli.terminal import (
    clock,
    columns,
    emit,
    emit_json,
    json_option,
    progress_line,
    stderr,
)
from gem_ma.cli.train import train_into
from gem_ma.config.figures import Cell, Figure, chosen_rows, load_figure, shipped_figures
from gem_ma.config.loading import Loaded
from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.kernel.spelling import nearest
from gem_ma.pages.static.paper import Drawn, drawn, sections_of
from gem_ma.pages.static.report import write_report
from gem_ma.runs.figures import (
    Record,
    cell_path,
    read_records,
    record_of,
    write_records,
)
from gem_ma.runs.open import Opened, open_config
from gem_ma.scores.figures import SCORINGS, best_rates, first_of, last_of
from gem_ma.system.files import damage
from gem_ma.training.schedule.checks import open_training

ASKS_ABOVE = 10.0  # minutes of a processor that nobody spends without having been told
EXAMPLE = """\b
Examples:
  gem-ma paper --only a/hanoi
  gem-ma paper --only a --records docs/paper"""


@click.command(epilog=EXAMPLE)
@click.option(
    "--only",
    multiple=True,
    metavar="FIGURE[/ROW]",
    help="This figure, or one row of it; may be given again.  [default: all]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/paper"),
    show_default=True,
    help="Where run folders, records and the page go.",
)
@click.option(
    "--scale",
    type=click.Choice(["cpu", "gpu"]),
    default="cpu",
    show_default=True,
    help="Small models on a processor, or the paper's own models, batch and lengths.",
)
@click.option(
    "--records",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Train nothing: make tables and page of the records in this folder.",
)
@click.option("--yes", is_flag=True, help="Train also what takes more than ten minutes.")
@json_option
def command(
    only: tuple[str, ...],
    out: Path,
    scale: str,
    records: Path | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Repeat the experiments of the paper in small: figures a to g, each a grid of runs.

    The same command again goes on where it stopped. Before more than ten minutes of work it says
    what they are and wants --yes; tables and page are written of what is there already.
    """
    states = [_State(figure, out, scale) for figure in figures_of(only)]
    if records is not None:
        for state in states:
            state.records = [
                record
                for record in read_records(records / f"{state.figure.name}.jsonl")
                if record["row"] in state.figure.settings.rows and record["scale"] == scale
            ]
    else:
        for state in states:
            state.look()
        _train(states, yes, shlex.join(["gem-ma", "paper", *_typed(only, out, scale), "--yes"]))
    made = []
    for state in states:
        with damage((records or out) / f"{state.figure.name}.jsonl"):
            made.append(drawn(state.figure, state.records, state.lost))
    page = write_report(
        out=out / "report.html", sections=sections_of(made), title="The paper in one command"
    )
    _show(made, page, as_json)
    return 0


def figures_of(only: Sequence[str]) -> list[Figure]:
    """The figures that were asked for, each with all of its rows or some. Raises ConfigError."""
    shipped = shipped_figures()
    figures: dict[str, list[str]] = {}
    for word in only or shipped:
        name, _, row = word.partition("/")
        if name not in shipped:
            raise ConfigError(
                f"--only {word}: no figure is called {name!r}{nearest(name, shipped)}"
            )
        figures.setdefault(name, []).append(row)
    return [
        load_figure(shipped[name]) if "" in rows else chosen_rows(load_figure(shipped[name]), rows)
        for name, rows in figures.items()
    ]


def _typed(only: Sequence[str], out: Path, scale: str) -> list[str]:
    words = [word for name in only for word in ("--only", name)]
    words += ["--out", str(out)] if str(out) != "runs/paper" else []
    return [*words, *(["--scale", scale] if scale != "cpu" else [])]


@dataclass
class _State:
    """A figure and what is known of its cells: records of those that have ended, and why a row
    could not be run in a column."""

    figure: Figure
    out: Path
    scale: str
    records: list[Record] = field(default_factory=list)
    lost: dict[tuple[str, str], str] = field(default_factory=dict)

    def look(self) -> None:
        """Reads what is there; opens every config once, so that a fault is found before hours."""
        known = {
            (record["row"], record["run"]): record
            for record in read_records(self.out / f"{self.figure.name}.jsonl")
        }
        self.records = []
        for cell, loaded in self._opened([*self.figure.trials(), *self.reported()]):
            path = cell_path(self.out, self.figure, cell, loaded)
            row = self.figure.settings.rows[cell.row]
            # a record without its run folder counts too: folders are large
            record = record_of(row, cell, path, self.scale) or known.get((cell.row, path.name))
            self.records += [record] if record else []

    def _opened(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Loaded]]:
        tried = set[tuple[str, str]]()
        for cell in cells:
            try:
                loaded = self.figure.load(cell, self.scale)
                if (cell.row, cell.column) not in tried and self.scale == "gpu":
                    # whatever would stop it is found here, where no GPU is at hand, too
                    open_cell(loaded)
                tried.add((cell.row, cell.column))
                yield cell, loaded
            except GemMaError as error:
                self.lost[cell.row, cell.column] = _reason(error)

    def reported(self) -> Iterator[Cell]:
        """The cells that are reported; where a rate is still to be chosen, none."""
        settings = self.figure.settings
        if settings.rates is None:
            yield from self.figure.cells()
            return
        trials = len(settings.rates.factors) * len(settings.rates.seeds)
        less = {name: row.less for name, row in settings.rows.items()}
        chosen = best_rates(self.records, less, trials, SCORINGS[settings.compares])
        for cell in self.figure.cells():
            if (cell.row, cell.column) in chosen:
                yield cell._replace(rate=chosen[cell.row, cell.column])

    def left(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of these cells that are neither done nor lost."""
        done = {tuple(record[key] for key in Cell._fields) for record in self.records}
        return [cell for cell in cells if tuple(cell) not in done and not self.is_lost(cell)]

    def is_lost(self, cell: Cell) -> bool:
        """Whether the like of it could not be run, with another seed."""
        return (cell.row, cell.column) in self.lost

    def minutes(self) -> float:
        """What all that is left will take, as the rows say it."""
        rows = self.figure.settings.rows
        cells = [*self.left([*self.figure.trials()])]
        done = {(r["row"], r["column"], r["seed"]) for r in self.records if not r["tries"]}
        cells += [cell for cell in self.figure.cells() if tuple(cell)[:3] not in done]
        return sum(rows[cell.row].minutes for cell in cells if not rows[cell.row].of)

    def train(self, cell: Cell, again: str) -> None:
        """Trains a cell, and keeps the record of it. Raises Interrupted after a signal, with the
        command that goes on (`again`)."""
        row = self.figure.settings.rows[cell.row]
        what = f"{self.figure.name}: {self.figure.run_name(cell)}"
        try:
            # before the config is read: what `dtype: auto` means is read off the model's folder
            _make_model(row.first, self.figure.path.parents[1])
            loaded = self.figure.load(cell, self.scale)
            path = cell_path(self.out, self.figure, cell, loaded)
            if record_of(row, cell, path, self.scale) is None:
                progress_line(f"{what} ...")
                # a page for each of hundreds would cost as much as a short training
                if loaded.config.train is None:
                    play(loaded, path, resume=again, quiet=True, say_score=False)
                else:
                    train_into(loaded, path, resume=again, quiet=True, page=False)
            record = record_of(row, cell, path, self.scale)
        except GemMaError as error:
            self.lost[cell.row, cell.column] = _reason(error)
            progress_line(f"{what}: {error}")
            return
        if record is not None:
            self.records.append(record)
            ways = f"{first_of(record).mean:.3f} -> {last_of(record).mean:.3f}"
            progress_line(f"{what}: {row.score} {ways}, {record['seconds']:.0f} s")
        # those of rows that were not asked for stay
        file = self.out / f"{self.figure.name}.jsonl"
        others = [one for one in read_records(file) if one["row"] not in self.figure.settings.rows]
        write_records(file, [*others, *self.records])


def open_cell(loaded: Loaded) -> Opened:
    """A cell that learns or one that only plays, opened but for its models."""
    return open_config(loaded) if loaded.config.train is None else open_training(loaded)


def _reason(error: GemMaError) -> str:
    return str(error).splitlines()[0]


def _make_model(words: str, configs: Path) -> None:
    """Types the command that makes the model of a row, where its folder is not there. `{configs}`
    in it is the folder of the configs: a wheel's lies among its packages."""
    typed = [word.replace("{configs}", str(configs)) for word in shlex.split(words)]
    if not typed or Path(typed[2]).exists():
        return
    with redirect_stdout(stderr()):
        new.main(args=typed[1:], prog_name="gem-ma new", standalone_mode=False)


def _train(states: Sequence[_State], yes: bool, again: str) -> None:
    """Trains what is left; where that is long and nobody said yes, tells it alone."""
    minutes = sum(state.minutes() for state in states)
    done = sum(len(state.records) for state in states)
    progress_line(
        f"{done} trainings are done; the others take about {clock(60 * minutes)} of a core"
    )
    if minutes > ASKS_ABOVE and not yes:
        progress_line(f"train them with: {again}")
        return
    for state in states:
        for cells in (state.figure.trials, state.reported):
            for cell in state.left([*cells()]):
                if not state.is_lost(cell):
                    state.train(cell, again)


def _show(made: Sequence[Drawn], page: Path, as_json: bool) -> None:
    if as_json:
        figures: dict[str, Any] = {
            one.figure.name: {
                "state": one.state,
                "tables": [table._asdict() for table in one.tables],
            }
            for one in made
        }
        emit_json({"report": str(page), "figures": figures})
        return
    for one in made:
        emit(f"({one.figure.name}) {one.figure.settings.title}. {one.state}")
        for table in one.tables:
            emit(columns(table.rows, table.columns))
    emit(f"report  {page}")
