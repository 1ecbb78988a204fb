"""The page of a study: for each score that is compared a heatmap, differences against the
reference, how the axes interact; then every score.

It reads the summary of `gem_ma.scores.studies` and links to the pages of the cells, which
hold the transcripts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gem_ma.kernel.spelling import decimal
from gem_ma.pages.static.marks import RATE, axis_name, axis_of, interval_cell
from gem_ma.pages.static.page import Html, table, text
from gem_ma.pages.static.report import Section, write_report
from gem_ma.pages.static.study_facts import study_facts
from gem_ma.pages.static.study_plots import heat, interaction, is_rate, margins, short_axis
from gem_ma.scores.groups import interval_text
from gem_ma.scores.studies import difference_text

Summary = Mapping[str, Any]
Way = Callable[[str], Html]  # the folder of a cell's run -> what leads there

# convention, not truth: the table prints every p
CLEAR = 0.05  # an adjusted p below it is printed bold


def write_study(
    path: Path, summary: Summary, *, tables: Sequence[str], plots: Sequence[str]
) -> Path:
    """Writes report.html into the study's folder and gives its path. Raises StoreError where it
    cannot be written."""
    return write_report(
        out=path / "report.html",
        title=summary["name"],
        sections=study_sections(path, summary, tables, plots),
        head=study_facts(path, summary),
    )


def study_sections(
    path: Path,
    summary: Summary,
    tables: Sequence[str],
    plots: Sequence[str],
    way: Way | None = None,
) -> list[Section]:
    """The parts of the page. `way`: what leads to the run of a cell, in place of a link to the
    page in its folder."""
    way = way or partial(_link, path)
    compared = [_compared(summary, score, tables, plots, way) for score in summary["compared"]]
    return [*compared, _everything(summary)]


def _compared(
    summary: Summary, score: str, tables: Sequence[str], plots: Sequence[str], way: Way
) -> Section:
    reference = " x ".join(summary["reference"].values())
    paired = " and ".join(summary["paired_by"])
    # the reference and cells without common plays are no comparison
    family = sum(row["p"] is not None for row in summary["comparisons"][score])
    adjusted = (
        f"The two columns called adjusted are right for all {family} comparisons at once: that"
        " interval is Bonferroni's, that p is Holm's; the first interval and the first p are those"
        " of one comparison alone. Holm's test is the sharper of the two: its p may be below 0.05"
        " where Bonferroni's interval still holds 0."
        if summary["correct"] == "holm"
        else "Nothing is adjusted for the number of comparisons."
    )
    note = (
        f"Every cell against {reference}, on plays of the same {paired}. Intervals are 95 % over"
        f" tasks, p is of {summary['resamples']} sign flips over tasks.\n\n{adjusted}"
    )
    figures = [heat(summary, score)] if "heatmap" in plots else []
    figures += [_cells(summary, score, way)] if "paired_diff" in tables else []
    if "interaction" in plots:
        figures += [
            interaction(pair, score, is_rate(summary, score))
            for pair in summary["interactions"][score]
        ]
        figures += [margins(summary, score)] if len(summary["axes"]) > 1 else []
    return Section(score, note, figures=[*filter(None, figures)], command=summary["command"])


def _cells(summary: Summary, score: str, way: Way) -> Html:
    differences = {tuple(row["names"].values()): row for row in summary["comparisons"][score]}
    estimates = [cell["scores"].get(score) for cell in summary["cells"]]
    axis = RATE if is_rate(summary, score) else axis_of(estimates)
    adjusts = summary["correct"] == "holm"
    rows: list[list[object]] = []
    for cell in summary["cells"]:
        names = tuple(cell["names"].values())
        against = differences.get(names)
        entries: list[object] = [
            interval_cell(cell["scores"].get(score), axis),
            f"{cell['ok']} / {cell['failed']} / {cell['excluded']}",
        ]
        entries += [_unbroken(difference_text(against)), _p(against, "p", bold=not adjusts)]
        if adjusts:
            entries += [_unbroken(_adjusted(against)), _p(against, "p_adjusted", bold=True)]
        entries += ["" if against is None else against["pairs"], way(cell["run"])]
        rows.append([*names, *entries])
    family = sum(row["p"] is not None for row in differences.values())
    head: list[object] = [
        *map(short_axis, summary["axes"]),
        axis_name("mean", axis),
        "ok / failed / excluded",
        "difference [95 %]",
        "p",
    ]
    if adjusts:
        head += [f"adjusted interval (Bonferroni, {family})", f"adjusted p (Holm, {family})"]
    return table(
        [*head, "pairs", "run"],
        rows,
        caption=f"{score}, every cell against {' x '.join(summary['reference'].values())}",
    )


def _adjusted(against: Mapping[str, Any] | None) -> str:
    """The interval that holds for all comparisons at once; "" for the reference and for an older
    study, which has none."""
    low, high = (against.get(key) if against else None for key in ("low_adjusted", "high_adjusted"))
    if low is None or high is None:
        return "n/a" if against else ""
    return f"[{decimal(low, high, plus=True)}, {decimal(high, low, plus=True)}]"


def _p(against: Mapping[str, Any] | None, key: str, *, bold: bool) -> Html:
    if against is None or against.get(key) is None:
        return Html("")
    words = f"{against[key]:.4f}"
    return Html(f"<strong>{words}</strong>" if bold and against[key] < CLEAR else words)


def _everything(summary: Summary) -> Section:
    """Every score of every cell, whether it is compared or not."""
    head = [*map(short_axis, summary["axes"]), *summary["scores"], "turns"]
    rows: list[list[object]] = []
    for cell in summary["cells"]:
        means = [
            interval_text(one) if (one := cell["scores"].get(score)) else "n/a"
            for score in summary["scores"]
        ]
        rows.append(
            [
                *cell["names"].values(),
                *means,
                "n/a" if cell["turns"] is None else f"{cell['turns']:.1f}",
            ]
        )
    # those that are compared have heatmaps of their own above
    rest = [score for score in summary["scores"] if score not in summary["compared"]]
    folded = "".join(heat(summary, score) for score in rest) if len(summary["axes"]) == 2 else ""
    figures = [table(head, rows, numbers=True)]
    if folded:
        figures.append(
            Html(
                f"<details><summary>Heatmaps of {text(', '.join(rest))}</summary><div"
                f' class="charts">{folded}</div></details>'
            )
        )
    return Section(
        "Every score",
        "Mean with 95 % interval; to compare another one: --measure NAME.",
        figures=figures,
    )


def _link(path: Path, run: str) -> Html:
    # a folder that was moved or has no page gets no dead link
    there = path / run / "report.html"
    if not there.exists():
        return text(run[-8:])
    # the digest is enough: names of cells are long, and stand in the row already
    return Html(
        f'<a href="{text(quote(run))}/report.html" title="{text(run)}">{text(run[-8:])}</a>'
    )


def _unbroken(words: str) -> Html:
    return Html(f'<span class="interval">{text(words)}</span>')
