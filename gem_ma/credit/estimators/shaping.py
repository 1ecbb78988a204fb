"""Reward shaping that looks at an agent's own past, as a wrapper around any estimator. It changes
what is learned for: evaluate raw rewards.

Q is the mean return of the agent (of its key) in earlier batches, kept as state; without a past
nothing is changed.  (Margin and quality forms of MAPoRL, arXiv 2502.18439, as MARTI documents
them.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np

from gem_ma.config.learning import Form
from gem_ma.credit import Gamma, discount_of
from gem_ma.credit.estimators.groups import Key, State, episodes, group_names, groups
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.errors import ConfigError


def shaped(
    table: TurnTable,
    form: str,
    alpha: float,
    *,
    key: Key = ("scenario", "agent"),
    gamma: Gamma = 1.0,
    state: Mapping[str, float] | None = None,
) -> tuple[TurnTable, State]:
    """The table with shaped rewards, and the new state.

    margin: R + alpha (R - Q); quality: R + alpha (Q R - (1 - Q)(1 - R)), for R in 0..1. The
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
        after[f"{name}#mean"] = (before.get(f"{name}#mean", 0.0) * count + math.fsum(values)) / (
            count + len(values)
        )
        after[f"{name}#n"] = count + len(values)
    return replace(table, reward=reward, ret=gains, total=totals), after


def mean_return(table: TurnTable) -> float | None:
    """Mean R over each (episode, agent) of the table, None for an empty one."""
    totals = [float(table.total[rows[0]]) for rows in episodes(table)]
    return math.fsum(totals) / len(totals) if totals else None
