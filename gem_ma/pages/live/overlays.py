"""The page of curves: a number of several trainings in one chart, over updates, tokens or time,
smoothed, runs that differ in their seed alone as one line; and the same chart as files for a paper,
SVG with its colours inside and CSV as exact as it was recorded."""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

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
from gem_ma.pages.static.figures import (
    CLASSES,
    Bounds,
    Curves,
    Line,
    Point,
    chart,
    drawing_file,
    line_chart,
    line_of,
)
from gem_ma.pages.static.folder import resolved
from gem_ma.pages.static.learning import (
    GROUPS,
    exam_intervals,
    exam_keys,
    flat_metrics,
    is_number,
    place_of,
    rank,
    series_of,
    times_of,
)
from gem_ma.pages.static.page import Html, render
from gem_ma.runs.export.tables import harmless
from gem_ma.runs.store import read_timings
from gem_ma.runs.store.names import changed_keys
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


# -- the lines -------------------------------------------------------------------------------------


# what stands on the horizontal axis -> its name in the chart
AXES = {"step": "step", "tokens": "tokens trained", "time": "seconds"}
SMOOTHING = ("0", "0.5", "0.8", "0.9", "0.95", "0.99")
Progress = Callable[[float], float | None]


class Seeds(Container[str]):
    """The settings in which the runs of one line may differ: `run.seed`, and those that a config
    derives from it."""

    def __contains__(self, key: object) -> bool:
        return str(key).rpartition(".")[2] == "seed"


@dataclass(frozen=True, slots=True)
class Training:
    """The numbers of one run folder by their flat keys; `exams`: keys whose points are exams."""

    name: str
    numbers: Mapping[str, Sequence[Point]]
    exams: frozenset[str]
    intervals: Mapping[str, Bounds]  # of the points of exams
    progress: Mapping[str, Progress]  # axis -> where a step lies on it
    settings: Mapping[str, object]


class View(NamedTuple):
    """How a number is drawn."""

    key: str
    axis: str = "step"
    smoothing: float = 0.0
    fold: bool = True  # seeds into one line


def read_training(name: str, path: Path) -> Training:
    """What a chart needs of a run folder. Raises StoreError for damage."""
    rows = flat_metrics(path)
    trained: dict[float, float] = {}
    for row in rows:
        counts = [
            float(value)
            for key, value in row.items()
            # of every policy that learns; `rows` and `turns` are other sizes of the same
            if key.startswith("policies/") and key.endswith("/tokens") and is_number(value)
        ]
        step = row.get("step")
        if counts and isinstance(step, (int, float)):
            trained[float(step)] = sum(counts)
    seconds = {
        float(step): float(row["step_s"])
        for step, row in read_timings(path).items()
        if is_number(row.get("step_s"))
    }
    progress: dict[str, Progress] = {"step": lambda step: step}
    progress |= {"tokens": _summed(trained), "time": _summed(seconds)}
    numbers = {**series_of(rows), **times_of(path)}
    exams = frozenset(exam_keys(path))
    return Training(name, numbers, exams, exam_intervals(path), progress, resolved(path))


def _summed(amounts: Mapping[float, float]) -> Progress:
    """Step -> all that came up to it; None everywhere where nothing was recorded."""
    steps = sorted(amounts)
    sums = list(accumulate((amounts[step] for step in steps), initial=0.0))
    # the first exam is before the first update: at 0
    return lambda step: sums[bisect_right(steps, step)] if steps else None


def keys_of(trainings: Sequence[Training]) -> dict[str, dict[str, str]]:
    """Group -> flat key -> its name, of all numbers that make a curve in one of the runs; in the
    order of the page of a training."""
    named: dict[str, tuple[str, str]] = {}
    for training in trainings:
        for key, points in training.numbers.items():
            if len(points) > 1:
                group, title, line = place_of(key)
                named[key] = (group, f"{title}: {line}" if line else title)
    order = sorted(named, key=lambda key: rank(named[key][1]))
    groups = {
        group: {key: named[key][1] for key in order if named[key][0] == group}
        for group in (*GROUPS, "")
    }
    return {group or "Other": keys for group, keys in groups.items() if keys}


def families(trainings: Sequence[Training], fold: bool) -> list[list[Training]]:
    """Runs that are drawn as one line: those with the same settings but for the seed."""
    groups: list[list[Training]] = []
    for training in trainings:
        same = (
            group
            for group in groups
            if fold and not changed_keys(dict(group[0].settings), dict(training.settings), Seeds())
        )
        group = next(same, None)
        if group is None:
            groups.append([training])
        else:
            group.append(training)
    return groups


def lines_of(trainings: Sequence[Training], view: View) -> list[Line]:
    """A line for each family: the mean of its seeds at each step that all of them have, with the
    unsmoothed means behind it. Exams are never smoothed: they stand alone."""
    return [_line(group, view) for group in families(trainings, view.fold)]


def _line(group: Sequence[Training], view: View) -> Line:
    is_exam = all(view.key in training.exams for training in group)
    weight = 0.0 if is_exam else view.smoothing
    seeds = [training.numbers.get(view.key, ()) for training in group]
    bounds = group[0].intervals.get(view.key)
    line = line_of(_label(group), [smoothed(points, weight) for points in seeds], is_exam, bounds)
    raw = line_of("", seeds).mean if weight else ()
    # where each seed is at a step: of several seeds it is their mean
    places = [[training.progress[view.axis](step) for training in group] for step in line.x]
    xs = tuple(fmean(x for x in place if x is not None) for place in places if None not in place)
    # a seed tells of all its steps or of none, so what is left out is all of a line
    if len(xs) < len(line.x):
        return Line(line.label, (), (), (), (), line.seeds, is_exam)
    return line._replace(x=xs, raw=raw)


def _label(group: Sequence[Training]) -> str:
    more = len(group) - 1
    return group[0].name + (f" and {more} more seed{'s' * (more > 1)}" if more else "")


def smoothed(points: Sequence[Point], weight: float) -> list[Point]:
    """The running mean in which each older point counts `weight` times as much as the next one;
    free of the pull to 0 at its beginning.

    >>> smoothed([(0, 4.0), (1, 4.0), (2, 0.0)], 0.5)
    [(0, 4.0), (1, 4.0), (2, 1.7142857142857142)]
    """
    # what is not finite is a gap, and would spoil all that follows
    known = [(x, y) for x, y in points if math.isfinite(y)]
    if not weight:
        return known
    total = share = 0.0
    means = []
    for x, y in known:
        total = weight * total + (1 - weight) * y
        share = weight * share + (1 - weight)
        means.append((x, total / share))
    return means


# -- the chart as a file ---------------------------------------------------------------------------


def svg_file(lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> str:
    """The chart as a file; "" where nothing is to be drawn."""
    drawn = [line for line in lines if line.x][:CLASSES]
    chart = line_chart(drawn, title=title, x_label=x_label, y_label=y_label)
    return drawing_file(chart, title, [(line.label, line.markers) for line in drawn])


def csv_file(lines: Sequence[Line], *, x_label: str) -> str:
    """One row for each point that is drawn, all lines below each other. Numbers stand with all
    their digits; `unsmoothed` is empty where nothing was smoothed."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("line", "seeds", x_label, "mean", "low", "high", "unsmoothed"))
    for line in lines:
        raw = line.raw or ("",) * len(line.x)
        for values in zip(line.x, line.mean, line.low, line.high, raw, strict=True):
            rows.writerow((harmless(line.label), line.seeds, *map(_exact, values)))
    return file.getvalue()


def _exact(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
