"""The page of a study: for each score that is compared a heatmap, differences against the reference, how the axes interact; then every score.

It reads the summary of `gem_ma.evaluation.studies` and links to the pages of the cells, which hold the transcripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gem_ma.evaluation.groups import interval_text
from gem_ma.evaluation.kinds import SUCCESS
from gem_ma.evaluation.studies import difference_text
from gem_ma.view.page import Html, table, text
from gem_ma.view.plots import Mark, heatmap, whisker_chart
from gem_ma.view.report import Section, write_report
from gem_ma.view.svg import interval_mark

Summary = Mapping[str, Any]


def write_study(path: Path, summary: Summary, *, tables: Sequence[str], plots: Sequence[str]) -> Path:
    """Writes report.html into the study's folder and gives its path. Raises StoreError where it cannot be written."""
    sections = [_compared(path, summary, score, tables, plots) for score in summary["compared"]]
    sections.append(_everything(summary))
    return write_report(out=path / "report.html", title=summary["name"], sections=sections)


def short_axis(axis: str) -> str:
    """An axis without its section: `agents.user` is `user`."""
    return axis.split(".", 1)[-1]


def _compared(path: Path, summary: Summary, score: str, tables: Sequence[str], plots: Sequence[str]) -> Section:
    reference = " x ".join(summary["reference"].values())
    paired = " and ".join(summary["paired_by"])
    adjusted = "adjusted over all cells (Holm)" if summary["correct"] == "holm" else "not adjusted"
    note = (
        f"Every cell against {reference}, on plays of the same {paired}. Intervals are 95 %; those of differences come from {summary['resamples']} "
        f"resamples of tasks (Student's t below 20 tasks), p from sign flips over tasks, {adjusted}."
    )
    figures = [_heat(summary, score)] if "heatmap" in plots else []
    figures += [_cells(path, summary, score)] if "paired_diff" in tables else []
    if "interaction" in plots:
        figures += [_interaction(one, score) for one in summary["interactions"][score]]
        figures += [_margins(summary, score)] if len(summary["axes"]) > 1 else []
    return Section(score, note, figures=[figure for figure in figures if figure], command=summary["command"])


def _heat(summary: Summary, score: str) -> Html:
    """A heatmap of two axes; of one axis a row of points."""
    axes = summary["axes"]
    if len(axes) == 1:
        ((axis, names),) = axes.items()
        marks = {cell["names"][axis]: _mark(cell["scores"].get(score)) for cell in summary["cells"]}
        y_range = (0.0, 1.0) if score == SUCCESS else None
        svg = whisker_chart(
            {score: [marks[name] for name in names]}, names, title=score, x_label=short_axis(axis), y_label=score, y_range=y_range, joined=False
        )
        return _figure(f"{score} by {short_axis(axis)}", svg)
    if len(axes) > 2:
        return Html("".join(_pair(one, score) for one in summary["interactions"][score]))
    (rows, row_names), (columns, column_names) = axes.items()
    values = {(cell["names"][rows], cell["names"][columns]): _mark(cell["scores"].get(score)) for cell in summary["cells"]}
    title = f"{score}: {short_axis(rows)} (rows) x {short_axis(columns)} (columns)"
    shown = {key: mark for key, mark in values.items() if mark is not None}
    return _figure(title, heatmap(row_names, column_names, shown, title=title, rate=score == SUCCESS))


def _pair(one: Mapping[str, Any], score: str) -> Html:
    """Two of several axes, the others averaged out."""
    rows, columns = one["axes"]
    names = [list(dict.fromkeys(cell["names"][axis] for cell in one["cells"])) for axis in (rows, columns)]
    values = {(cell["names"][rows], cell["names"][columns]): Mark(cell["mean"]) for cell in one["cells"]}
    title = f"{score}: {short_axis(rows)} (rows) x {short_axis(columns)} (columns), mean over the other axes"
    return _figure(title, heatmap(names[0], names[1], values, title=title, rate=score == SUCCESS))


def _cells(path: Path, summary: Summary, score: str) -> Html:
    differences = {tuple(row["names"].values()): row for row in summary["comparisons"][score]}
    rows: list[list[object]] = []
    for cell in summary["cells"]:
        names = tuple(cell["names"].values())
        one, against = cell["scores"].get(score), differences.get(names)
        told: list[object] = [_interval(one, rate=score == SUCCESS), f"{cell['ok']} / {cell['failed']} / {cell['excluded']}"]
        told += [_unbroken(difference_text(against)), "" if against is None or against["p_adjusted"] is None else f"{against['p_adjusted']:.4f}"]
        told += ["" if against is None else against["pairs"], _link(path, cell["run"])]
        rows.append([*names, *told])
    p = "p (Holm)" if summary["correct"] == "holm" else "p"
    head = [*map(short_axis, summary["axes"]), "mean", "ok / failed / excluded", "difference", p, "pairs", "run"]
    return table(head, rows, caption=f"{score}, every cell against {' x '.join(summary['reference'].values())}")


def _interaction(one: Mapping[str, Any], score: str) -> Html:
    """Lines that are not parallel are an interaction; the table says by how much."""
    rows, columns = one["axes"]
    names = list(dict.fromkeys(cell["names"][rows] for cell in one["cells"]))
    lines: dict[str, list[Mark | None]] = {}
    for cell in one["cells"]:
        lines.setdefault(cell["names"][columns], []).append(Mark(cell["mean"]))
    title = f"{score} of {short_axis(columns)} over {short_axis(rows)}"
    y_range = (0.0, 1.0) if score == SUCCESS else None
    svg = whisker_chart(lines, names, title=title, x_label=short_axis(rows), y_label=score, y_range=y_range)
    entries = []
    for cell in one["cells"]:
        known = cell["low"] is not None and cell["high"] is not None
        effect = f"{cell['effect']:+.3f}" + (f" [{cell['low']:+.3f}, {cell['high']:+.3f}]" if known else " [n/a]")
        clear = known and (cell["low"] > 0 or cell["high"] < 0)
        entries.append([cell["names"][rows], cell["names"][columns], f"{cell['mean']:.3f}", Html(f"<strong>{effect}</strong>") if clear else effect])
    caption = (
        f"What a cell has beyond its row and its column, over {one['units']} tasks (or seeds) that all cells played; bold: the interval leaves 0 out."
    )
    return _figure(title, svg + table([short_axis(rows), short_axis(columns), "mean", "interaction"], entries, caption=caption))


def _margins(summary: Summary, score: str) -> Html:
    rows = [
        [short_axis(axis), name, _interval(one, rate=score == SUCCESS), one["n"]]
        for axis, names in summary["margins"][score].items()
        for name, one in names.items()
    ]
    caption = f"{score} of each name, mean over all cells that have it, on what every cell played"
    return table(["axis", "name", "mean", "tasks"], rows, caption=caption) if rows else Html("")


def _everything(summary: Summary) -> Section:
    """Every score of every cell, whether it is compared or not."""
    head = [*map(short_axis, summary["axes"]), *summary["scores"], "turns"]
    rows: list[list[object]] = []
    for cell in summary["cells"]:
        told = [interval_text(one) if (one := cell["scores"].get(score)) else "n/a" for score in summary["scores"]]
        rows.append([*cell["names"].values(), *told, "n/a" if cell["turns"] is None else f"{cell['turns']:.1f}"])
    rest = [score for score in summary["scores"] if score not in summary["compared"]]
    folded = "".join(_heat(summary, score) for score in rest) if len(summary["axes"]) == 2 else ""
    figures = [table(head, rows, numbers=True)]
    if folded:
        figures.append(Html(f'<details><summary>Heatmaps of {text(", ".join(rest))}</summary><div class="charts">{folded}</div></details>'))
    return Section("Every score", "Mean with 95 % interval; to compare another one: --measure NAME.", figures=figures)


def _mark(one: Mapping[str, Any] | None) -> Mark | None:
    return Mark(one["mean"], one["low"], one["high"]) if one and one["mean"] is not None else None


def _link(path: Path, run: str) -> Html:
    there = path / run / "report.html"
    return Html(f'<a href="{text(quote(run))}/report.html" title="{text(run)}">{text(run[-8:])}</a>') if there.exists() else text(run[-8:])


def _unbroken(words: str) -> Html:
    return Html(f'<span class="interval">{text(words)}</span>')


def _interval(estimate: Mapping[str, Any] | None, *, rate: bool) -> Html:
    if not estimate:
        return text("n/a")
    return Html(f'<span class="interval">{text(interval_text(estimate))}</span>{interval_mark(estimate, 0.0, 1.0) if rate else ""}')


def _figure(title: str, inside: str) -> Html:
    return Html(f"<figure><h3>{text(title)}</h3>{inside}</figure>") if inside else Html("")
