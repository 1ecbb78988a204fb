"""Plots as SVG text over named things: shares as one bar, a heatmap, points with whiskers. Numbers
and labels in, nothing of runs.

Colours are CSS classes, so that a page decides them for light and dark; a heatmap shades one
colour by opacity and prints every number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gem_ma.view.page import scrolled, text
from gem_ma.view.svg import CLASSES, legend, marker, short, span, ticks

_WIDTH, _BAR = 720, 34


class Mark(NamedTuple):
    """A value with its interval; a bound that the data cannot give is None."""

    mean: float
    low: float | None = None
    high: float | None = None


def share_bar(shares: Mapping[str, float], *, title: str) -> str:
    """One horizontal bar, split by share (each 0 to 1), with a legend. Shares that sum to more
    than 1 (several of one thing) are scaled down."""
    shown = {label: share for label, share in shares.items() if share > 0}
    total = max(1.0, math.fsum(shown.values()))
    if not shown:
        return ""
    rows = (len(shown) + 2) // 3
    height = _BAR + 14 + 22 * rows
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{text(title)};'
        ' numbers in the table">'
    ]
    parts.append(
        f'<title>{text(title)}</title><rect class="rest" x="0" y="4" width="{_WIDTH}"'
        f' height="{_BAR}"/>'
    )
    at = 0.0
    for number, (label, share) in enumerate(shown.items()):
        width = share / total * _WIDTH
        parts.append(
            f'<rect class="part s{number % CLASSES}" x="{at:.1f}" y="4"'
            f' width="{max(width - 1.5, 0.5):.1f}" height="{_BAR}"/>'
        )
        if width > 46:
            parts.append(
                f'<text class="inside" text-anchor="middle" x="{at + width / 2:.1f}"'
                f' y="{_BAR / 2 + 9:.1f}">{100 * share:.0f} %</text>'
            )
        at += width
        x, y = (number % 3) * (_WIDTH / 3), _BAR + 22 + 22 * (number // 3)
        parts.append(
            f'<rect class="part s{number % CLASSES}" x="{x:.1f}" y="{y - 10}" width="11"'
            ' height="11"/>'
        )
        parts.append(
            f'<text class="name" x="{x + 17:.1f}" y="{y}">{text(_cut(label, 30))} {100 * share:.1f}'
            " %</text>"
        )
    return "".join([*parts, "</svg>"])


def heatmap(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[str, str], Mark],
    *,
    title: str,
    rate: bool = False,
    better: str = "",
) -> str:
    """One cell per (row, column), on 0 to 1 for a rate, else from the lowest to the highest. Absent
    = empty.

    `better`: `more` or `less`, what is darker in the page's own colour; "" where nobody said:
    grey, darker where the mean is higher.
    """
    if not values:
        return ""
    room = max(86, min(150, 620 // max(1, len(columns))))
    left, wide, high, top = 150, max(room, min(190, 7 * max(map(len, columns)) + 14)), 44, 40
    kind = "heat" if better else "heat neutral"
    low, most = (0.0, 1.0) if rate else span([mark.mean for mark in values.values()])
    width, height = left + wide * len(columns) + 2, top + high * len(rows) + 6
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg class="heatmap" {size} role="img" aria-label="{text(title)}; numbers in the table">'
    ]
    parts.append(f"<title>{text(title)}</title>")
    for at, column in enumerate(columns):
        parts.append(_name("name", left + wide * (at + 0.5), top - 10, column, wide // 7))
    for i, row in enumerate(rows):
        y = top + high * i
        parts.append(
            f'<text class="name" text-anchor="end" x="{left - 10}"'
            f' y="{y + high / 2 + 4:.1f}">{text(_cut(row, 22))}<title>{text(row)}</title></text>'
        )
        for j, column in enumerate(columns):
            mark = values.get((row, column))
            x = left + wide * j
            if mark is None:
                parts.append(
                    f'<rect class="rest" x="{x + 1}" y="{y + 1}" width="{wide - 2}"'
                    f' height="{high - 2}"/>'
                )
                continue
            share = min(max((mark.mean - low) / (most - low), 0.0), 1.0)
            share = 1.0 - share if better == "less" else share
            parts.append(
                f'<rect class="{kind}" fill-opacity="{0.05 + 0.45 * share:.3f}" x="{x + 1}"'
                f' y="{y + 1}" width="{wide - 2}" height="{high - 2}"/>'
            )
            known = mark.low is not None and mark.high is not None
            middle = y + high / 2 + (1 if known else 5)
            parts.append(
                f'<text class="value" text-anchor="middle" x="{x + wide / 2:.1f}"'
                f' y="{middle:.1f}">{_value(mark.mean)}</text>'
            )
            if mark.low is not None and mark.high is not None:
                bounds = f"{_value(mark.low)} to {_value(mark.high)}"
                parts.append(
                    f'<text class="bounds" text-anchor="middle" x="{x + wide / 2:.1f}"'
                    f' y="{y + high / 2 + 15:.1f}">{bounds}</text>'
                )
    return "".join([*parts, "</svg>"])


def whisker_chart(
    series: Mapping[str, Sequence[Mark | None]],
    names: Sequence[str],
    *,
    title: str,
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
    joined: bool = True,
) -> str:
    """Each series is a line over the named places, with a whisker for every interval; series stand
    a little apart; a legend of several stands above. "" where there is no point.

    `joined`: whether a line runs through the points of a series.
    """
    drawn = {
        label: list(marks)
        for label, marks in series.items()
        if any(mark is not None for mark in marks)
    }
    if not drawn:
        return ""
    every = [mark for marks in drawn.values() for mark in marks if mark is not None]
    bounds = [value for mark in every for value in mark if value is not None]
    low, high = y_range or span(bounds, pad=0.06)
    left, right, top, bottom, height = 76, _WIDTH - 30, 14, 260, 312

    def px(place: int, number: int) -> float:
        step = (right - left) / len(names)
        return (
            left
            + step * (place + 0.5)
            + (number - (len(drawn) - 1) / 2) * min(9.0, step / (len(drawn) + 1))
        )

    def py(y: float) -> float:
        return bottom - (min(max(y, low), high) - low) / (high - low) * (bottom - top)

    what = (
        f"{text(title)}: {text(y_label)} over {text(x_label)}, {len(drawn)} lines; numbers in the"
        " table"
    )
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{what}"><title>{text(title)}</title>'
    ]
    for tick in ticks(low, high, 5):
        parts.append(
            f'<line class="grid" x1="{left}" x2="{right}" y1="{py(tick):.1f}" y2="{py(tick):.1f}"/>'
        )
        parts.append(
            f'<text class="tick" text-anchor="end" x="{left - 8}"'
            f' y="{py(tick) + 4:.1f}">{short(tick)}</text>'
        )
    step = (right - left) / len(names)
    # then every second name stands a line lower, with room for two
    crowded = max(map(len, names)) * 6.5 > step
    for place, name in enumerate(names):
        room = max(4, int(step * (1 + crowded) / 6.5))
        parts.append(
            _name(
                "tick",
                left + step * (place + 0.5),
                bottom + 18 + 13 * (crowded and place % 2),
                name,
                room,
            )
        )
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(
        f'<text class="name" text-anchor="middle" x="{(left + right) / 2:.0f}"'
        f' y="{height - 4}">{text(x_label)}</text>'
    )
    for number, marks in enumerate(drawn.values()):
        kind = f"s{number % CLASSES}"
        points = [(px(place, number), mark) for place, mark in enumerate(marks) if mark is not None]
        if joined:
            path = " ".join(f"{x:.1f},{py(mark.mean):.1f}" for x, mark in points)
            parts.append(f'<polyline class="line {kind}" points="{path}"/>')
        for x, mark in points:
            if mark.low is not None and mark.high is not None:
                parts.append(
                    f'<line class="leader whiskers {kind}" x1="{x:.1f}" x2="{x:.1f}"'
                    f' y1="{py(mark.low):.1f}" y2="{py(mark.high):.1f}"/>'
                )
            parts.append(marker(number, x, py(mark.mean), 4.0))
    names = legend(list(drawn), [not joined] * len(drawn)) if len(drawn) > 1 else ""
    drawing = "".join([*parts, "</svg>"])
    # many names need the room that a phone has not
    return names + (scrolled(drawing, title) if crowded else drawing)


def _name(kind: str, x: float, y: float, name: str, width: int, anchor: str = "middle") -> str:
    """A name cut to so many letters, whole where the pointer rests on it."""
    return (
        f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}"'
        f' y="{y:.1f}">{text(_cut(name, width))}<title>{text(name)}</title></text>'
    )


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: max(1, width - 1)] + "…"


def _value(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.4g}"
