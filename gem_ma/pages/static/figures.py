"""What stands in a page beside its text: intervals with a mark, and charts with their caption and
the table of their numbers. Plots are SVG text. It knows labels and numbers, nothing of runs.

Colours are CSS classes (`s0` ... `s7`), so that a page decides them for light and dark; each
class also has its own dash pattern.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

from gem_ma.pages.static.page import Html, render, table, text
from gem_ma.scores.groups import interval_text

CLASSES = 8
BAND_SEEDS = 3  # fewer seeds are drawn as they are
FEW_POINTS = 12  # of a line; more markers would hide it
_WIDTH = 720
_HEIGHT = 300
# room for numbers in the large letters of a phone
_LEFT = 76
_RIGHT = 30
_TOP = 14
_BOTTOM = 46

Point = tuple[float, float]
Bounds = Mapping[float, tuple[float, float]]  # x -> the interval of the y there


class Mark(NamedTuple):
    """A value with its interval; a bound that the data cannot give is None."""

    mean: float
    low: float | None = None
    high: float | None = None


class Line(NamedTuple):
    """One line of a chart: mean, lowest and highest of the seeds at each x. Of a single seed `low`
    and `high` are the ends of the intervals that are known, and else equal `mean`.

    `markers`: points that stand alone, as those of exams: nothing is known of what lies between
    two of them. `raw`: the means before they were smoothed; empty where they are not.
    """

    label: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seeds: int
    markers: bool = False
    raw: tuple[float, ...] = ()

    @property
    def has_intervals(self) -> bool:
        """Whether `low` and `high` are the ends of intervals of one seed."""
        return self.seeds == 1 and self.low != self.high


def line_of(
    label: str,
    seeds: Sequence[Sequence[Point]],
    markers: bool = False,
    bounds: Bounds | None = None,
) -> Line:
    """Folds the curves of several seeds into one line, over the x that all of them reach. Points
    that are not finite are gaps. `bounds`: intervals of a single seed's points."""
    curves = [
        {float(x): float(y) for x, y in seed if math.isfinite(x) and math.isfinite(y)}
        for seed in seeds
        if len(seed)
    ]
    # a seed that stopped early would bend the mean where it drops out
    shared = sorted(set.intersection(*(set(seed) for seed in curves))) if curves else []
    columns = [[seed[x] for seed in curves] for x in shared]
    # exact: the table below prints the same number whatever the order of the seeds
    mean = tuple(math.fsum(column) / len(column) for column in columns)
    ends = [(min(column), max(column)) for column in columns]
    if bounds and len(curves) == 1:
        ends = [bounds.get(x, end) for x, end in zip(shared, ends, strict=True)]
    low, high = zip(*ends, strict=True) if ends else ((), ())
    return Line(label, tuple(shared), mean, low, high, len(curves), markers)


class Frame(NamedTuple):
    """The rectangle that values are drawn in, in pixels, and the values at its edges. The y of
    SVG grows downwards."""

    left: float
    right: float
    top: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def px(self, x: float) -> float:
        """The pixel of a value on the horizontal axis."""
        low, high = self.x
        return self.left + (x - low) / (high - low) * (self.right - self.left)

    def py(self, y: float) -> float:
        """The pixel of a value on the vertical axis."""
        low, high = self.y
        return self.bottom - (y - low) / (high - low) * (self.bottom - self.top)

    def rungs(self) -> list[str]:
        """The horizontal lines of the grid with their numbers, and the axis below them."""
        parts = []
        for tick in ticks(*self.y, 5):
            y = self.py(tick)
            parts.append(
                f'<line class="grid" x1="{self.left:g}" x2="{self.right:g}"'
                f' y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text class="tick" text-anchor="end" x="{self.left - 8:g}"'
                f' y="{y + 4:.1f}">{short(tick)}</text>'
            )
        return parts

    def floor(self, label: str, height: float) -> list[str]:
        """The horizontal axis, and its name (escaped already) at this height."""
        middle = (self.left + self.right) / 2
        return [
            f'<line class="axis" x1="{self.left:g}" x2="{self.right:g}"'
            f' y1="{self.bottom:g}" y2="{self.bottom:g}"/>',
            f'<text class="name" text-anchor="middle" x="{middle:.0f}"'
            f' y="{height:g}">{label}</text>',
        ]


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
    heights = [y for line in drawn for y in (*line.low, *line.high, *line.raw)]
    x_span = span([x for line in drawn for x in line.x])
    y_span = y_range or span(heights, pad=0.06)
    frame = Frame(_LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM, x_span, y_span)
    parts = [
        (
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
            f' aria-label="{text(title)}: {text(y_label)} over {text(x_label)}, {len(drawn)}'
            ' lines; numbers in the table below">'
        ),
        f"<title>{text(title)}</title>",
        *frame.rungs(),
    ]
    for tick in ticks(*x_span, 7):
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{frame.px(tick):.1f}"'
            f' y="{frame.bottom + 20:g}">{short(tick)}</text>'
        )
    parts += frame.floor(text(x_label), _HEIGHT - 3)
    # What is drawn later covers what is there: bands, then lines, then points that stand alone.
    for number, line in enumerate(drawn):
        parts += _spread(frame, number, line)
    for number, line in sorted(enumerate(drawn), key=lambda numbered: numbered[1].markers):
        parts += _means(frame, number, line)
    return "".join([*parts, "</svg>"])


def _spread(frame: Frame, number: int, line: Line) -> list[str]:
    """From the lowest to the highest seed, or over the intervals of one: whiskers where points
    stand alone, else a band."""
    if line.seeds < BAND_SEEDS and not line.has_intervals:
        return []
    kind = f"s{number % CLASSES}"
    if line.markers:
        return [
            f'<line class="leader whiskers {kind}" x1="{frame.px(x):.1f}" x2="{frame.px(x):.1f}"'
            f' y1="{frame.py(low):.1f}" y2="{frame.py(high):.1f}"/>'
            for x, low, high in zip(line.x, line.low, line.high, strict=True)
        ]
    # once around: along the highest values, and back along the lowest
    there = list(zip(line.x, line.high, strict=True))
    back = list(zip(line.x, line.low, strict=True))[::-1]
    edge = " ".join(f"{frame.px(x):.1f},{frame.py(y):.1f}" for x, y in (*there, *back))
    return [f'<polygon class="band {kind}" points="{edge}"/>']


def _means(frame: Frame, number: int, line: Line) -> list[str]:
    """The means: a line through them unless they stand alone, and a marker at each of a few."""
    points = [(frame.px(x), frame.py(y)) for x, y in zip(line.x, line.mean, strict=True)]
    parts = []
    if line.raw:
        pairs = zip(line.x, line.raw, strict=True)
        behind = " ".join(f"{frame.px(x):.1f},{frame.py(y):.1f}" for x, y in pairs)
        parts.append(f'<polyline class="raw s{number % CLASSES}" points="{behind}"/>')
    if not line.markers:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line s{number % CLASSES}" points="{path}"/>')
    if line.markers or len(points) <= FEW_POINTS:
        size = 4.5 if line.markers else 3.0
        parts += [marker(number, x, y, size) for x, y in points]
    return parts


def marker(number: int, x: float, y: float, size: float) -> str:
    """The point of a series, in its colour and its shape: a circle, a square, a diamond, a
    triangle; those of the second four are hollow."""
    kind = f"dot s{number % CLASSES}{' hollow' if number % CLASSES > 3 else ''}"
    if number % 4 == 0:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"/>'
    # so that shapes of one size look equally large
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
    for number, label in enumerate(labels):
        alone = number < len(markers) and markers[number]
        # as it is drawn: points that stand alone have no line
        sample = f'<line class="line s{number % CLASSES}" x1="1" x2="29" y1="7" y2="7"/>'
        if alone:
            sample = marker(number, 15, 7, 4.0)
        drawn = f'<svg class="key" viewBox="0 0 30 14" aria-hidden="true">{sample}</svg>'
        parts.append(f'<li class="s{number % CLASSES}">{drawn}{escape(_printable(label))}</li>')
    return f'<ul class="legend">{"".join(parts)}</ul>'


def _printable(label: str) -> str:
    # control letters turn the reading direction or hide what follows
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in label)


def interval_mark(estimate: Mapping[str, float | None], low: float, high: float) -> str:
    """A dot with whiskers on the scale low..high; "" where a value or a bound is missing."""
    mean = estimate.get("mean")
    lower = estimate.get("low")
    upper = estimate.get("high")
    if mean is None or lower is None or upper is None or not high > low:
        return ""

    def px(value: float) -> float:
        # at the edge of a mark, whose whisker leaves no room beyond it
        return 4 + (min(max(value, low), high) - low) / (high - low) * 112

    return (
        '<svg class="mark" viewBox="0 0 120 14" aria-hidden="true"><line class="grid" x1="4"'
        f' x2="116" y1="7" y2="7"/><line class="whisker" x1="{px(lower):.1f}" x2="{px(upper):.1f}"'
        f' y1="7" y2="7"/><circle class="point" cx="{px(mean):.1f}" cy="7" r="4"/></svg>'
    )


def span(values: Sequence[float], pad: float = 0.0) -> tuple[float, float]:
    """The lowest and the highest, with a share of air beyond both. Equal values get a span of 1,
    so that nothing divides by 0."""
    low = min(values)
    high = max(values)
    # beyond what a double can tell apart at this size
    if high - low < 1e-12 * max(1.0, abs(high)):
        return low - 0.5, high + 0.5
    return low - pad * (high - low), high + pad * (high - low)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between low and high, about so many."""
    rough = (high - low) / about
    # the least of 1, 2, 2.5 and 5 times a power of ten that reaches it; rounding may cost 0.1 %
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    # whole multiples, not sums of steps: 0.1 added three times is not 0.3
    return [
        round(n * step, 12)
        for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def short(value: float) -> str:
    """A number of an axis in few letters, since a phone has room for six.

    >>> [short(number) for number in (0, -9500, 12000, 250000, 2.5e6, 0.0005, 1e12)]
    ['0', '-9500', '12k', '250k', '2.5M', '5e-4', '1e12']
    """
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if max(unit, 1e4) <= size < 1e12:
            return f"{value / unit:g}{letter}"
    if size == 0 or 1e-3 <= size < 1e4:
        return f"{value:g}"
    digits, power = f"{value:.2e}".split("e")
    return f"{float(digits):g}e{int(power)}"


# -- a drawing as a file ---------------------------------------------------------------------------

# what the classes of a page look like in its light form, for whoever has no style sheet
COLOURS = (
    *("#1f5fbf", "#a84a08", "#0d6f4e", "#8b3fb8"),
    *("#a8123e", "#0a6a7a", "#7a6a00", "#5d626c"),
)
DASHES = ("", "7 4", "2 4", "10 3 2 3")
_INK = "#1d1f23"
_SOFT = "#5d626c"
_FONT = 'font-family="sans-serif"'
_CLASS = re.compile(r' class="([^"]*)"')
# pixels: title, a row of the legend
_TITLE = 26
_ROW = 20


def drawing_file(drawn: str, title: str, legend: Sequence[tuple[str, bool]] = ()) -> str:
    """A drawing of a page as an SVG file with its title and its legend (label, whether its points
    stand alone); "" of no drawing."""
    head, _, rest = drawn.partition(">")
    inside = rest.rpartition("</svg>")[0]
    if not inside:
        return ""
    wide, chart = map(float, head.partition('viewBox="0 0 ')[2].partition('"')[0].split())
    high = _TITLE + chart + _ROW * len(legend) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:g}" height="{high:g}"'
        f' viewBox="0 0 {wide:g} {high:g}"><rect width="{wide:g}" height="{high:g}" fill="#fff"/>',
        f'<text x="12" y="18" font-size="14" font-weight="600" fill="{_INK}" {_FONT}>',
        f'{text(title)}</text><g transform="translate(0,{_TITLE})">{inside}</g>',
    ]
    for number, (label, stands_alone) in enumerate(legend):
        y = _TITLE + chart + 10 + _ROW * number
        sample = f'<line class="line s{number % CLASSES}" x1="12" x2="42" y1="{y:g}" y2="{y:g}"/>'
        parts.append(marker(number, 27, y, 4.0) if stands_alone else sample)
        words = f'x="52" y="{y + 4:g}" font-size="12" fill="{_INK}"'
        parts.append(f"<text {words} {_FONT}>{text(label)}</text>")
    return _CLASS.sub(_attributes, "".join([*parts, "</svg>\n"]))


def _attributes(named: re.Match[str]) -> str:
    """What a class of the page looks like, as attributes."""
    names = named[1].split()
    number = next((int(name[1:]) for name in names if re.fullmatch(r"s\d", name)), 0)
    colour = COLOURS[number % CLASSES]
    dash = DASHES[number % 4]
    looks = {
        "grid": 'stroke="#dedbd2"',
        "axis": f'stroke="{_SOFT}"',
        "tick": f'fill="{_SOFT}" font-size="11.5" {_FONT}',
        "name": f'fill="{_SOFT}" font-size="11.5" {_FONT}',
        "value": f'fill="{_INK}" font-size="14" font-weight="600" {_FONT}',
        "bounds": f'fill="{_INK}" font-size="11.5" {_FONT}',
        "neutral": f'fill="{_SOFT}"',
        "heat": f'fill="{COLOURS[0]}"',
        "rest": 'fill="#f1efe9"',
        "raw": f'fill="none" stroke="{colour}" stroke-opacity="0.3"',
        "line": f'fill="none" stroke="{colour}" stroke-width="2.2" stroke-linejoin="round"'
        + (f' stroke-dasharray="{dash}"' if dash else ""),
        "band": f'fill="{colour}" fill-opacity="0.16"',
        "leader": f'stroke="{colour}" stroke-width="2" stroke-opacity="0.6"',
        "hollow": f'fill="#fff" stroke="{colour}" stroke-width="1.8"',
        "dot": f'fill="{colour}"',
    }
    return next((f" {look}" for name, look in looks.items() if name in names), "")


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
