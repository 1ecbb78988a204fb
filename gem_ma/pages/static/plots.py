"""Plots as SVG text over named things: shares as one bar, a heatmap, points with whiskers. Numbers
and labels in, nothing of runs.

Colours are CSS classes, so that a page decides them for light and dark; a heatmap shades one
colour by opacity and prints every number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gem_ma.pages.static.figures import CLASSES, Frame, Mark, legend, marker, span
from gem_ma.pages.static.page import scrolled, text

_WIDTH = 720
_BAR = 34
_LETTER = 6.5  # pixels of a letter of a tick, in the mean


def share_bar(shares: Mapping[str, float], *, title: str) -> str:
    """One horizontal bar, split by share (each 0 to 1), with a legend. Shares that sum to more
    than 1 (several of one thing) are scaled down."""
    positive = {label: share for label, share in shares.items() if share > 0}
    # less than 1 leaves the rest of the bar empty, which is honest
    total = max(1.0, math.fsum(positive.values()))
    if not positive:
        return ""
    rows = (len(positive) + 2) // 3
    height = _BAR + 14 + 22 * rows
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{text(title)};'
        ' numbers in the table">'
    ]
    parts.append(
        f'<title>{text(title)}</title><rect class="rest" x="0" y="4" width="{_WIDTH}"'
        f' height="{_BAR}"/>'
    )
    left = 0.0
    for number, (label, share) in enumerate(positive.items()):
        width = share / total * _WIDTH
        parts.append(
            f'<rect class="part s{number % CLASSES}" x="{left:.1f}" y="4"'
            f' width="{max(width - 1.5, 0.5):.1f}" height="{_BAR}"/>'
        )
        # narrower parts have no room for their number; the legend has it
        if width > 46:
            parts.append(
                f'<text class="inside" text-anchor="middle" x="{left + width / 2:.1f}"'
                f' y="{_BAR / 2 + 9:.1f}">{100 * share:.0f} %</text>'
            )
        left += width
        # three entries of the legend to a line
        x = (number % 3) * (_WIDTH / 3)
        y = _BAR + 22 + 22 * (number // 3)
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
    axes: tuple[str, str] = ("", ""),
) -> str:
    """One cell per (row, column), on 0 to 1 for a rate, else from the lowest to the highest. Absent
    = empty. `axes`: what rows and columns are; then the scale of the shades stands below.

    `better`: `more` or `less`, what is darker in the page's own colour; "" where nobody said:
    grey, darker where the mean is higher.
    """
    if not values:
        return ""
    # two of four columns fit beside each other; many keep room for their numbers and are scrolled
    room = max(86, min(106, 620 // max(1, len(columns))))
    # a letter is 7 pixels wide
    wide = max(room, min(190, 7 * max(map(len, columns)) + 14))
    # pixels: names of rows, a row, names of columns
    left = 150
    high = 44
    top = 40 + 16 * bool(axes[1])
    low, most = (0.0, 1.0) if rate else span([mark.mean for mark in values.values()])
    width = left + wide * len(columns) + 2
    height = top + high * len(rows) + 6 + 28 * any(axes)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg class="heatmap" {size} role="img" aria-label="{text(title)}; numbers in the table">'
    ]
    parts.append(f"<title>{text(title)}</title>")
    if any(axes):
        parts.append(_name("tick", left - 10, top - 10, axes[0], 22, "end"))
        parts.append(_name("tick", left + wide * len(columns) / 2, 14, axes[1], 60))
    for number, column in enumerate(columns):
        parts.append(_name("name", left + wide * (number + 0.5), top - 10, column, wide // 7))
    for i, row in enumerate(rows):
        y = top + high * i
        parts.append(
            f'<text class="name" text-anchor="end" x="{left - 10}"'
            f' y="{y + high / 2 + 4:.1f}">{text(_cut(row, 22))}<title>{text(row)}</title></text>'
        )
        for j, column in enumerate(columns):
            mark = values.get((row, column))
            # bounded: with a fixed range of 0 to 1 a mean may lie a rounding outside
            share = 0.0 if mark is None else min(max((mark.mean - low) / (most - low), 0.0), 1.0)
            shade = 1.0 - share if better == "less" else share
            parts += _cell(mark, (left + wide * j, y), (wide, high), shade, neutral=not better)
    parts += _scale((left, height - 14), (low, most), better) if any(axes) else []
    return "".join([*parts, "</svg>"])


_SHADES = 6  # of a scale


def _scale(corner: tuple[int, int], ends: tuple[float, float], better: str) -> list[str]:
    """The shades of a heatmap from its lowest to its highest value."""
    (x, y) = corner
    parts = [_name("tick", x - 10, y + 10, _value(ends[0]), 12, "end")]
    for number in range(_SHADES):
        share = number / (_SHADES - 1)
        shade = 1.0 - share if better == "less" else share
        parts.append(_patch((x + 22 * number, y), (22, 12), shade, neutral=not better))
    return [*parts, _name("tick", x + 22 * _SHADES + 8, y + 10, _value(ends[1]), 12, "start")]


def _patch(corner: tuple[int, int], size: tuple[int, int], shade: float, *, neutral: bool) -> str:
    """A shaded box, no more than half opaque: numbers must be read on it in light and dark."""
    place = f'x="{corner[0]}" y="{corner[1]}" width="{size[0]}" height="{size[1]}"'
    kind = "heat neutral" if neutral else "heat"
    return f'<rect class="{kind}" fill-opacity="{0.05 + 0.45 * shade:.3f}" {place}/>'


def _cell(
    mark: Mark | None, corner: tuple[int, int], size: tuple[int, int], shade: float, neutral: bool
) -> list[str]:
    """One cell of a heatmap: its colour, its mean, and below that the bounds where both are
    known."""
    (x, y) = corner
    (wide, high) = size
    if mark is None:
        place = f'x="{x + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}"'
        return [f'<rect class="rest" {place}/>']
    bounds = "" if mark.low is None or mark.high is None else _bounds(mark.low, mark.high)
    # without bounds the number stands in the middle of its cell
    middle = y + high / 2 + (1 if bounds else 5)
    parts = [
        _patch((x + 1, y + 1), (wide - 2, high - 2), shade, neutral=neutral),
        f'<text class="value" text-anchor="middle" x="{x + wide / 2:.1f}"'
        f' y="{middle:.1f}">{_value(mark.mean)}</text>',
    ]
    if bounds:
        parts.append(
            f'<text class="bounds" text-anchor="middle" x="{x + wide / 2:.1f}"'
            f' y="{y + high / 2 + 15:.1f}">{bounds}</text>'
        )
    return parts


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
    a little apart; a legend of several stands above. "" without a point.

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
    height = 312
    bottom = 260
    y_span = y_range or span(bounds, pad=0.06)
    # a name has the width of 1 on the horizontal axis
    frame = Frame(76, _WIDTH - 30, 14, bottom, (0.0, len(names)), y_span)
    what = (
        f"{text(title)}: {text(y_label)} over {text(x_label)}, {len(drawn)} lines; numbers in the"
        " table"
    )
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{what}"><title>{text(title)}</title>',
        *frame.rungs(),
    ]
    step = (frame.right - frame.left) / len(names)
    # then every second name stands a line lower, with room for two
    crowded = max(map(len, names)) * _LETTER > step
    for place, name in enumerate(names):
        room = max(4, int(step * (1 + crowded) / _LETTER))
        y = bottom + 18 + 13 * (crowded and place % 2)
        parts.append(_name("tick", frame.px(place + 0.5), y, name, room))
    parts += frame.floor(text(x_label), height - 4)
    # so far series stand beside each other, that no whisker hides another
    apart = min(9.0, step / (len(drawn) + 1))
    for number, marks in enumerate(drawn.values()):
        shift = (number - (len(drawn) - 1) / 2) * apart
        points = [
            (frame.px(place + 0.5) + shift, mark)
            for place, mark in enumerate(marks)
            if mark is not None
        ]
        parts += _series(frame, number, points, joined)
    keys = legend(list(drawn), [not joined] * len(drawn)) if len(drawn) > 1 else ""
    drawing = "".join([*parts, "</svg>"])
    # many names need the room that a phone has not
    return keys + (scrolled(drawing, title) if crowded else drawing)


def _series(
    frame: Frame, number: int, points: Sequence[tuple[float, Mark]], joined: bool
) -> list[str]:
    """The points of one series, each (x in pixels, mark), with their whiskers."""
    low, high = frame.y

    def py(y: float) -> float:
        # an interval may reach beyond the range that was asked for
        return frame.py(min(max(y, low), high))

    kind = f"s{number % CLASSES}"
    parts = []
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
    return parts


def _name(kind: str, x: float, y: float, name: str, width: int, anchor: str = "middle") -> str:
    """A name cut to so many letters, whole where the pointer rests on it."""
    return (
        f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}"'
        f' y="{y:.1f}">{text(_cut(name, width))}<title>{text(name)}</title></text>'
    )


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: max(1, width - 1)] + "…"


def _bounds(low: float, high: float) -> str:
    return f"{_value(low)} to {_value(high)}"


def _value(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.4g}"
