"""The page of curves: a number of several trainings in one chart, and the same chart as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    missing,
    page_address,
    refused,
    run_address,
    served,
)
from gem_ma.pages.static.curves import Curves, chart
from gem_ma.pages.static.overlay import (
    AXES,
    SMOOTHING,
    Training,
    View,
    keys_of,
    lines_of,
    read_training,
)
from gem_ma.pages.static.page import Html, render
from gem_ma.pages.static.plot_files import csv_file, svg_file
from gem_ma.pages.static.svg import Line
from gem_ma.system.files import damage

if TYPE_CHECKING:
    from gem_ma.pages.live.site import Site

MOST_RUNS = 40
FILES = {"plot.svg": "image/svg+xml", "numbers.csv": "text/csv; charset=utf-8"}


def curves_page(site: Site, asked: Asked) -> Answer:
    """The chart with what to choose; below `plot.svg` and `numbers.csv` the chart as a file."""
    names = list(dict.fromkeys(asked.runs))
    try:
        if not 0 < len(names) <= MOST_RUNS:
            raise ConfigError(f"choose 1 to {MOST_RUNS} runs in the list of all runs")
        trainings = [_training(site, name) for name in names]
        keys = keys_of(trainings)
        if not keys:
            raise ConfigError(f"no curve: {', '.join(names)} recorded no number over steps")
        view = _view(asked.query, keys)
        with damage(site.root):
            lines = lines_of(trainings, view)
    except GemMaError as error:
        return refused("Curves", error)
    if asked.rest:
        return _file(asked.rest, lines, view, keys)
    return served("Curves", _page(names, lines, view, keys))


def _training(site: Site, name: str) -> Training:
    place, rest = site.folder([part for part in name.split("/") if part] or [""])
    if rest:
        raise ConfigError(f"{name}: no such run folder")
    with damage(place / "metrics.jsonl"):
        return read_training(name, place)


def _view(query: Mapping[str, str], keys: Mapping[str, Mapping[str, str]]) -> View:
    """What the fields of the address ask for; what they do not, or wrongly, is as usual."""
    known = [key for group in keys.values() for key in group]
    key = query.get("y", "")
    axis = query.get("x", "")
    smoothing = query.get("smooth", "")
    return View(
        key if key in known else known[0],
        axis if axis in AXES else "step",
        float(smoothing) if smoothing in SMOOTHING else 0.0,
        query.get("seeds") != "apart",
    )


def _file(
    rest: Sequence[str], lines: Sequence[Line], view: View, keys: Mapping[str, Mapping[str, str]]
) -> Answer:
    if (kind := FILES.get("/".join(rest))) is None:
        return missing("there is no such page")
    name = _name(view, keys)
    axis = AXES[view.axis]
    if rest == ["plot.svg"]:
        body = svg_file(lines, title=name, x_label=axis, y_label=name)
    else:
        body = csv_file(lines, x_label=axis)
    return Answer(200, kind, body.encode("utf-8", "replace"))


def _name(view: View, keys: Mapping[str, Mapping[str, str]]) -> str:
    return next(group[view.key] for group in keys.values() if view.key in group)


def _page(
    names: Sequence[str],
    lines: Sequence[Line],
    view: View,
    keys: Mapping[str, Mapping[str, str]],
) -> Html:
    name = _name(view, keys)
    axis = AXES[view.axis]
    drawn = chart(Curves(name, {}, x_label=axis, y_label=name, note=_note(view)), lines)
    smooth = f"{view.smoothing:g}"
    seeds = "together" if view.fold else "apart"
    fields = {"y": view.key, "x": view.axis, "smooth": smooth, "seeds": seeds}
    files = {"svg": "plot.svg", "csv": "numbers.csv"}
    return render(
        "curves",
        names=names,
        name=name,
        keys=keys,
        view=view,
        axes=AXES,
        smoothing=[(value, "none" if value == "0" else value) for value in SMOOTHING],
        smooth=smooth,
        seeds=seeds,
        chart=drawn,
        files={
            kind: (file, page_address(f"curves/{file}", names, **fields))
            for kind, file in files.items()
        },
        runs={run: run_address(run) for run in names},
    )


def _note(view: View) -> str:
    smooth = f"smoothed by {view.smoothing:g}, the thin lines are not" if view.smoothing else ""
    place = f"a point stands at the mean of its seeds' {AXES[view.axis]}"
    return "; ".join([smooth] * bool(smooth) + [place] * (view.fold and view.axis != "step"))
