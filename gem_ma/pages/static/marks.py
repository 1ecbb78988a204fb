"""Intervals as text with a mark beside it, all marks of a table on one axis: rates on 0 to 1,
other scores on an axis that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gem_ma.pages.static.page import Html, text
from gem_ma.pages.static.svg import interval_mark, short, ticks
from gem_ma.scores.groups import interval_text

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


def interval_cell(estimate: Estimate | None, axis: Axis | None = None) -> Html:
    """`0.850 [0.640, 0.948]`, with its mark on the axis where there is one."""
    if not estimate:
        return text("n/a")
    mark = interval_mark(estimate, *axis) if axis is not None else ""
    return Html(f'<span class="interval">{text(interval_text(estimate))}</span>{mark}')


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
