"""A figure of a study as a file of its own, for a paper or a slide: SVG, and PNG where the tool for
it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import nearest
from gem_ma.pages.static.figures import Mark, drawing_file
from gem_ma.pages.static.plots import heatmap, whisker_chart
from gem_ma.pages.static.study import is_rate, look, mark, short_axis

Summary = Mapping[str, Any]
Series = Mapping[str, Sequence[Mark | None]]
PASS_K = "pass^k"  # the curve of all k, in place of one score


def study_svg(summary: Summary, score: str | None = None) -> str:
    """The figure of a score: a heatmap of two axes, points of one; of a mix what each side is paid.

    `score`: the first that is compared where absent; `pass^k` draws all k of each cell. Raises
    ConfigError for a score that the study has not, and for more than two axes.
    """
    axes = summary["axes"]
    found = summary.get("mix")
    if score is None and found:
        series = {
            name: [mark(row[key]) for row in found["rows"]]
            for name, key in zip(found["players"], ("first", "second"), strict=True)
        }
        counts = [str(row["count"]) for row in found["rows"]]
        return _lines(series, counts, f"seats of {found['players'][0]}", "return a head", None)
    if score == PASS_K:
        return _pass_k(summary)
    score = score or summary["compared"][0]
    if score not in summary["scores"]:
        known = ", ".join(summary["scores"])
        hint = nearest(score, summary["scores"])
        raise ConfigError(f"--score {score}: the study has no such score{hint}; it has {known}")
    if len(axes) > 2:
        raise ConfigError(
            f"a figure has one or two axes; this study has {len(axes)}: take --to csv"
        )
    places = [tuple(cell["names"].values()) for cell in summary["cells"]]
    marks = dict(zip(places, (mark(c["scores"].get(score)) for c in summary["cells"]), strict=True))
    if len(axes) == 1:
        ((axis, names),) = axes.items()
        series = {score: [marks[name,] for name in names]}
        limits = (0.0, 1.0) if is_rate(summary, score) else None
        return _lines(series, names, short_axis(summary, axis), score, limits, joined=False)
    (row_axis, rows), (column_axis, columns) = axes.items()
    both = short_axis(summary, row_axis), short_axis(summary, column_axis)
    title = f"{score}: {' (rows) x '.join(both)} (columns)"
    known_marks = {place: one for place, one in marks.items() if one is not None}
    drawn = heatmap(rows, columns, known_marks, title=title, **look(summary, score))
    return _file(drawn, title, [])


def _pass_k(summary: Summary) -> str:
    series = {
        " x ".join(cell["names"].values()): [mark(one) for one in cell["pass_hat_k_intervals"]]
        for cell in summary["cells"]
        if cell.get("pass_hat_k_intervals")
    }
    most = max(map(len, series.values()), default=0)
    # a cell whose tasks have fewer tries ends earlier
    padded = {name: [*marks, *[None] * (most - len(marks))] for name, marks in series.items()}
    counts = [str(k) for k in range(1, most + 1)]
    return _lines(padded, counts, "k", PASS_K, (0.0, 1.0))


def _lines(
    series: Series,
    names: Sequence[str],
    x_label: str,
    y_label: str,
    limits: tuple[float, float] | None,
    joined: bool = True,
) -> str:
    title = f"{y_label} by {x_label}"
    drawn = whisker_chart(
        series,
        names,
        title=title,
        x_label=x_label,
        y_label=y_label,
        y_range=limits,
        joined=joined,
    )
    labels = [name for name, marks in series.items() if any(marks)]
    return _file(drawn, title, labels if len(series) > 1 else [])


def _file(drawn: str, title: str, labels: Sequence[str]) -> str:
    """The drawing with its title and its legend. Raises ConfigError where nothing is drawn."""
    # a legend of the page stands before it
    begin = max(drawn.rfind('<svg class="chart"'), drawn.rfind('<svg class="heatmap"'))
    if begin < 0:
        raise ConfigError(f"{title}: no cell has a number to draw")
    end = drawn.index("</svg>", begin) + len("</svg>")
    return drawing_file(drawn[begin:end], title, [(label, True) for label in labels])


def png_of(svg: str) -> bytes:
    """The drawing in pixels, two for each of its own. Raises ConfigError where cairosvg is not
    installed."""
    try:
        import cairosvg
    except (ImportError, OSError) as error:  # OSError: its library is missing
        raise ConfigError(
            "PNG is drawn by cairosvg, which is not there: pip install cairosvg (and libcairo2), or"
            " take --to svg"
        ) from error
    made: bytes = cairosvg.svg2png(bytestring=svg.encode(), scale=2)
    return made
