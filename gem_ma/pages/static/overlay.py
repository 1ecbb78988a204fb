"""One number of several trainings in one chart: over updates, tokens or time, smoothed, runs that
differ in their seed alone as one line. It reads run folders and draws nothing."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gem_ma.pages.static.folder import resolved
from gem_ma.pages.static.learning import (
    GROUPS,
    SCORES,
    exam_keys,
    flat_metrics,
    place_of,
    series_of,
    times_of,
)
from gem_ma.pages.static.svg import Line, Point, line_of
from gem_ma.runs.store import read_timings
from gem_ma.runs.store.names import changed_keys

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
            if key.startswith("policies/") and key.endswith("/tokens") and _is_number(value)
        ]
        step = row.get("step")
        if counts and isinstance(step, (int, float)):
            trained[float(step)] = sum(counts)
    seconds = {
        float(step): float(row["step_s"])
        for step, row in read_timings(path).items()
        if _is_number(row.get("step_s"))
    }
    progress: dict[str, Progress] = {"step": lambda step: step}
    progress |= {"tokens": _summed(trained), "time": _summed(seconds)}
    numbers = {**series_of(rows), **times_of(path)}
    return Training(name, numbers, frozenset(exam_keys(path)), progress, resolved(path))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
    ranks = {begin: rank for rank, begin in enumerate(SCORES)}

    def rank(key: str) -> int:
        title = named[key][1]
        return next((ranks[begin] for begin in SCORES if title.startswith(begin)), len(SCORES))

    order = sorted(named, key=rank)
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
    line = line_of(_label(group), [smoothed(points, weight) for points in seeds], is_exam)
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
