"""What estimators share: columns, groups of rows, statistics. Sums are exactly rounded
(`math.fsum`), so the order of rows changes no bit.

A *group* is the rows that agree in the key columns (`gem_ma.credit.table.KEYS`). A bare array [N]
in place of a table is one group of N episodes. A spread below 1e-8, or a single element, teaches
nothing: exact zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_ma.credit.table import TurnTable

# A spread below this is rounding: divided by itself it would turn noise into advantages of 1.
EPSILON = 1e-8
Array = NDArray[np.float64]
Key = Sequence[str] | str
TableLike = TurnTable | ArrayLike
State = dict[str, float]  # by the name of a group; JSON values, since a checkpoint holds it


def groups(table: TableLike, key: Key) -> NDArray[np.int64]:
    """Number of the group of each row [N]. `key` is a tuple of column names, or "global" (= no
    column) for one group."""
    if not isinstance(table, TurnTable):
        return np.zeros(len(values_of(table, "ret")), np.int64)
    return np.array(numbered(key_rows(table, key))[0], np.int64)


def columns(key: Key) -> tuple[str, ...]:
    """The column names of a key: "global" is (), one name is one column."""
    return () if key == "global" else (key,) if isinstance(key, str) else tuple(key)


def key_rows(table: TurnTable, key: Key) -> list[tuple[Any, ...]]:
    """What each turn has in the key columns [N]; () for all of them where the key names none."""
    parts = [_entries(table, name) for name in columns(key)]
    return list(zip(*parts, strict=True)) if parts else [()] * len(table)


def _entries(table: TurnTable, name: str) -> list[Any]:
    """A key column, of one entry per turn. Raises ValueError with both lengths."""
    # as Python values: their text names the groups in a checkpoint, and must not depend on a dtype
    entries = list(table.column(name).tolist())
    if len(entries) != len(table):
        raise ValueError(
            f"column {name} has {len(entries)} entries, the table has {len(table)} turns"
        )
    return entries


def numbered(rows: Sequence[tuple[Any, ...]]) -> tuple[list[int], list[tuple[Any, ...]]]:
    """(number of the group of each row, the groups in the order of their numbers)."""
    # sorted: numbers by first appearance would depend on the order of the rows
    names = {row: number for number, row in enumerate(sorted(set(rows)))}
    return [names[row] for row in rows], list(names)


def group_names(table: TableLike, key: Key) -> list[str]:
    """The names of the groups in the order of their numbers, as a `State` has them."""
    if not isinstance(table, TurnTable):
        return [""]  # a bare array is one group
    return ["/".join(map(str, row)) for row in numbered(key_rows(table, key))[1]]


def values_of(table: TableLike, column: str) -> Array:
    """A column of numbers [N]; a bare array stands for any. Raises ValueError for another shape."""
    if isinstance(table, TurnTable):
        # checked, since numpy would broadcast a column that is too short instead of failing
        values = np.asarray(getattr(table, column), np.float64)
        if values.shape != (len(table),):
            raise ValueError(
                f"column {column} has shape {values.shape}, the table has {len(table)} turns"
            )
        return values
    values = np.asarray(table, np.float64)
    if values.ndim != 1:
        raise ValueError(f"returns are an array [N]; got shape {values.shape}")
    return values


def by_group(values: Array, group: NDArray[np.int64], function: Callable[[Array], Array]) -> Array:
    """Applies `function` to the values [N] of each group by itself. [N]"""
    if len(values) != len(group):
        raise ValueError(f"one group number per value; got {len(group)} and {len(values)}")
    result = np.zeros(len(values))
    for number in np.unique(group):
        rows = group == number
        result[rows] = function(values[rows])
    return result


def episodes(table: TableLike) -> list[NDArray[np.int64]]:
    """Row numbers of each (episode, agent), in the order of episode ids; of a bare array every
    element is its own episode."""
    if not isinstance(table, TurnTable):
        return [np.array([n]) for n in range(len(values_of(table, "total")))]
    rows: dict[tuple[Any, ...], list[int]] = {}
    for n, (episode, index, agent) in enumerate(
        zip(table.episodes, _entries(table, "episode"), _entries(table, "agent"), strict=True)
    ):
        # an id is (task, seed, repeat): two scenarios may share it, and so may plays of a batch
        rows.setdefault((episode.scenario, *episode.id, index, agent), []).append(n)
    return [np.array(rows[name]) for name in sorted(rows)]


def per_episode(table: TableLike, key: Key, function: Callable[[Array], Array]) -> Array:
    """Applies `function` to R, each (episode, agent) once in its group, and gives its value to
    all its turns."""
    values = values_of(table, "total")
    group = groups(table, key)
    members = episodes(table)
    # R is the same in all rows of an episode; one of them, or long episodes would weigh more
    heads = np.array([rows[0] for rows in members], np.int64)
    result = np.zeros(len(values))
    for rows, advantage in zip(
        members, by_group(values[heads], group[heads], function), strict=True
    ):
        result[rows] = advantage
    return result


def centred(values: Array) -> Array:
    """The values [n] less their mean; zeros where they are all alike."""
    # the range, not the deviation: x - mean(x) of equal floats need not be exactly 0
    if len(values) < 2 or values.max() - values.min() < EPSILON:
        return np.zeros(len(values))
    # fsum is exactly rounded; np.sum gives other last bits in another order of the rows
    return values - math.fsum(values) / len(values)


def normalised(values: Array, epsilon: float = EPSILON, ddof: int = 0) -> Array:
    """The centred values [n] divided by (std + epsilon). `ddof`: 0 population, 1 sample."""
    # in two passes: E[x^2] - E[x]^2 loses all digits where the mean is large beside the spread
    middled = centred(values)
    spread = math.sqrt(math.fsum(middled**2) / max(1, len(values) - ddof))
    return middled / (spread + epsilon) if spread >= EPSILON else np.zeros(len(values))
