"""The drawings of a study, each with its table: a heatmap of two axes, how they interact, the mean
of each name. It reads the summary of a study alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.kernel.spelling import decimal
from gem_ma.pages.static.marks import RATE, axis_name, axis_of, figure, interval_cell
from gem_ma.pages.static.page import Html, scrolled, table, text
from gem_ma.pages.static.plots import Mark, heatmap, whisker_chart
from gem_ma.scores.groups import SUCCESS

Summary = Mapping[str, Any]


def short_axis(axis: str) -> str:
    """An axis without its section: `agents.user` is `user`."""
    return axis.split(".", 1)[-1]


def heat(summary: Summary, score: str) -> Html:
    """A heatmap of two axes; of one axis a row of points."""
    axes = summary["axes"]
    if len(axes) == 1:
        ((axis, names),) = axes.items()
        marks = {cell["names"][axis]: _mark(cell["scores"].get(score)) for cell in summary["cells"]}
        y_range = (0.0, 1.0) if is_rate(summary, score) else None
        svg = whisker_chart(
            {score: [marks[name] for name in names]},
            names,
            title=score,
            x_label=short_axis(axis),
            y_label=score,
            y_range=y_range,
            # names have no order between which a line could run
            joined=False,
        )
        return figure(f"{score} by {short_axis(axis)}", svg)
    if len(axes) > 2:
        # a drawing has two axes: of three or more each pair gets one
        return Html("".join(_pair(summary, one, score) for one in summary["interactions"][score]))
    (rows, row_names), (columns, column_names) = axes.items()
    values = {
        (cell["names"][rows], cell["names"][columns]): _mark(cell["scores"].get(score))
        for cell in summary["cells"]
    }
    title = f"{score}: {short_axis(rows)} (rows) x {short_axis(columns)} (columns)"
    known = {key: mark for key, mark in values.items() if mark is not None}
    return _shaded(
        summary,
        score,
        title,
        heatmap(row_names, column_names, known, title=title, **_look(summary, score)),
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
    title = (
        f"{score}: {short_axis(rows)} (rows) x {short_axis(columns)} (columns), mean over the other"
        " axes"
    )
    return _shaded(
        summary,
        score,
        title,
        heatmap(names[0], names[1], values, title=title, **_look(summary, score)),
    )


def interaction(pair: Mapping[str, Any], score: str, rate: bool) -> Html:
    """Lines that are not parallel are an interaction; the table says by how much."""
    rows, columns = pair["axes"]
    names = list(dict.fromkeys(cell["names"][rows] for cell in pair["cells"]))
    # without whiskers: the intervals of single means say nothing about parallel lines
    lines: dict[str, list[Mark | None]] = {}
    for cell in pair["cells"]:
        lines.setdefault(cell["names"][columns], []).append(Mark(cell["mean"]))
    title = f"{score} of {short_axis(columns)} over {short_axis(rows)}"
    # means of several cells may be close: a rate is still drawn on its whole range
    y_range = (0.0, 1.0) if rate else None
    svg = whisker_chart(
        lines, names, title=title, x_label=short_axis(rows), y_label=score, y_range=y_range
    )
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
        table(
            [short_axis(rows), short_axis(columns), "mean", "interaction"], entries, caption=caption
        ),
    )


def margins(summary: Summary, score: str) -> Html:
    whole = [
        estimate for names in summary["margins"][score].values() for estimate in names.values()
    ]
    # one axis for the table, or its marks could not be compared
    marks = RATE if is_rate(summary, score) else axis_of(whole)
    rows = [
        [short_axis(axis), name, interval_cell(estimate, marks), estimate["n"]]
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


def _look(summary: Summary, score: str) -> dict[str, Any]:
    return {"rate": is_rate(summary, score), "better": _better(summary, score)}


def _shaded(summary: Summary, score: str, title: str, svg: str) -> Html:
    if not svg:
        return figure(title, "")
    shading = text(_shading(_better(summary, score)))
    return figure(title, f"<figcaption>{shading}</figcaption>{scrolled(svg, title)}")


def _mark(one: Mapping[str, Any] | None) -> Mark | None:
    return Mark(one["mean"], one["low"], one["high"]) if one and one["mean"] is not None else None
