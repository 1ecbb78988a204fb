"""The cells of a study as one table: every score with its interval, paired differences against a
reference cell, and how the axes interact.

It reads episodes, never a run folder. A *score* is `success` (where the scenario has that
notion), `return <agent>`, or a measure of the scenario. Differences are taken within what
`paired_by` names, and the task is the unit (`gem_ma.scores.stats`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from statistics import fmean
from typing import Any

from gem_ma.config.document import parted
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import decimal
from gem_ma.scores.columns import COLUMNS
from gem_ma.scores.groups import (
    ONE_PLAY,
    RETURN,
    SUCCESS,
    Id,
    Kinds,
    as_one_play,
    finite,
    interval_text,
    one_world,
    statistics,
    units,
)
from gem_ma.scores.judge import Judge
from gem_ma.scores.metrics import copied_worlds
from gem_ma.scores.rows import PlayRow, last_attempts
from gem_ma.scores.together import EQUALITY, MOST_RETURNS, SPREAD, WON, apart, repeated

# -- plays that two runs have in common ------------------------------------------------------------

RESAMPLES = 10_000  # of a test, where nothing else is said
# A comparison without a shared play.
NO_PAIR: Mapping[str, Any] = {
    **dict.fromkeys(
        ("difference", "low", "high", "p", "p_adjusted", "low_adjusted", "high_adjusted")
    ),
    "method": "none",
    "tasks": 0,
}


def by_play(values: Mapping[Id, float], paired_by: Sequence[str]) -> dict[tuple[Any, ...], float]:
    """The mean of the values that share a key; the task comes first in it."""
    seeded = "seed" in paired_by
    repeated = "repeat" in paired_by
    means: dict[tuple[Any, ...], float] = {}
    # most have one value, and ten thousand lists and means of one number take a tenth of a second
    several: dict[tuple[Any, ...], list[float]] = {}
    for (task, seed, repeat), value in values.items():
        # 0 stands for what is not paired by: all of it falls under one key, and is averaged
        key = (task, seed if seeded else 0, repeat if repeated else 0)
        if key in means:
            several.setdefault(key, [means[key]]).append(value)
        else:
            means[key] = value
    return means | {key: fmean(numbers) for key, numbers in several.items()}


def paired_difference(
    pairs: Sequence[tuple[tuple[Any, ...], float, float]],
    resamples: int,
    family: int,
    rate: bool,
) -> dict[str, Any]:
    """The second value of each pair less the first, as JSON values; the key of a pair names its
    play. `rate`: as in `gem_ma.scores.stats.paired`."""
    keys, before, after = zip(*pairs, strict=True)
    result = statistics().paired(
        before, after, units(keys), resamples=resamples, family=family, rate=rate
    )
    return {
        "difference": result.difference,
        "low": finite(result.low),
        "high": finite(result.high),
        "p": result.p,
        "method": result.method,
        "tasks": result.tasks,
        "low_adjusted": finite(result.wide_low),
        "high_adjusted": finite(result.wide_high),
    }


def one_difference(pairs: Sequence[tuple[tuple[Any, ...], float, float]]) -> dict[str, Any]:
    """The same of two cells whose plays are copies of one each: a difference that nothing tests."""
    _, before, after = pairs[0]
    return {**NO_PAIR, "difference": apart(before, after), "method": ONE_PLAY, "tasks": 1}


Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell of a study came to. `values`: score -> (task, seed, repeat) -> value. `world`:
    equal in cells that play the same tasks; `one_play`: its plays are copies of one, and `copied`
    those of these scenarios of several."""

    summary: Mapping[str, Any]
    values: Mapping[str, Mapping[Id, float]]
    world: str = ""
    run: str = ""
    kinds: Kinds = Kinds()
    one_play: bool = False
    copied: frozenset[str] = frozenset()
    # play -> its sides, each agents and their mean return; of a tournament alone
    results: Mapping[Id, Sequence[tuple[tuple[str, ...], float]]] = field(default_factory=dict)

    def copies(self, other: Cell, pairs: Iterable[tuple[Any, ...]]) -> bool:
        """Whether what these pairs compare is one play again, here and in another cell."""
        if self.one_play and other.one_play:
            return True
        return one_world(key for key, *_ in pairs) in self.copied & other.copied


def cell_of(
    rows: Sequence[PlayRow],
    judge: Judge,
    *,
    world: str = "",
    run: str = "",
    measures: Collection[str] | None = None,
    episodes: Callable[[], Iterable[Episode]] = list,
) -> Cell:
    """Summary and scores of the plays of one cell; those that FAILED or were interrupted have no
    score.

    `measures`: which of the scenario's to keep for each episode (all where absent); of the
    others the summary has the mean. `episodes` as in `gem_ma.scores.metrics.summary_of`.
    """
    counted = last_attempts(rows)
    values, named = scores_of(counted, judge, measures)
    # empty where a task has too few tries: the cell has the score, and no number of it
    values |= {
        name: _passed(counted, tries) for name in measures or () if (tries := tries_of(name))
    }
    copied = copied_worlds(rows, counted, episodes)
    one_play = bool(copied) and len({row.world for row in counted}) == 1
    kinds = kinds_of(judge.kinds, values, named)
    summary = judge.summary(rows, episodes)
    return Cell(summary, values, world, run, kinds, one_play, frozenset(copied))


def tries_of(score: str) -> int:
    """The k of a score called `pass^k`; 0 of any other."""
    count = score.removeprefix("pass^")
    return int(count) if count != score and count.isdecimal() and len(count) < 9 else 0


def _passed(rows: Iterable[PlayRow], k: int) -> dict[Id, float]:
    """(task, its least seed, 0) -> the chance that k of its tries all succeed; {} where a task has
    fewer, or there is one alone."""
    tasks: dict[str, list[PlayRow]] = {}
    for row in rows:
        if row.is_scored and row.success is not None:
            tasks.setdefault(row.task, []).append(row)
    if len(tasks) < 2 or any(len(tries) < k for tries in tasks.values()):
        return {}
    return {
        (task, min(row.id[1] for row in tries), 0): statistics().pass_hat_k(
            [sum(bool(row.success) for row in tries)], [len(tries)], k
        )
        for task, tries in tasks.items()
    }


def kinds_of(kinds: Kinds, scores: Iterable[str], measures: Container[str]) -> Kinds:
    """The scenario's, and which built-in scores are rates."""
    shares = [
        score
        for score in scores
        if score not in measures
        and (score.startswith(WON) or score.split(" ")[-1] == EQUALITY or tries_of(score))
    ]
    return replace(kinds, rates=(*kinds.rates, *map(escape, shares)))


def scores_of(
    rows: Iterable[PlayRow], judge: Judge, measures: Container[str] | None = None
) -> tuple[dict[str, dict[Id, float]], list[str]]:
    """Score -> (task, seed, repeat) -> value, and which of the scores are measures; `measures` as
    for `cell_of`."""
    values: dict[str, dict[Id, float]] = {}
    named: dict[str, None] = {}
    first: dict[str, PlayRow] = {}  # by world
    members: dict[str, dict[str, list[tuple[Id, str]]]] = {}  # by world and group
    fixed = {name for name, one in (judge.worlds or {"": judge}).items() if one.kinds.fixed}
    for row in rows:
        if not row.is_scored:
            continue
        # None: this play is not judged, so it has no success, which is not a success of 0
        won = row.success
        # of several worlds also that of each
        names = dict.fromkeys((SUCCESS, f"{SUCCESS} {row.world}".strip()))
        scores = {name: float(won) for name in names if won is not None}
        paid = row.returns or {}
        scores |= {f"return {row.whose(agent)}": value for agent, value in paid.items()}
        first.setdefault(row.world, row)
        scores |= _of_several(row, members.setdefault(row.world, {}))
        if row.world not in fixed:
            scores |= {row.whose(name): value for name, value in row.together().items()}
        for score, value in scores.items():
            values.setdefault(score, {})[row.id] = value
        for score, value in row.measures.items():
            score = row.whose(score)
            named[score] = None
            by_episode = values.setdefault(score, {})  # the table lists its name in any case
            if measures is None or score in measures:
                by_episode[row.id] = value
    for world, groups in members.items():
        for group in repeated(groups, list(first[world].returns or {})):
            for begin in (RETURN, SPREAD):
                values.pop(f"{begin}{first[world].whose(group)}", None)
    return values, list(named)


def _of_several(row: PlayRow, members: dict[str, list[tuple[Id, str]]]) -> dict[str, float]:
    """What the groups of the play came to, whose `members` are noted."""
    scores = {f"{WON}{row.whose(team)}": share for team, share in row.won().items()}
    few = len(row.returns or {}) <= MOST_RETURNS
    for name, group in row.all_groups().items():
        # cells differ in their behaviours by design; and one policy of all has the welfare
        is_told = name.startswith("policy ") and few and group.agents == len(row.returns or {})
        if not name.startswith("behaviour ") and not is_told:
            members.setdefault(name, []).append((row.id, group.members))
            scores[f"{RETURN}{row.whose(name)}"] = group.mean
            if group.agents > 1:
                scores[f"{SPREAD}{row.whose(name)}"] = group.spread
    return scores


def study_summary(
    axes: Mapping[str, Names],
    cells: Mapping[Names, Cell],
    reference: Names,
    *,
    paired_by: Sequence[str] = ("task", "seed"),
    measures: Sequence[str] = (),
    resamples: int = RESAMPLES,
    correct: str = "holm",
    first: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole comparison as JSON values. The first score and those of `measures` are compared.

    What is named `first` comes first, then success, then the returns of the agents whose seats are
    axes, in their order, then those of the others.

    Keys: `axes reference paired_by resamples correct scores compared rates better cells
    comparisons margins interactions population`; the last as `standings` has it, None unless every
    axis is a seat. Raises ConfigError for a measure that no cell has.
    """
    scores = list(dict.fromkeys(score for cell in cells.values() for score in cell.values))
    kinds = cells[reference].kinds
    # a study of seats asks first how those seats did
    asked = [*first, SUCCESS, *_of_seats(axes, kinds.worlds)]
    order = {score: place for place, score in enumerate(asked)}
    scores.sort(key=lambda score: (order.get(score, len(order)), not score.startswith("return ")))
    for name in measures:
        if name not in scores:
            raise ConfigError(
                f"no cell has a score called {name!r}; there are {', '.join(scores) or 'none'}"
            )
    # each further comparison widens the corrected intervals of all
    compared = list(dict.fromkeys([*scores[:1], *measures]))
    copied = all(cell.one_play for cell in cells.values())
    margins = {score: _margins(axes, cells, score, kinds) for score in compared}
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
        "margins": as_one_play(margins) if copied else margins,
        "interactions": {
            score: _interactions(axes, cells, score, resamples, copied) for score in compared
        },
        "population": _population(axes, cells, copied),
    }


def _of_seats(axes: Iterable[str], worlds: Iterable[str]) -> list[str]:
    """The returns of agents whose seats are axes: of one world, of each of several, or in one."""
    found = []
    for axis in axes:
        *section, agent = parted(axis)[0]
        if section == ["agents"]:
            found += [RETURN + agent, *(f"{RETURN}{world} {agent}" for world in worlds)]
        if section[::2] == ["scenarios", "agents"]:
            found.append(f"{RETURN}{section[1]} {agent}")
    return found


def agent_of(axis: str) -> str | None:
    """The agent whose seat is this axis; None of any other.

    >>> agent_of('agents."Ann B."'), agent_of("agents.user.options"), agent_of("focal")
    ('Ann B.', None, None)
    """
    section, *names = parted(axis)[0]
    return names[0] if section == "agents" and len(names) == 1 else None


def _population(
    axes: Mapping[str, Names], cells: Mapping[Names, Cell], copied: bool
) -> dict[str, Any] | None:
    """Who is good among those who sit in the seats; None unless two axes or more are seats, all
    are, and all of them are paid."""
    seats = {agent: names for axis, names in axes.items() if (agent := agent_of(axis))}
    if len(seats) < max(2, len(axes)):
        return None
    paid = [_tensor(axes, cells, f"return {agent}") for agent in seats]
    if any(one is None for one in paid) or len({one.shape for one in paid}) > 1:
        return None
    returns = {
        names: {agent: cell.values.get(f"return {agent}", {}) for agent in seats}
        for names, cell in cells.items()
    }
    from gem_ma.scores.standings import standings  # numpy, which who shows a study waits for not

    return standings(seats, paid, returns, copied=copied)


def score_of(summary: Mapping[str, Any], score: str) -> Mapping[str, Any] | None:
    """The interval of a score in a run's summary; None where that run has no such score."""
    if score == SUCCESS:
        return summary["success"] or None
    # a measure may have the name of a return; then it is the measure that was compared
    if (measure := summary["measures"].get(score)) is not None:
        return measure
    if tries := tries_of(score):
        # a list that is shorter: some task has fewer tries
        return dict(enumerate(summary.get("pass_hat_k_intervals", ()), 1)).get(tries)
    if score.startswith(f"{SUCCESS} "):
        world = summary.get("worlds", {}).get(score.removeprefix(f"{SUCCESS} "), {})
        return world.get("success")
    begin, _, whose = score.partition(" ")
    groups = summary.get("groups", {})  # an older summary has none
    if begin == "return":
        sides = summary.get("sides", {})
        return summary["returns"].get(whose) or groups.get(whose) or sides.get(whose)
    if begin == "spread":
        return (groups.get(whose) or {}).get("spread")
    if begin == "won":
        return summary.get("won", {}).get(whose)
    return summary.get("together", {}).get(score)


def cell_text(cell: Mapping[str, Any], score: str) -> str:
    """The interval of a score in a cell, and of how many plays it is where not of all.

    >>> price = {"mean": 3.0, "low": 2.0, "high": 4.0, "n": 2, "method": "t over tasks"}
    >>> cell_text({"ok": 5, "scores": {"price": price}}, "price")
    '3.000 [2.000, 4.000] of 2'
    """
    estimate = cell["scores"].get(score)
    return f"{interval_text(estimate)}{of_plays(cell, score)}" if estimate else "n/a"


def of_plays(cell: Mapping[str, Any], score: str) -> str:
    """` of 2` where a score of a cell is of fewer plays than it has; else ""."""
    estimate = cell["scores"].get(score) or {}
    plays = estimate.get("n", cell["ok"])
    # pass^k counts tasks, and of copies each tells as much as all
    is_whole = tries_of(score) or estimate.get("method") == ONE_PLAY or plays == cell["ok"]
    return "" if is_whole else f" of {plays}"


def difference_text(row: Mapping[str, Any] | None) -> str:
    """`+0.120 [+0.020, +0.220]` of one comparison; None is the reference itself."""
    if row is None:
        return "reference"
    if row["difference"] is None:
        return "n/a (no shared play)"
    other = "" if row["same_tasks"] else " (other scenario settings)"
    if row["method"] == ONE_PLAY:
        return f"{decimal(row['difference'], plus=True)} ({ONE_PLAY}){other}"
    bounds = "n/a"
    numbers = (row["difference"], row["low"], row["high"])
    if row["low"] is not None and row["high"] is not None:
        bounds = ", ".join(decimal(bound, *numbers, plus=True) for bound in numbers[1:])
    return f"{decimal(*numbers, plus=True)} [{bounds}]{other}"


def _row(axes: Mapping[str, Names], names: Names, cell: Cell) -> dict[str, Any]:
    facts = ["episodes", "ok", "failed", "excluded", "tasks", "pass_hat_k"]
    facts += [column.key for column in COLUMNS if column.shown == "table"]
    scores = {score: score_of(cell.summary, score) for score in cell.values}
    return {
        "names": dict(zip(axes, names, strict=True)),
        "run": cell.run,
        **{key: cell.summary[key] for key in facts},
        "pass_hat_k_intervals": cell.summary.get("pass_hat_k_intervals", []),
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
    base = by_play(cells[reference].values.get(score, {}), paired_by)
    shared = {}  # names -> both values of every play that the cell has in common with the reference
    rows: list[dict[str, Any]] = []
    for names, cell in cells.items():
        if names == reference:
            continue
        values = by_play(cell.values.get(score, {}), paired_by)
        shared[names] = [
            (key, base[key], values[key]) for key in sorted(base.keys() & values.keys())
        ]
        rows.append(
            {
                "names": dict(zip(axes, names, strict=True)),
                # printed beside the difference: other scenario settings change what a task is
                "same_tasks": cell.world == cells[reference].world,
                "pairs": len(shared[names]),
                "unpaired": len(base.keys() ^ values.keys()),
                **NO_PAIR,
            }
        )
    adjusts = correct == "holm"
    # two plays, copied, are not a test either
    own = cells[reference]
    copied = [names for names in shared if cells[names].copies(own, shared[names])]
    # a cell without a shared play is not a test, so the others do not pay for it
    tests = sum(bool(pairs) and names not in copied for names, pairs in shared.items())
    family = max(1, tests) if adjusts else 1
    rate = cells[reference].kinds.is_rate(score)
    for row, (names, pairs) in zip(rows, shared.items(), strict=True):
        if pairs:
            row |= (
                one_difference(pairs)
                if names in copied
                else paired_difference(pairs, resamples, family, rate)
            )
    tested = [row for row in rows if row["p"] is not None]
    p_values = [row["p"] for row in tested]
    for row, p in zip(tested, statistics().holm(p_values) if adjusts else p_values, strict=True):
        row["p_adjusted"] = p
    return rows


# -- axes ----------------------------------------------------------------------------------------


def _tensor(axes: Mapping[str, Names], cells: Mapping[Names, Cell], score: str) -> Any:
    """Mean score of each unit that all cells have played, [names of axis 1, ..., units]; None
    without such a unit."""
    import numpy as np

    ids = list({id_: 0 for cell in cells.values() for id_ in cell.values.get(score, {})})
    unit_of = dict(zip(ids, units(ids), strict=True))
    by_unit = []
    for names in itertools.product(*axes.values()):
        grouped: dict[Any, list[float]] = {}
        for id_, value in (cells[names].values.get(score, {}) if names in cells else {}).items():
            grouped.setdefault(unit_of[id_], []).append(value)
        by_unit.append({unit: fmean(numbers) for unit, numbers in grouped.items()})
    # a unit that one cell lacks would tilt the mean of its row
    shared = sorted(set.intersection(*map(set, by_unit))) if by_unit else []
    if not shared:
        return None
    table = np.array([[means[unit] for unit in shared] for means in by_unit])
    return table.reshape([*(len(names) for names in axes.values()), len(shared)])


def _margins(
    axes: Mapping[str, Names], cells: Mapping[Names, Cell], score: str, kinds: Kinds
) -> dict[str, dict[str, Any]]:
    """Axis -> name -> the mean over all cells with that name, over the units that every cell has
    played."""
    values = _tensor(axes, cells, score)
    if values is None:
        return {}
    rate = kinds.is_rate(score)
    margins: dict[str, dict[str, Any]] = {}
    for place, (axis, names) in enumerate(axes.items()):
        # [names, units]
        marginal = values.mean(axis=tuple(other for other in range(len(axes)) if other != place))
        margins[axis] = {}
        for name, row in zip(names, marginal, strict=True):
            # a mean of rates may leave 0..1 by rounding
            interval = statistics().mean_interval(row.clip(0.0, 1.0) if rate else row, rate=rate)
            margins[axis][name] = {
                "mean": interval.mean,
                "low": finite(interval.low),
                "high": finite(interval.high),
                "n": interval.tasks,
                "method": interval.method,
                "rate": rate,
            }
    return margins


def _interactions(
    axes: Mapping[str, Names], cells: Mapping[Names, Cell], score: str, resamples: int, copied: bool
) -> list[dict[str, Any]]:
    """For each pair of axes: by how much a cell differs from the sum of the effects of its row and
    its column, with its interval over units; `copied`: all units are one play again."""
    import numpy as np

    values = _tensor(axes, cells, score)
    if values is None:
        return []
    pairs = []
    for first, second in itertools.combinations(range(len(axes)), 2):
        others = tuple(place for place in range(len(axes)) if place not in (first, second))
        table = values.mean(axis=others)  # [rows, columns, units]
        beyond = (
            table
            - table.mean(0, keepdims=True)
            - table.mean(1, keepdims=True)
            + table.mean((0, 1), keepdims=True)
        )
        # what rounding left is not an effect
        beyond[np.abs(beyond) < 1e-9 * max(1.0, float(np.abs(table).max()))] = 0.0
        units = beyond.shape[-1]
        rows, columns = (list(axes.items())[place] for place in (first, second))
        entries = []
        for (i, row), (j, column) in itertools.product(enumerate(rows[1]), enumerate(columns[1])):
            # against 0: what is left over in a cell is itself a difference
            effect = statistics().paired(
                np.zeros(units), beyond[i, j], range(units), resamples=resamples
            )
            entries.append(
                {
                    "names": {rows[0]: row, columns[0]: column},
                    "mean": float(table[i, j].mean()),
                    "effect": effect.difference,
                    "low": None if copied else finite(effect.low),
                    "high": None if copied else finite(effect.high),
                }
            )
        pairs.append({"axes": [rows[0], columns[0]], "units": units, "cells": entries})
    return pairs
