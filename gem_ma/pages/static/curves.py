"""A chart with its caption and the table of its numbers, as HTML: what every curve looks like.
It knows labels and points, no runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gem_ma.pages.static.page import Html, render, table
from gem_ma.pages.static.svg import BAND_SEEDS, CLASSES, Line, Point, legend, line_chart, line_of


@dataclass(frozen=True, slots=True)
class Curves:
    """One chart. `lines`: label -> one list of (x, y) per seed; three seeds or more are drawn as
    their mean with a band from lowest to highest."""

    title: str
    lines: Mapping[str, Sequence[Sequence[Point]]]
    x_label: str = "step"
    y_label: str = "mean return"
    y_range: tuple[float, float] | None = None
    note: str = ""
    # labels of lines whose points stand alone: nothing is known of what lies between two exams
    exams: Collection[str] = ()


def chart(curves: Curves, made: Sequence[Line] | None = None) -> Html:
    """The chart; "" where there is no point. `made`: its lines, where the caller
    has made them already, as of several runs."""
    lines = made or [
        line_of(label, seeds, label in curves.exams) for label, seeds in curves.lines.items()
    ]
    # a page has colours and dashes for CLASSES lines
    surplus = len(lines) - CLASSES
    lines = lines[:CLASSES]
    svg = line_chart(
        lines,
        title=curves.title,
        x_label=curves.x_label,
        y_label=curves.y_label,
        y_range=curves.y_range,
    )
    if not svg:
        return Html("")
    # lines of one chart may have different numbers of seeds, after a run that failed
    seeds = {line.seeds for line in lines if line.x}
    how = "mean over seeds" if max(seeds) > 1 else ""
    if min(seeds) >= BAND_SEEDS:
        how = "mean over seeds, band from the lowest to the highest"
    empty = [line.label for line in lines if not line.x]
    absent = f"no points for {', '.join(map(repr, empty))}" if empty else ""
    parts = (
        curves.y_label if curves.y_label != curves.title else "",
        f"{how} ({max(seeds)} seeds)" if how else "",
        "points: exams" if any(line.markers for line in lines if line.x) else "",
        curves.note,
        absent,
        f"{surplus} more lines are left out" if surplus > 0 else "",
    )
    caption = "; ".join(filter(None, parts))
    drawn = [line for line in lines if line.x]
    # the same order as in the drawing, since colours go by it
    names = legend([line.label for line in drawn], [line.markers for line in drawn])
    numbers, note = _numbers(curves, lines)
    return render(
        "chart",
        title=curves.title,
        caption=caption,
        legend=Html(names),
        svg=Html(svg),
        numbers=numbers,
        note=note,
    )


def _numbers(curves: Curves, lines: Sequence[Line]) -> tuple[Html, str]:
    """The table below a chart, and what it leaves out."""
    drawn = [line for line in lines if line.x]
    xs = sorted({x for line in drawn for x in line.x})
    # rounded up, so that no more than 200 rows stand in the page
    listed = xs if len(xs) <= 200 else xs[:: -(-len(xs) // 200)]
    places = [{x: n for n, x in enumerate(line.x)} for line in drawn]
    rows = [
        [f"{x:g}", *(_value(line, index.get(x)) for line, index in zip(drawn, places, strict=True))]
        for x in listed
    ]
    note = "" if len(listed) == len(xs) else f", {len(listed)} of {len(xs)} rows"
    return table([curves.x_label, *(line.label for line in drawn)], rows, numbers=True), note


def _value(line: Line, place: int | None) -> str:
    if place is None:
        return ""
    band = f" [{line.low[place]:.4g}, {line.high[place]:.4g}]" if line.seeds > 1 else ""
    return f"{line.mean[place]:.4g}{band}"
