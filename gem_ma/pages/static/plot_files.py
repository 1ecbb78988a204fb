"""A chart as a file of its own, for a paper: SVG with its colours and legend inside, and the
numbers behind it as CSV, as exact as they were recorded. It knows lines, no runs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from gem_ma.pages.static.page import text
from gem_ma.pages.static.svg import CLASSES, Line, line_chart, marker

# pixels: chart, its title, a row of the legend
_WIDTH = 720
_CHART = 300
_TITLE = 26
_ROW = 20
_INK = "#1d1f23"
_SOFT = "#5d626c"
_RULE = "#dedbd2"
_COLOURS = (
    *("#1f5fbf", "#a84a08", "#0d6f4e", "#8b3fb8"),
    *("#a8123e", "#0a6a7a", "#7a6a00", "#5d626c"),
)
_DASHES = ("", "7 4", "2 4", "10 3 2 3")
_FONT = 'font-family="sans-serif"'
_CLASS = re.compile(r' class="([^"]*)"')
# a cell that begins so is a formula to the programs that open such files
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def svg_file(lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> str:
    """The chart as a file; "" where nothing is to be drawn."""
    drawn = [line for line in lines if line.x][:CLASSES]
    chart = line_chart(drawn, title=title, x_label=x_label, y_label=y_label)
    if not chart:
        return ""
    inside = chart[chart.index(">") + 1 : chart.rindex("</svg>")]
    height = _TITLE + _CHART + _ROW * len(drawn) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}"><rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="18" font-size="14" font-weight="600" fill="{_INK}" {_FONT}>',
        f'{text(title)}</text><g transform="translate(0,{_TITLE})">{inside}</g>',
    ]
    for number, line in enumerate(drawn):
        y = _TITLE + _CHART + 10 + _ROW * number
        sample = f'<line class="line s{number}" x1="12" x2="42" y1="{y}" y2="{y}"/>'
        parts.append(marker(number, 27, y, 4.0) if line.markers else sample)
        words = f'x="52" y="{y + 4}" font-size="12" fill="{_INK}"'
        parts.append(f"<text {words} {_FONT}>{text(line.label)}</text>")
    return _CLASS.sub(_attributes, "".join([*parts, "</svg>\n"]))


def _attributes(named: re.Match[str]) -> str:
    """What a class of the page looks like, as attributes: a file has no style sheet."""
    names = named[1].split()
    number = next((int(name[1:]) for name in names if re.fullmatch(r"s\d", name)), 0)
    colour = _COLOURS[number % CLASSES]
    dash = _DASHES[number % 4]
    looks = {
        "grid": f'stroke="{_RULE}"',
        "axis": f'stroke="{_SOFT}"',
        "tick": f'fill="{_SOFT}" font-size="11.5" {_FONT}',
        "name": f'fill="{_SOFT}" font-size="11.5" {_FONT}',
        "raw": f'fill="none" stroke="{colour}" stroke-opacity="0.3"',
        "line": f'fill="none" stroke="{colour}" stroke-width="2.2" stroke-linejoin="round"'
        + (f' stroke-dasharray="{dash}"' if dash else ""),
        "band": f'fill="{colour}" fill-opacity="0.16"',
        "leader": f'stroke="{colour}" stroke-width="2" stroke-opacity="0.6"',
        "hollow": f'fill="#fff" stroke="{colour}" stroke-width="1.8"',
        "dot": f'fill="{colour}"',
    }
    return next((f" {look}" for name, look in looks.items() if name in names), "")


def csv_file(lines: Sequence[Line], *, x_label: str) -> str:
    """One row for each point that is drawn, all lines below each other. Numbers stand with all
    their digits; `unsmoothed` is empty where nothing was smoothed."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("line", "seeds", x_label, "mean", "low", "high", "unsmoothed"))
    for line in lines:
        raw = line.raw or ("",) * len(line.x)
        for values in zip(line.x, line.mean, line.low, line.high, raw, strict=True):
            rows.writerow((_harmless(line.label), line.seeds, *map(_exact, values)))
    return file.getvalue()


def _exact(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _harmless(label: str) -> str:
    # the name of a run could be a command
    return f"'{label}" if label.startswith(_FORMULA) else label
