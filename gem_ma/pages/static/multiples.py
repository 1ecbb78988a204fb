"""Small multiples: many small charts of one shape in one SVG file, which a page, GitHub and a
paper show alike. It knows numbers and labels, nothing of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gem_ma.pages.static.figures import (
    BAND_SEEDS,
    COLOURS,
    DASHES,
    Frame,
    Line,
    Point,
    line_of,
    short,
    span,
    ticks,
)
from gem_ma.pages.static.page import text

_ACROSS = 4
_WIDE, _HIGH = 220, 172
_RULE, _INK, _SOFT = "#dde3e8", "#1d2733", "#5d6b79"
_ALARM = "#c62828"


class Panel(NamedTuple):
    """One small chart. `lines`: label -> the points (x, y) of each seed; `levels`: name -> a height
    that is drawn across, as of a trivial player; `marks`: (x, name) of events, each drawn once;
    `note` stands in its middle where it has no line."""

    title: str
    lines: Mapping[str, Sequence[Sequence[Point]]]
    levels: Mapping[str, float] = {}
    marks: Sequence[tuple[float, str]] = ()
    note: str = ""


def multiples(panels: Sequence[Panel], title: str, about: str) -> str:
    """The SVG file of these charts, four in a row; `about` says what its axes are. One line for
    each label, the mean of its seeds with a band from lowest to highest; fewer than three seeds
    are drawn one by one."""
    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    rows = -(-len(panels) // _ACROSS)
    head = 46 if any(labels) else 26
    width = _ACROSS * _WIDE
    height = head + rows * _HIGH
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
            f' aria-label="{text(title)}" font-family="sans-serif" font-size="11" fill="{_INK}">'
        ),
        f'<title>{text(title)}</title><rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="8" y="16" fill="{_SOFT}">{text(about)}</text>',
        *_legend(labels),
    ]
    for number, panel in enumerate(panels):
        left = number % _ACROSS * _WIDE
        top = head + number // _ACROSS * _HIGH
        parts.append(f'<g transform="translate({left} {top})">')
        parts += _panel(panel, labels)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _legend(labels: Sequence[str]) -> list[str]:
    parts = []
    x = 8
    for number, label in enumerate(labels if any(labels) else ()):
        parts.append(f'<path d="M{x} 32h22" {_stroke(number)}/>')
        parts.append(f'<text x="{x + 27}" y="36">{text(label)}</text>')
        x += 44 + 7 * len(label)
    return parts


def _panel(panel: Panel, labels: Sequence[str]) -> list[str]:
    parts = [f'<text x="8" y="14" font-weight="bold">{text(panel.title)}</text>']
    lines = {label: _folded(label, seeds) for label, seeds in panel.lines.items()}
    drawn = [line for held in lines.values() for line in held if line.x]
    if not drawn:
        middle = f'x="{_WIDE / 2:g}" y="{_HIGH / 2:g}" text-anchor="middle"'
        return [*parts, f'<text {middle} fill="{_SOFT}">{text(panel.note)}</text>']
    heights = [y for line in drawn for y in (*line.low, *line.high)] + [*panel.levels.values()]
    # scores within 0 to 1 look alike in every chart, whatever their spread in this one
    is_rate = min(heights) >= 0 and max(heights) <= 1
    x_span = span([x for line in drawn for x in line.x])
    y_span = (-0.04, 1.04) if is_rate else span(heights, pad=0.06)
    frame = Frame(44, _WIDE - 12, 24, _HIGH - 22, x_span, y_span)
    parts += _axes(frame)
    for name, level in panel.levels.items():
        y = frame.py(level)
        parts.append(
            f'<path d="M{frame.left:g} {y:.1f}H{frame.right:g}" stroke="{_SOFT}"'
            f' stroke-dasharray="1 3"><title>{text(name)} {short(level)}</title></path>'
        )
        parts.append(
            f'<text x="{frame.right:g}" y="{y - 3:.1f}" text-anchor="end" font-size="9"'
            f' fill="{_SOFT}">{text(name)}</text>'
        )
    for x, name in panel.marks:
        at = frame.px(min(max(x, x_span[0]), x_span[1]))
        parts.append(
            f'<path d="M{at:.1f} {frame.top:g}V{frame.bottom:g}" stroke="{_ALARM}"'
            f' stroke-dasharray="3 3"><title>{text(name)}, step {x:g}</title></path>'
        )
        parts.append(
            f'<text x="{at + 2:.1f}" y="{frame.bottom - 6:g}" font-size="9"'
            f' fill="{_ALARM}">{text(name)}</text>'
        )
    for label, held in lines.items():
        for line in held:
            parts += _line(frame, labels.index(label), line)
    return parts


def _folded(label: str, seeds: Sequence[Sequence[Point]]) -> list[Line]:
    """One line of several seeds, or each seed as a line where they are few."""
    if len(seeds) >= BAND_SEEDS:
        return [line_of(label, seeds)]
    return [line_of(label, [seed]) for seed in seeds]


def _axes(frame: Frame) -> list[str]:
    parts = []
    for tick in ticks(*frame.y, 4):
        y = frame.py(tick)
        parts.append(f'<path d="M{frame.left:g} {y:.1f}H{frame.right:g}" stroke="{_RULE}"/>')
        parts.append(
            f'<text x="{frame.left - 5:g}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>'
        )
    for tick in ticks(*frame.x, 4):
        x = frame.px(tick)
        parts.append(
            f'<text x="{x:.1f}" y="{frame.bottom + 14:g}" text-anchor="middle">{short(tick)}</text>'
        )
    return parts


def _line(frame: Frame, number: int, line: Line) -> list[str]:
    parts = []
    if line.seeds > 1:
        there = list(zip(line.x, line.high, strict=True))
        back = list(zip(line.x, line.low, strict=True))[::-1]
        edge = " ".join(f"{frame.px(x):.1f},{frame.py(y):.1f}" for x, y in (*there, *back))
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polygon points="{edge}" fill="{colour}" fill-opacity=".16"/>')
    points = [(frame.px(x), frame.py(y)) for x, y in zip(line.x, line.mean, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts.append(f'<polyline points="{path}" {_stroke(number)}/>')
    return parts


def _stroke(number: int) -> str:
    dash = DASHES[number % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.8"{dashed}'
