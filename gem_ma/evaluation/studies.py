"""The cells of a study -> one table: every score with its interval, paired differences against a
reference cell, and how the axes interact.

It reads episodes, never a run folder. A *score* is `success` (where the scenario has that
notion), `return <agent>`, or a measure of the scenario. Differences are taken within what
`paired_by` names, tasks are resampled with all that belongs to them (`gem_ma.evaluation.stats`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.errors import ConfigError
from gem_ma.evaluation.groups import values_of
from gem_ma.evaluation.judge import Judge
from gem_ma.evaluation.kinds import SUCCESS, Kinds
from gem_ma.types import Episode

Id = tuple[str, int, int]
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell of a study came to. `values`: score -> (task, seed, repeat) -> value.
    `world`: equal in cells that play the same tasks."""

    summary: Mapping[str, Any]
    values: Mapping[str, Mapping[Id, float]]
    world: str = ""
    run: str = ""
    kinds: Kinds = Kinds()


def cell_of(
    episodes: Iterable[Episode],
    judge: Judge,
    *,
    world: str = "",
    run: str = "",
    measures: Container[str] | None = None,
) -> Cell:
    """Summary and scores of the episodes of one cell; those that FAILED or were interrupted have no
    score.

    `measures`: which of the scenario's to keep for each episode (all where absent); of the
    others the summary has the mean.
    """
    listed = list(episodes)
    values: dict[str, dict[Id, float]] = {}
    for episode in listed:
        if not episode.end.scored:
            continue
        won = judge.success(episode) if judge.success is not None else None
        found = {SUCCESS: float(won)} if won is not None else {}
        found |= {f"return {agent}": value for agent, value in episode.returns().items()}
        for score, value in found.items():
            values.setdefault(score, {})[episode.id] = value
        for score, value in (
            values_of(episode, judge.measures).items() if judge.measures is not None else ()
        ):
            kept = values.setdefault(score, {})
            if measures is None or score in measures:
                kept[episode.id] = value
    return Cell(judge.summarise(listed), values, world, run, judge.kinds)


def study_summary(
    axes: Mapping[str, Names],
    cells: Mapping[Names, Cell],
    reference: Names,
    *,
    paired_by: Sequence[str] = ("task", "seed"),
    measures: Sequence[str] = (),
    resamples: int = 10_000,
    correct: str = "holm",
) -> dict[str, Any]:
    """The whole comparison as JSON values. The first score and those of `measures` are compared.

    Success comes first, then the returns of the agents whose seats are axes, in their order, then
    those of the others.

    Keys: `axes reference paired_by resamples correct scores compared rates better cells
    comparisons margins interactions`. Raises ConfigError for a measure that no cell has.
    """
    scores = list(dict.fromkeys(score for cell in cells.values() for score in cell.values))
    studied = [
        f"return {axis.removeprefix('agents.')}" for axis in axes if axis.startswith("agents.")
    ]
    order = {score: place for place, score in enumerate([SUCCESS, *studied])}
    scores.sort(key=lambda score: (order.get(score, len(order)), not score.startswith("return ")))
    for name in measures:
        if name not in scores:
            raise ConfigError(
                f"no cell has a score called {name!r}; there are {', '.join(scores) or 'none'}"
            )
    compared = list(dict.fromkeys([*scores[:1], *measures]))
    kinds = cells[reference].kinds
    return {
        "axes": {axis: list(names) for axis, names in axes.items()},
        "reference": dict(zip(axes, reference, strict=True)),
        "paired_by": list(paired_by),
        "resamples": resamples,
        "correct": correct,
        "scores": scores,
        "compared": compared,
        "rates": [score for score in scores if kinds.is_rate(score)],
        "better": {score: better for score in scores if (better := kinds.better(score))},
        "cells": [_row(axes, names, cell) for names, cell in cells.items()],
        "comparisons": {
            score: _compare(axes, cells, reference, score, paired_by, resamples, correct)
            for score in compared
        },
        "margins": {score: _margins(axes, cells, score, kinds) for score in compared},
        "interactions": {score: _interactions(axes, cells, score, resamples) for score in compared},
    }


def score_of(summary: Mapping[str, Any], score: str) -> Mapping[str, Any] | None:
    """The interval of a score in a run's summary; None where that run has no such score."""
    if score == SUCCESS:
        return summary["success"] or None
    found = summary["measures"].get(score)
    return (
        found
        if found is not None
        else (
            summary["returns"].get(score.removeprefix("return "))
            if score.startswith("return ")
            else None
        )
    )


def difference_text(row: Mapping[str, Any] | None) -> str:
    """`+0.120 [+0.020, +0.220]` of one comparison; None is the reference itself."""
    if row is None:
        return "reference"
    if row["difference"] is None:
        return "n/a (no shared play)"
    bounds = (
        "n/a"
        if row["low"] is None or row["high"] is None
        else f"{row['low']:+.3f}, {row['high']:+.3f}"
    )
    return f"{row['difference']:+.3f} [{bounds}]" + (
        "" if row["same_tasks"] else " (other scenario settings)"
    )


def _row(axes: Mapping[str, Names], names: Names, cell: Cell) -> dict[str, Any]:
    kept = ("episodes", "ok", "failed", "excluded", "tasks", "turns", "pass_hat_k")
    scores = {score: score_of(cell.summary, score) for score in cell.values}
    return {
        "names": dict(zip(axes, names, strict=True)),
        "run": cell.run,
        **{key: cell.summary[key] for key in kept},
        "scores": scores,
    }


# -- differences ---------------------------------------------------------------------------------


def _compare(
    axes: Mapping[str, Names],
    cells: Mapping[Names, Cell],
    reference: Names,
    score: str,
    paired_by: Sequence[str],
    resamples: int,
    correct: str,
) -> list[dict[str, Any]]:
    """Every other cell against the reference. Over these comparisons p is adjusted (Holm), and
    so is the second interval (Bonferroni)."""
    from gem_ma.evaluation.stats import holm, paired

    base = cells[reference].values.get(score, {})
    shared = {}  # names -> both values of every play that the cell has in common with the reference
    found: list[dict[str, Any]] = []
    for names, cell in cells.items():
        if names == reference:
            continue
        before, after = (
            _by_key(values, paired_by) for values in (base, cell.values.get(score, {}))
        )
        shared[names] = [
            (key, before[key], after[key]) for key in sorted(before.keys() & after.keys())
        ]
        row = {
            "names": dict(zip(axes, names, strict=True)),
            "same_tasks": cell.world == cells[reference].world,
        }
        found.append(
            {
                **row,
                "pairs": len(shared[names]),
                "unpaired": len(before.keys() ^ after.keys()),
                **_NOTHING,
            }
        )
    adjusts = correct == "holm"
    family = sum(map(bool, shared.values())) if adjusts else 1
    for row, pairs in zip(found, shared.values(), strict=True):
        if pairs:
            keys, before_values, after_values = zip(*pairs, strict=True)
            one = paired(
                before_values, after_values, _units(keys), resamples=resamples, family=family
            )
            row |= {
                "difference": one.difference,
                "low": _finite(one.low),
                "high": _finite(one.high),
                "p": one.p,
                "method": one.method,
            }
            row |= {
                "tasks": one.tasks,
                "low_adjusted": _finite(one.wide_low),
                "high_adjusted": _finite(one.wide_high),
            }
    tested = [row for row in found if row["p"] is not None]
    for row, p in zip(
        tested,
        holm([row["p"] for row in tested]) if adjusts else [row["p"] for row in tested],
        strict=True,
    ):
        row["p_adjusted"] = p
    return found


# A comparison without a shared play.
_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(
        ("difference", "low", "high", "p", "p_adjusted", "low_adjusted", "high_adjusted")
    ),
    "method": "none",
    "tasks": 0,
}


def _by_key(values: Mapping[Id, float], paired_by: Sequence[str]) -> dict[tuple[Any, ...], float]:
    """The mean of the values that share a key; the task comes first in it."""
    grouped: dict[tuple[Any, ...], list[float]] = {}
    for (task, seed, repeat), value in values.items():
        key = (task, seed if "seed" in paired_by else 0, repeat if "repeat" in paired_by else 0)
        grouped.setdefault(key, []).append(value)
    return {key: math.fsum(found) / len(found) for key, found in grouped.items()}


def _units(keys: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The independent unit of each key: its task, or its seed where there is one task only."""
    single = len({key[0] for key in keys}) == 1
    return [key[:2] if single else key[0] for key in keys]


# -- axes ----------------------------------------------------------------------------------------


def _tensor(axes: Mapping[str, Names], cells: Mapping[Names, Cell], score: str) -> Any:
    """Mean score of each unit that all cells have played, [names of axis 1, ..., units]; None
    where there is no such unit."""
    import numpy as np

    single = len({id_[0] for cell in cells.values() for id_ in cell.values.get(score, {})}) == 1
    by_unit = []
    for names in itertools.product(*axes.values()):
        grouped: dict[Any, list[float]] = {}
        for (task, seed, _), value in (
            cells[names].values.get(score, {}) if names in cells else {}
        ).items():
            grouped.setdefault((task, seed) if single else task, []).append(value)
        by_unit.append({unit: math.fsum(found) / len(found) for unit, found in grouped.items()})
    shared = sorted(set.intersection(*(set(one) for one in by_unit))) if by_unit else []
    if not shared:
        return None
    return np.array([[one[unit] for unit in shared] for one in by_unit]).reshape(
        [*(len(names) for names in axes.values()), len(shared)]
    )


def _margins(
    axes: Mapping[str, Names], cells: Mapping[Names, Cell], score: str, kinds: Kinds
) -> dict[str, dict[str, Any]]:
    """Axis -> name -> the mean over all cells with that name, over the units that every cell has
    played."""
    from gem_ma.evaluation.stats import mean_interval

    values = _tensor(axes, cells, score)
    found: dict[str, dict[str, Any]] = {}
    for at, (axis, names) in enumerate(axes.items()) if values is not None else ():
        # [names, units]
        marginal = values.mean(axis=tuple(other for other in range(len(axes)) if other != at))
        rate = kinds.is_rate(score)
        found[axis] = {}
        for name, row in zip(names, marginal, strict=True):
            # a mean of rates may leave 0..1 by rounding
            one = mean_interval(row.clip(0.0, 1.0) if rate else row, rate=rate)
            bounds = {"low": _finite(one.low), "high": _finite(one.high)}
            found[axis][name] = {
                "mean": one.mean,
                **bounds,
                "n": one.tasks,
                "method": one.method,
                "rate": rate,
            }
    return found


def _interactions(
    axes: Mapping[str, Names], cells: Mapping[Names, Cell], score: str, resamples: int
) -> list[dict[str, Any]]:
    """For each pair of axes: what a cell has beyond the sum of what its row and its column
    bring, with its interval over units."""
    import numpy as np

    from gem_ma.evaluation.stats import paired

    values = _tensor(axes, cells, score)
    found = []
    for first, second in itertools.combinations(range(len(axes)), 2) if values is not None else ():
        # [rows, columns, units]
        table = values.mean(
            axis=tuple(other for other in range(len(axes)) if other not in (first, second))
        )
        beyond = (
            table
            - table.mean(0, keepdims=True)
            - table.mean(1, keepdims=True)
            + table.mean((0, 1), keepdims=True)
        )
        # what rounding left is no effect
        beyond[np.abs(beyond) < 1e-9 * max(1.0, float(np.abs(table).max()))] = 0.0
        units = beyond.shape[-1]
        rows, columns = (list(axes.items())[at] for at in (first, second))
        entries = []
        for (i, row), (j, column) in itertools.product(enumerate(rows[1]), enumerate(columns[1])):
            one = paired(np.zeros(units), beyond[i, j], range(units), resamples=resamples)
            names = {rows[0]: row, columns[0]: column}
            mean = float(table[i, j].mean())
            entries.append(
                {
                    "names": names,
                    "mean": mean,
                    "effect": one.difference,
                    "low": _finite(one.low),
                    "high": _finite(one.high),
                }
            )
        found.append({"axes": [rows[0], columns[0]], "units": units, "cells": entries})
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
