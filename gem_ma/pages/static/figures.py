"""What stands in a page beside its text: intervals with a mark, and charts with their caption and
the table of their numbers. It knows labels and numbers, no runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.pages.static.page import Html, render, table, text
from gem_ma.pages.static.svg import (
    BAND_SEEDS,
    CLASSES,
    Bounds,
    Line,
    Point,
    interval_mark,
    legend,
    line_chart,
    line_of,
    short,
    ticks,
)
from gem_ma.scores.groups import interval_text

# -- intervals -------------------------------------------------------------------------------------

Estimate = Mapping[str, Any]
Axis = tuple[float, float]
RATE: Axis = (0.0, 1.0)
ROUNDING = 1e-9


def axis_of(estimates: Iterable[Estimate | None]) -> Axis:
    """One axis for all of them: 0 to 1 where that holds them all, else round ends that hold them
    and 0.

    >>> axis_of([{"mean": 0.995, "low": 0.97, "high": 1.0}])
    (0.0, 1.0)
    >>> unbounded = {"mean": 3.0, "low": None, "high": None}
    >>> axis_of([{"mean": -1.2, "low": -1.5, "high": -0.9}, unbounded])
    (-2.0, 3.0)
    """
    bounds = [
        float(estimate[key])
        for estimate in estimates
        if estimate
        for key in ("mean", "low", "high")
        if estimate.get(key) is not None
    ]
    low = min(bounds, default=0.0)
    high = max(bounds, default=1.0)
    # scores in 0 to 1 look alike on every page, whatever their spread in this one
    if low >= -ROUNDING and high <= 1 + ROUNDING:
        return RATE
    # 0 in sight: a return says little without its sign
    low = min(low, 0.0)
    high = max(high, 0.0)
    marks = ticks(low, high, 8)
    step = marks[1] - marks[0] if len(marks) > 1 else high - low
    # ticks lie inside of the values: one more step where they do not hold an end
    first = marks[0]
    last = marks[-1]
    return (first if first <= low else first - step, last if last >= high else last + step)


def interval_cell(estimate: Estimate | None, axis: Axis | None = None, of: str = "") -> Html:
    """`0.850 [0.640, 0.948]`, with its mark on the axis where there is one; `of` is said behind."""
    if not estimate:
        return text("n/a")
    mark = interval_mark(estimate, *axis) if axis is not None else ""
    return Html(f'<span class="interval">{text(interval_text(estimate) + of)}</span>{mark}')


def axis_name(name: str, axis: Axis) -> Html:
    """The head of a column of marks, with the ends of their axis."""
    return Html(
        f'{text(name)} <small class="ends">{text(short(axis[0]))} … {text(short(axis[1]))}</small>'
    )


def figure(title: str, *inside: str) -> Html:
    """Plots and tables below their name; "" where there is nothing."""
    return (
        Html(f"<figure><h3>{text(title)}</h3>{''.join(inside)}</figure>")
        if any(inside)
        else Html("")
    )


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
    bounds: Mapping[str, Bounds] = field(default_factory=dict)  # label -> intervals of its points


def chart(curves: Curves, made: Sequence[Line] | None = None) -> Html:
    """The chart; "" without a point. `made`: its lines, where the caller
    has made them already, as of several runs."""
    lines = made or [
        line_of(label, seeds, label in curves.exams, curves.bounds.get(label))
        for label, seeds in curves.lines.items()
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
        "95 % intervals" if any(line.has_intervals for line in lines) else "",
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
    # of one seed an interval may be known at some points alone
    has_band = line.seeds > 1 or line.low[place] != line.high[place]
    band = f" [{line.low[place]:.4g}, {line.high[place]:.4g}]" if has_band else ""
    return f"{line.mean[place]:.4g}{band}"
