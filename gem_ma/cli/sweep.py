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
from gem_ma.scores.exams import estimate_in, measured_in
from gem_ma.scores.groups import SUCCESS, interval_text
from gem_ma.scores.stats import mean_interval

HEAD = ("score", "before", "after", "95 % over seeds", "lowest", "highest")


class Sweep(NamedTuple):
    """The trainings of one config on several seeds: the folder of all, and seed -> run folder."""

    path: Path
    folders: Mapping[int, Path]

    def show(self, as_json: bool) -> None:
        """Prints means over seeds of trainings that have ended, and writes their page."""
        exams = {
            seed: read_summary(folder, ("before", "after")) or {}
            for seed, folder in self.folders.items()
        }
        # an exam may lack a score: it had no plays, or no views, to measure it on
        scores: dict[str, tuple[str, str]] = {}
        for held in exams.values():
            scores |= measured_in(held["after"])
        before, after = (
            {
                name: [_mean(held[when], *of) for held in exams.values()]
                for name, of in scores.items()
            }
            for when in ("before", "after")
        )
        records = {
            name: [
                _record(folder, seed, *of)
                for (seed, folder), mean in zip(self.folders.items(), after[name], strict=True)
                if mean is not None
            ]
            for name, of in scores.items()
        }
        page = _page(self.path, self.folders, records)
        if as_json:
            told = {"report": str(page), "seeds": [*exams], "after": after}
            emit_json({"sweep": str(self.path), **told})
            return
        emit(columns([_row(name, before[name], after[name]) for name in scores], HEAD))
        emit(columns([("seeds", ", ".join(map(str, exams))), ("report", str(page))]))


def _mean(exams: Mapping[str, Any], exam: str, score: str) -> float | None:
    found = estimate_in(exams, exam, score)
    return None if found is None else found["mean"]


def _record(path: Path, seed: int, exam: str, score: str) -> Record:
    row = RowSettings(kind="", config="", exam=exam, score=score)
    record = record_of(row, Cell("", "", seed), path, "cpu")
    assert record is not None  # it has just ended
    return record


def _row(
    name: str, before: Sequence[float | None], after: Sequence[float | None]
) -> tuple[str, ...]:
    """Means over the seeds whose exam has the score, and of how many where not of all."""
    first, last = ([mean for mean in means if mean is not None] for means in (before, after))
    start = f"{sum(first) / len(first):.3f}{_of(first, before)}" if first else "n/a"
    is_rate = name == SUCCESS or name.endswith(f" {SUCCESS}")
    mean, _, bounds = interval_text(mean_interval(last, rate=is_rate)._asdict()).partition(" ")
    return name, start, f"{mean}{_of(last, after)}", bounds, f"{min(last):.3f}", f"{max(last):.3f}"


def _of(known: Sequence[float], means: Sequence[float | None]) -> str:
    return "" if len(known) == len(means) else f" of {len(known)}"


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
