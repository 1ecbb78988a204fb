"""Estimators with a memory: a baseline per group that moves from batch to batch. R = undiscounted
sum of an agent's rewards in an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np

from gem_ma.config.learning import Form
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
from gem_ma.kernel.errors import ConfigError


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


def shaped(
    table: TurnTable,
    form: str,
    alpha: float,
    *,
    key: Key = ("scenario", "agent"),
    gamma: Gamma = 1.0,
    state: Mapping[str, float] | None = None,
) -> tuple[TurnTable, State]:
    """The table with rewards that are shaped by an agent's own past, and the new state: a wrapper
    around any estimator. It changes what is learned for; evaluate raw rewards.  (Margin and quality
    forms of MAPoRL, arXiv 2502.18439, as MARTI documents them.)

    margin: R + alpha (R - Q); quality: R + alpha (Q R - (1 - Q)(1 - R)), for R in 0..1, with Q the
    mean return of earlier batches; without a past nothing is changed. The
    difference to the raw R is paid at the last turn of each (episode, agent), so `reward`, `ret`
    and `total` still fit together. `state` is not changed; for each group it holds the mean and
    the number of earlier returns. Raises ConfigError for another form.
    """
    if form not in get_args(Form):
        known = ", ".join(get_args(Form))
        raise ConfigError(f"no shaping is called {form!r}; shapings are {known}")
    # Q is read from `before` alone: a batch that moved its own Q would shape by itself
    before = dict(state or {})
    after = dict(state or {})
    names = group_names(table, key)
    group = groups(table, key)
    reward = table.reward.copy()
    gains = table.ret.copy()
    totals = table.total.copy()
    seen: dict[str, list[float]] = {}
    for rows in episodes(table):
        name = names[group[rows[0]]]
        raw = float(table.total[rows[0]])
        seen.setdefault(name, []).append(raw)
        if before.get(f"{name}#n", 0.0) == 0:
            continue  # no past yet, so there is nothing to compare with
        past = before[f"{name}#mean"]
        extra = alpha * (raw - past if form == "margin" else past * raw - (1 - past) * (1 - raw))
        rate = discount_of(gamma, str(table.agent[rows[0]]))
        last = max(rows, key=lambda n: int(table.k[n]))
        reward[last] += extra
        # R is in every row of the episode; the return of a turn sees the last one discounted
        totals[rows] += extra
        gains[rows] += extra * np.power(rate, (table.k[last] - table.k[rows]).astype(np.float64))
    for name, values in seen.items():
        # the mean over all batches so far, not a moving one: Q settles as the run goes on
        count = before.get(f"{name}#n", 0.0)
        total = before.get(f"{name}#mean", 0.0) * count + math.fsum(values)
        after[f"{name}#mean"] = total / (count + len(values))
        after[f"{name}#n"] = count + len(values)
    return replace(table, reward=reward, ret=gains, total=totals), after


def mean_return(table: TurnTable) -> float | None:
    """Mean R over each (episode, agent) of the table, None for an empty one."""
    totals = [float(table.total[rows[0]]) for rows in episodes(table)]
    return math.fsum(totals) / len(totals) if totals else None
