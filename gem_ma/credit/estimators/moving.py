"""Estimators with a memory: a baseline per group that moves from batch to batch. R = undiscounted
sum of an agent's rewards in an episode."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gem_ma.credit import Gamma, discount_of
from gem_ma.credit.estimators.groups import (
    Array,
    Key,
    State,
    TableLike,
    episodes,
    group_names,
    groups,
    values_of,
)
from gem_ma.credit.table import TurnTable


def rae(
    table: TableLike,
    key: Key = ("scenario", "agent"),
    *,
    state: Mapping[str, float] | None = None,
    decay: float = 0.95,
    first: bool = False,
    faded: bool = False,
    gamma: Gamma = 1.0,
) -> tuple[Array, State]:
    """Role-conditioned baseline:  A = R - b, then  b <- decay b + (1 - decay) R, per group.
    (SPIRAL, arXiv 2506.24119.) [N] -> [N], state

    b is subtracted before it moves, as in the authors' code. Episodes are taken in the order of
    their ids, never of completion. `state` maps a group to its b and is not changed: a checkpoint
    is this dict. b starts at 0 as in the paper, with `first` at the group's first R. With `faded`
    the k-th of K own turns gets A gamma^(K-1-k).

    >>> advantages, state = rae([1, 1, -1])
    >>> advantages.round(4).tolist(), {group: round(b, 6) for group, b in state.items()}
    ([1.0, 0.95, -1.0975], {'': 0.042625})
    """
    values = values_of(table, "total")
    group = groups(table, key)
    baselines = dict(state or {})
    names = group_names(table, key)
    advantages = np.zeros(len(values))
    # `episodes` goes by id: the average moves with each, so their order is part of the result
    for rows in episodes(table):
        n = rows[0]
        name = names[group[n]]
        value = float(values[n])
        baseline = baselines.get(name, value if first else 0.0)
        advantages[rows] = value - baseline
        if faded and isinstance(table, TurnTable):
            # K counts all own turns, also those that another policy played and the table lacks
            rate = discount_of(gamma, str(table.agent[n]))
            left = table.K[rows] - 1 - table.k[rows]
            advantages[rows] *= np.power(rate, left.astype(np.float64))
        # only now: a baseline that knew its own return would pull every advantage towards 0
        baselines[name] = decay * baseline + (1 - decay) * value
    return advantages, baselines
