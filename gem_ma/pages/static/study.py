"""The page of a study: what was run, for each score that is compared a heatmap, differences against
the reference, how the axes interact; then every score.

It reads the summary of `gem_ma.scores.studies`, and of what was run the folders of the cells, whose
pages hold the transcripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.spelling import decimal
from gem_ma.pages.static.facts import facts_block
from gem_ma.pages.static.figures import RATE, Mark, axis_name, axis_of, figure, interval_cell
from gem_ma.pages.static.page import Html, scrolled, table, text
from gem_ma.pages.static.plots import heatmap, whisker_chart
from gem_ma.pages.static.report import Section, write_report
from gem_ma.runs.store import read_manifest, read_resolved, read_summary
from gem_ma.scores.columns import table_columns
from gem_ma.scores.groups import SUCCESS
from gem_ma.scores.sides import (
    MIX_NOTE,
    RATED_NOTE,
    STANDINGS_NOTE,
    axis_names,
    halves_text,
    mix_rows,
    not_told,
    seats_text,
    standing_rows,
    tournament_rows,
    two_means,
    two_returns,
)
from gem_ma.scores.studies import (
    cell_text,
    difference_text,
    of_plays,
)

Summary = Mapping[str, Any]
Way = Callable[[str], Html]  # the folder of a cell's run -> what leads there

# convention, not truth: the table prints every p
CLEAR = 0.05  # an adjusted p below it is printed bold


def write_study(
    path: Path,
    summary: Summary,
    *,
    tables: Sequence[str],
    plots: Sequence[str],
    out: Path | None = None,
) -> Path:
    """Writes the page, report.html in the study's folder where `out` names no other file, and gives
    its path. Raises StoreError where it cannot be written."""
    return write_report(
        out=out or path / "report.html",
        title=summary["name"],
        sections=study_sections(path, summary, tables, plots),
        head=study_lead(summary),
        facts=study_facts(path, summary),
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
    beside = _beside(summary) if "heatmap" in plots else []
    mixed = _told(
        summary.get("mix"), "What it pays to change sides", MIX_NOTE, mix_rows, halves_text
    )
    title = "Who is strongest, of {plays} plays"
    rated = _told(summary.get("tournament"), title, RATED_NOTE, tournament_rows, halves_text)
    title = "Who is good in this population"
    good = _told(summary.get("population"), title, STANDINGS_NOTE, standing_rows, seats_text)
    return [*mixed, *rated, *beside, *compared, *good, *_others(summary)]


def _beside(summary: Summary) -> list[Section]:
    """The heatmaps of several compared scores as small multiples, above them both returns of each
    cell where the axes are the two that are paid. Nothing of a single score."""
    figures: list[Html] = []
    if pair := two_returns(summary):
        rows, columns = summary["axes"]
        told = {tuple(cell["names"].values()): two_means(cell, pair) for cell in summary["cells"]}
        names = summary["axes"][columns]
        body = [
            [row, *(told.get((row, name), "n/a") for name in names)]
            for row in summary["axes"][rows]
        ]
        head = f"{short_axis(summary, rows)} \\ {short_axis(summary, columns)}"
        figures.append(table([head, *names], body, caption=" / ".join(pair)))
    if len(summary["compared"]) > 1:
        drawn = "".join(heat(summary, score) for score in summary["compared"])
        figures.append(Html(f'<div class="charts">{drawn}</div>'))
    return [Section("Side by side", figures=figures)] if figures else []


def _told(
    found: Any, title: str, note: str, rows_of: Callable[[Any], Any], words_of: Callable[[Any], str]
) -> list[Section]:
    """A table that some studies have beside their scores, and what it says in words; nothing of
    others, and of older ones."""
    if not found:
        return []
    rows, head = rows_of(found)
    words = "\n\n".join(filter(None, (note, words_of(found))))
    return [Section(title.format_map(found), words, figures=[table(head, rows)])]


def _compared(
    summary: Summary, score: str, tables: Sequence[str], plots: Sequence[str], way: Way
) -> Section:
    reference = " x ".join(summary["reference"].values())
    paired = " and ".join(summary["paired_by"])
    # neither the reference nor a cell without common plays is a comparison
    family = sum(row["p"] is not None for row in summary["comparisons"][score])
    adjusted = (
        f"What is called adjusted is right for all {family} comparisons at once: that interval is"
        " Bonferroni's, that p is Holm's; the first interval and the first p are those of one"
        " comparison alone. Holm's test is the sharper of the two: its p may be below 0.05 where"
        " Bonferroni's interval still holds 0."
        if summary["correct"] == "holm" and family
        else "Nothing is adjusted for the number of comparisons."
    )
    note = (
        f"Every cell against {reference}, on plays of the same {paired}. Intervals are 95 % over"
        f" tasks, p is of {summary['resamples']} sign flips over tasks.\n\n{adjusted}"
    )
    if words := not_told(summary):
        note += f"\n\nNot told: {words}."
    is_first = score == summary["compared"][0]
    # of several scores the heatmaps stand together, above all of their tables
    figures = [heat(summary, score)] if "heatmap" in plots and len(summary["compared"]) < 2 else []
    figures += [_cells(summary, score, way)] if "paired_diff" in tables else []
    if "interaction" in plots:
        together = [
            interaction(summary, pair, score, is_rate(summary, score))
            for pair in summary["interactions"][score]
        ]
        together += [margins(summary, score)] if len(summary["axes"]) > 1 else []
        words = f"How {' and '.join(axis_names(summary['axes']))} work together: {score}"
        inside = "".join(together)
        folded = f"<details><summary>{text(words)}</summary>{inside}</details>"
        figures.append(Html(folded if inside else ""))
    command = summary["command"] if is_first else ""
    return Section(
        score, note if is_first else "", figures=[*filter(None, figures)], command=command
    )


def _cells(summary: Summary, score: str, way: Way) -> Html:
    differences = {tuple(row["names"].values()): row for row in summary["comparisons"][score]}
    estimates = [cell["scores"].get(score) for cell in summary["cells"]]
    axis = RATE if is_rate(summary, score) else axis_of(estimates)
    # plays that are one play again are compared without any p
    is_tested = any(row["p"] is not None for row in differences.values())
    adjusts = summary["correct"] == "holm" and is_tested
    rows: list[list[object]] = []
    for cell in summary["cells"]:
        names = tuple(cell["names"].values())
        against = differences.get(names)
        entries: list[object] = [
            interval_cell(cell["scores"].get(score), axis, of_plays(cell, score)),
            _unbroken(difference_text(against)),
            *([_p(against, "p", bold=not adjusts)] if is_tested else []),
        ]
        if adjusts:
            entries += [_p(against, "p_adjusted", bold=True), _unbroken(_adjusted(against))]
        entries += [
            f"{cell['ok']} / {cell['failed']} / {cell['excluded']}",
            "" if against is None else against["pairs"],
        ]
        rows.append([*names, *entries, way(cell["run"])])
    head: list[object] = [
        *axis_names(summary["axes"]),
        axis_name("mean", axis),
        "difference [95 %]",
        *(["p"] if is_tested else []),
    ]
    head += ["adjusted p", "adjusted interval"] if adjusts else []
    caption = f"{score}, every cell against {' x '.join(summary['reference'].values())}"
    # counts without a failure, and pairs that are the same of all, are one sentence
    counts, pairs = ({row[at] for row in rows} - {""} for at in (-3, -2))
    played = {f"{cell['ok']} / 0 / 0" for cell in summary["cells"]}
    if counts == played and len(counts) == 1 and len(pairs) < 2:
        rows = [[*row[:-3], row[-1]] for row in rows]
        caption += f"; {summary['cells'][0]['ok']} plays of each cell, none of them failed"
        caption += "".join(f", {count} pairs each" for count in pairs)
    else:
        head += ["ok / failed / excluded", "pairs"]
    return table([*head, "run"], rows, caption=caption)


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


def _others(summary: Summary) -> list[Section]:
    """The scores of every cell that are not compared, and its columns; nothing where there are
    none of either."""
    shared = table_columns(summary["cells"])
    # those that are compared stand above with all of their numbers
    rest = [score for score in summary["scores"] if score not in summary["compared"]]
    if not rest and not shared:
        return []
    head = [*axis_names(summary["axes"]), *rest, *(one.name for one in shared)]
    rows: list[list[object]] = []
    for cell in summary["cells"]:
        means = [cell_text(cell, score) for score in rest]
        rows.append([*cell["names"].values(), *means, *(one.cell(cell) for one in shared)])
    folded = "".join(heat(summary, score) for score in rest) if len(summary["axes"]) == 2 else ""
    figures = [table(head, rows, numbers=True)]
    if folded:
        figures.append(
            Html(
                f"<details><summary>Heatmaps of {text(', '.join(rest))}</summary><div"
                f' class="charts">{folded}</div></details>'
            )
        )
    return [
        Section(
            "Every other score",
            "Mean with 95 % interval; to compare another one: --measure NAME.",
            figures=figures,
        )
    ]


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


# -- drawings, each with its table -----------------------------------------------------------------


def short_axis(summary: Summary, axis: str) -> str:
    """An axis as columns call it: `agents.user` is `user`, where no other axis is called so."""
    return dict(zip(summary["axes"], axis_names(summary["axes"]), strict=True))[axis]


def heat(summary: Summary, score: str) -> Html:
    """A heatmap of two axes; of one axis a row of points."""
    axes = summary["axes"]
    if len(axes) == 1:
        ((axis, names),) = axes.items()
        marks = {cell["names"][axis]: mark(cell["scores"].get(score)) for cell in summary["cells"]}
        y_range = (0.0, 1.0) if is_rate(summary, score) else None
        svg = whisker_chart(
            {score: [marks[name] for name in names]},
            names,
            title=score,
            x_label=short_axis(summary, axis),
            y_label=score,
            y_range=y_range,
            # names have no order between which a line could run
            joined=False,
        )
        return figure(f"{score} by {short_axis(summary, axis)}", svg)
    if len(axes) > 2:
        # a drawing has two axes: of three or more each pair gets one
        return Html("".join(_pair(summary, one, score) for one in summary["interactions"][score]))
    (rows, row_names), (columns, column_names) = axes.items()
    values = {
        (cell["names"][rows], cell["names"][columns]): mark(cell["scores"].get(score))
        for cell in summary["cells"]
    }
    both = short_axis(summary, rows), short_axis(summary, columns)
    title = f"{score}: {' (rows) x '.join(both)} (columns)"
    known = {key: mark for key, mark in values.items() if mark is not None}
    return _shaded(
        summary,
        score,
        title,
        heatmap(row_names, column_names, known, title=title, axes=both, **look(summary, score)),
    )


def _pair(summary: Summary, pair: Mapping[str, Any], score: str) -> Html:
    """Two of several axes, the others averaged out."""
    rows, columns = pair["axes"]
    names = [
        list(dict.fromkeys(cell["names"][axis] for cell in pair["cells"]))
        for axis in (rows, columns)
    ]
    values = {
        (cell["names"][rows], cell["names"][columns]): Mark(cell["mean"]) for cell in pair["cells"]
    }
    both = short_axis(summary, rows), short_axis(summary, columns)
    title = f"{score}: {' (rows) x '.join(both)} (columns), mean over the other axes"
    title += f", on {pair['units']} tasks (or seeds) that all cells played"
    return _shaded(
        summary,
        score,
        title,
        heatmap(names[0], names[1], values, title=title, axes=both, **look(summary, score)),
    )


def interaction(summary: Summary, pair: Mapping[str, Any], score: str, rate: bool) -> Html:
    """Lines that are not parallel are an interaction; the table says by how much."""
    rows, columns = pair["axes"]
    names = list(dict.fromkeys(cell["names"][rows] for cell in pair["cells"]))
    # without whiskers: the intervals of single means say nothing about parallel lines
    lines: dict[str, list[Mark | None]] = {}
    for cell in pair["cells"]:
        lines.setdefault(cell["names"][columns], []).append(Mark(cell["mean"]))
    both = short_axis(summary, rows), short_axis(summary, columns)
    title = f"{score} of {both[1]} over {both[0]}"
    # means of several cells may be close: a rate is still drawn on its whole range
    y_range = (0.0, 1.0) if rate else None
    svg = whisker_chart(lines, names, title=title, x_label=both[0], y_label=score, y_range=y_range)
    entries = []
    for cell in pair["cells"]:
        known = cell["low"] is not None and cell["high"] is not None
        # an interval that cannot be told, as of a single task, makes nothing bold
        numbers = (cell["effect"], cell["low"], cell["high"])
        words = [decimal(number, *numbers, plus=True) for number in numbers]
        effect = f"{words[0]} [{', '.join(words[1:]) if known else 'n/a'}]"
        clear = known and (cell["low"] > 0 or cell["high"] < 0)
        entries.append(
            [
                cell["names"][rows],
                cell["names"][columns],
                decimal(cell["mean"]),
                Html(f"<strong>{effect}</strong>") if clear else effect,
            ]
        )
    caption = (
        f"What a cell has beyond its row and its column, over {pair['units']} tasks (or seeds) that"
        " all cells played; bold: the interval leaves 0 out."
    )
    return figure(
        title,
        svg,
        table([*both, "mean", "interaction"], entries, caption=caption),
    )


def margins(summary: Summary, score: str) -> Html:
    whole = [
        estimate for names in summary["margins"][score].values() for estimate in names.values()
    ]
    # one axis for the table, or its marks could not be compared
    marks = RATE if is_rate(summary, score) else axis_of(whole)
    rows = [
        [short_axis(summary, axis), name, interval_cell(estimate, marks), estimate["n"]]
        for axis, names in summary["margins"][score].items()
        for name, estimate in names.items()
    ]
    caption = f"{score} of each name, mean over all cells that have it, on what every cell played"
    if not rows:
        return Html("")
    return table(["axis", "name", axis_name("mean", marks), "tasks"], rows, caption=caption)


def is_rate(summary: Summary, score: str) -> bool:
    return score == SUCCESS or score in summary.get("rates", ())


def _better(summary: Summary, score: str) -> str:
    """`more`, `less`, or "" where the scenario does not say."""
    # a return is what an agent is paid for; of other scores only the scenario knows
    known = {SUCCESS: "more", **summary.get("better", {})}
    return str(known.get(score, "more" if score.startswith("return ") else ""))


def _shading(better: str) -> str:
    words = {"more": "darker is more, which is better", "less": "darker is less, which is better"}
    return words.get(better, "grey: darker is more; the scenario does not say which way is better")


def look(summary: Summary, score: str) -> dict[str, Any]:
    """How a heatmap of a score is shaded, as options of `heatmap`."""
    return {"rate": is_rate(summary, score), "better": _better(summary, score)}


def _shaded(summary: Summary, score: str, title: str, svg: str) -> Html:
    if not svg:
        return figure(title, "")
    shading = text(_shading(_better(summary, score)))
    return figure(title, f"<figcaption>{shading}</figcaption>{scrolled(svg, title)}")


def mark(one: Mapping[str, Any] | None) -> Mark | None:
    """An interval of a summary as it is drawn; None without a mean."""
    return Mark(one["mean"], one["low"], one["high"]) if one and one["mean"] is not None else None


# -- what was run ----------------------------------------------------------------------------------


def study_lead(summary: Summary) -> Html:
    """What was crossed and how it ended, in one line below the title."""
    ended = " / ".join(
        f"{sum(cell[key] for cell in summary['cells'])} {key}"
        for key in ("ok", "failed", "excluded")
    )
    counts = zip(summary["axes"].values(), axis_names(summary["axes"]), strict=True)
    axes = " x ".join(f"{len(names)} {axis}" for names, axis in counts)
    return Html(f'<p class="hint">{text(axes)} · {text(ended)}</p>')


def study_facts(path: Path, summary: Summary) -> Html:
    """What was run: the axes, all cells' counts, cost and tokens; the rest as the reference
    cell's folder records it."""
    folders = [path / str(cell["run"]) for cell in summary["cells"] if cell["run"]]
    reference = next(
        (
            path / str(cell["run"])
            for cell in summary["cells"]
            if cell["names"] == summary["reference"] and cell["run"]
        ),
        None,
    )
    # what every cell shares is recorded in each; the reference speaks for all
    manifest, resolved = (_stored(read, reference) for read in (read_manifest, read_resolved))
    whole: dict[str, Any] = {
        key: sum(cell[key] for cell in summary["cells"]) for key in ("ok", "failed", "excluded")
    }
    # summed over all cells, since a study is paid as a whole
    whole |= {"ends": {}, "tokens": {}, "costs": {}}
    for stored in (_stored(read_summary, folder) for folder in folders):
        for end, count in (stored.get("ends") or {}).items():
            whole["ends"][end] = whole["ends"].get(end, 0) + count
        for name in ("tokens", "costs"):
            for agent, counts in (stored.get(name) or {}).items():
                whole[name][agent] = _added(whole[name].get(agent), counts)
    # in full: an option may be called like another axis, or like a fact of a run
    axes = {axis: ", ".join(names) for axis, names in summary["axes"].items()}
    design = {
        "cells": len(summary["cells"]),
        **axes,
        "reference": " x ".join(summary["reference"].values()),
    }
    varied = (
        "Cast, models, seeds and config are those of the reference cell; the axes say what differs."
    )
    if not manifest:
        return Html("")
    block = facts_block("", manifest, resolved, {**whole, **design}, folded=False)
    return Html(f'{block}<p class="hint">{varied}</p>')


def _stored(read: Callable[[Path], dict[str, Any] | None], folder: Path | None) -> dict[str, Any]:
    try:
        return (read(folder) if folder is not None else None) or {}
    except GemMaError:  # a folder that is gone or damaged: the page tells less
        return {}


def _added(before: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Two counts by name; what one of them does not know is not known of both."""
    # a sum that leaves out an unknown price would look like a price
    if before is None:
        return dict(more)
    return {
        key: None if value is None or before.get(key) is None else before[key] + value
        for key, value in more.items()
    }
