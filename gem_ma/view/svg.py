"""Plots as SVG text: curves with a band across seeds, and an interval drawn beside its number. It
knows numbers and labels, nothing of runs.

Colours are CSS classes (`s0` ... `s7`), so that a page decides them for light and dark; each
class also has its own dash pattern.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

CLASSES = 8
BAND_SEEDS = 3  # fewer seeds are drawn as they are
_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 30, 14, 46  # room for numbers in the large letters of a phone

Point = tuple[float, float]


class Line(NamedTuple):
    """One line of a chart: mean, lowest and highest of the seeds at each x. `low` and `high` equal
    `mean` for a single seed.

    `markers`: points that stand alone, as those of exams: nothing is known of what lies between
    two of them.
    """

    label: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seeds: int
    markers: bool = False


def line_of(label: str, seeds: Sequence[Sequence[Point]], markers: bool = False) -> Line:
    """Folds the curves of several seeds into one line, over the x that all of them reach. Points
    that are not finite are gaps."""
    found = [
        {float(x): float(y) for x, y in seed if math.isfinite(x) and math.isfinite(y)}
        for seed in seeds
        if len(seed)
    ]
    shared = sorted(set.intersection(*(set(seed) for seed in found))) if found else []
    columns = [[seed[x] for seed in found] for x in shared]
    mean = tuple(math.fsum(column) / len(column) for column in columns)
    return Line(
        label,
        tuple(shared),
        mean,
        tuple(map(min, columns)),
        tuple(map(max, columns)),
        len(found),
        markers,
    )


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
) -> str:
    """An accessible `<svg>` of the lines; one that has no point is left out. "" where nothing is
    to be drawn."""
    drawn = [line for line in lines if line.x]
    if not drawn:
        return ""
    x_low, x_high = span([x for line in drawn for x in line.x])
    y_low, y_high = y_range or span(
        [y for line in drawn for y in (*line.low, *line.high)], pad=0.06
    )
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def px(x: float) -> float:
        return _LEFT + (x - x_low) / (x_high - x_low) * (right - _LEFT)

    def py(y: float) -> float:
        return bottom - (y - y_low) / (y_high - y_low) * (bottom - _TOP)

    parts = [
        (
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
            f' aria-label="{escape(title)}: {escape(y_label)} over {escape(x_label)}, {len(drawn)}'
            ' lines; numbers in the table below">'
        ),
        f"<title>{escape(title)}</title>",
    ]
    for tick in ticks(y_low, y_high, 5):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{py(tick):.1f}"'
            f' y2="{py(tick):.1f}"/>'
        )
        parts.append(
            f'<text class="tick" text-anchor="end" x="{_LEFT - 8}"'
            f' y="{py(tick) + 4:.1f}">{short(tick)}</text>'
        )
    for tick in ticks(x_low, x_high, 7):
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{px(tick):.1f}"'
            f' y="{bottom + 20}">{short(tick)}</text>'
        )
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(
        f'<text class="name" text-anchor="middle" x="{(_LEFT + right) / 2:.0f}"'
        f' y="{_HEIGHT - 3}">{escape(x_label)}</text>'
    )
    for at, line in enumerate(drawn):
        if line.seeds >= BAND_SEEDS and line.markers:
            parts += [
                f'<line class="leader whiskers s{at % CLASSES}" x1="{px(x):.1f}" x2="{px(x):.1f}"'
                f' y1="{py(low):.1f}" y2="{py(high):.1f}"/>'
                for x, low, high in zip(line.x, line.low, line.high, strict=True)
            ]
        elif line.seeds >= BAND_SEEDS:
            up = " ".join(
                f"{px(x):.1f},{py(y):.1f}" for x, y in zip(line.x, line.high, strict=True)
            )
            down = " ".join(
                f"{px(x):.1f},{py(y):.1f}"
                for x, y in reversed(list(zip(line.x, line.low, strict=True)))
            )
            parts.append(f'<polygon class="band s{at % CLASSES}" points="{up} {down}"/>')
    # points stand above lines
    for at, line in sorted(enumerate(drawn), key=lambda one: one[1].markers):
        points = [(px(x), py(y)) for x, y in zip(line.x, line.mean, strict=True)]
        if not line.markers:
            parts.append(
                f'<polyline class="line s{at % CLASSES}"'
                f' points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
            )
        if line.markers or len(points) <= 12:
            parts += [marker(at, x, y, 4.5 if line.markers else 3.0) for x, y in points]
    return "".join([*parts, "</svg>"])


def marker(number: int, x: float, y: float, size: float) -> str:
    """The point of a series, in its colour and its shape: a circle, a square, a diamond, a
    triangle; those of the second four are hollow."""
    kind = f"dot s{number % CLASSES}{' hollow' if number % CLASSES > 3 else ''}"
    if number % 4 == 0:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"/>'
    side = size * (1.6 if number % 4 == 1 else 1.3)
    corners = {
        1: ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)),
        2: ((0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)),
        3: ((0.0, -1.0), (1.0, 0.8), (-1.0, 0.8)),
    }[number % 4]
    return (
        f'<polygon class="{kind}"'
        f' points="{" ".join(f"{x + dx * side:.1f},{y + dy * side:.1f}" for dx, dy in corners)}"/>'
    )


def legend(labels: Sequence[str], markers: Sequence[bool] = ()) -> str:
    """Which line is which, as a list that wraps: no name is cut. "" for a single line without a
    name."""
    if not [label for label in labels if label]:
        return ""
    parts = []
    for at, label in enumerate(labels):
        alone = at < len(markers) and markers[at]
        stroke = (
            "" if alone else f'<line class="line s{at % CLASSES}" x1="1" x2="29" y1="7" y2="7"/>'
        )
        drawn = (
            '<svg class="key" viewBox="0 0 30 14"'
            f' aria-hidden="true">{stroke}{marker(at, 15, 7, 4.0) if alone else ""}</svg>'
        )
        parts.append(f'<li class="s{at % CLASSES}">{drawn}{escape(_printable(label))}</li>')
    return f'<ul class="legend">{"".join(parts)}</ul>'


def _printable(label: str) -> str:
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in label)


def interval_mark(estimate: Mapping[str, float | None], low: float, high: float) -> str:
    """A dot with whiskers on the scale low..high; "" where a value or a bound is missing."""
    mean, lower, upper = estimate.get("mean"), estimate.get("low"), estimate.get("high")
    if mean is None or lower is None or upper is None or not high > low:
        return ""

    def px(value: float) -> float:
        return 4 + (min(max(value, low), high) - low) / (high - low) * 112

    return (
        '<svg class="mark" viewBox="0 0 120 14" aria-hidden="true"><line class="grid" x1="4"'
        f' x2="116" y1="7" y2="7"/><line class="whisker" x1="{px(lower):.1f}" x2="{px(upper):.1f}"'
        f' y1="7" y2="7"/><circle class="point" cx="{px(mean):.1f}" cy="7" r="4"/></svg>'
    )


def span(values: Sequence[float], pad: float = 0.0) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low < 1e-12 * max(1.0, abs(high)):
        return low - 0.5, high + 0.5
    return low - pad * (high - low), high + pad * (high - low)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between low and high, about so many."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [
        round(n * step, 12)
        for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def short(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e5 else f"{value:.3g}"
