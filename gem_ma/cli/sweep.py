"""`gem-ma train CONFIG --seeds N`: the same training on N seeds, each an ordinary run folder, and
one page with the mean of their curves, its band, and where alarms first rang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.cli.terminal import columns, emit, emit_json
from gem_ma.config.figures import Cell, RowSettings
from gem_ma.pages.static.multiples import Panel, multiples
from gem_ma.pages.static.page import scrolled
from gem_ma.pages.static.paper import alarms_once
from gem_ma.pages.static.report import Section, write_report
from gem_ma.runs.figures import Record, record_of
from gem_ma.runs.store import read_summary
from gem_ma.scores.exams import measured_in
from gem_ma.scores.figures import first_of, last_of
from gem_ma.scores.groups import SUCCESS, interval_text
from gem_ma.scores.stats import mean_interval

HEAD = ("score", "before", "after", "95 % over seeds", "lowest", "highest")


class Sweep(NamedTuple):
    """The trainings of one config on several seeds: the folder of all, and seed -> run folder."""

    path: Path
    folders: Mapping[int, Path]

    def show(self, as_json: bool) -> None:
        """Prints means over seeds of trainings that have ended, and writes their page."""
        summary = read_summary(self.folders[min(self.folders)], ("after",)) or {}
        scores = {
            name: [_record(folder, seed, exam, score) for seed, folder in self.folders.items()]
            for name, (exam, score) in measured_in(summary["after"]).items()
        }
        page = _page(self.path, self.folders, scores)
        seeds = [*self.folders]
        if as_json:
            numbers = {name: [last_of(one).mean for one in held] for name, held in scores.items()}
            emit_json(
                {"sweep": str(self.path), "report": str(page), "seeds": seeds, "after": numbers}
            )
            return
        emit(columns([_row(name, held) for name, held in scores.items()], HEAD))
        emit(columns([("seeds", ", ".join(map(str, seeds))), ("report", str(page))]))


def _record(path: Path, seed: int, exam: str, score: str) -> Record:
    row = RowSettings(kind="", config="", exam=exam, score=score)
    record = record_of(row, Cell("", "", seed), path, "cpu")
    assert record is not None  # it has just ended
    return record


def _row(name: str, records: Sequence[Record]) -> tuple[str, ...]:
    before = [first_of(record).mean for record in records]
    after = [last_of(record).mean for record in records]
    is_rate = records[0]["score"] == SUCCESS
    told = interval_text(mean_interval(after, rate=is_rate)._asdict()) if len(after) > 1 else ""
    start = f"{sum(before) / len(before):.3f}"
    mean, _, bounds = told.partition(" ")
    return name, start, mean, bounds, f"{min(after):.3f}", f"{max(after):.3f}"


def _page(path: Path, folders: Mapping[int, Path], scores: Mapping[str, Sequence[Record]]) -> Path:
    panels = [
        Panel(
            name,
            {"": [[(point[0], point[2]) for point in one["curve"]] for one in held]},
            marks=alarms_once(held),
        )
        for name, held in scores.items()
    ]
    title = f"{path.name}: {len(folders)} seeds"
    about = (
        "scores of exams over steps: mean of the seeds, band from lowest to highest; red: alarms"
    )
    chart = scrolled(multiples(panels, title, about), title)
    rows: dict[str, Any] = {f"seed {seed}": folder for seed, folder in folders.items()}
    sections = [Section(title, figures=[chart]), Section("Each seed", runs=rows)]
    return write_report(out=path / "report.html", sections=sections, title=title)
