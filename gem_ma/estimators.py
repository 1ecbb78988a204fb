"""Estimators: returns of turns -> advantages. Pure numpy functions; no torch, no I/O, no randomness, no dependence on the order of rows.

Axes: N turns that train one policy in a batch; a *group* is the rows that agree in the key columns (`gem_ma.credit.KEYS`). Every function
takes a `TurnTable`, or a bare array [N] of returns that form one group, and gives float64 [N]: one advantage per turn, for all its tokens.
G = discounted return-to-go of a turn, R = undiscounted sum of the agent's rewards in the episode; std is the population form, in two
passes (E[x^2] - E[x]^2 goes negative in float32). A spread below 1e-8, or a single element, teaches nothing: exact zeros.
Sums are exactly rounded (`math.fsum`), so a permutation of the rows permutes the result and changes no bit of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_ma.credit import TurnTable
from gem_ma.errors import ConfigError

EPSILON = 1e-8
Array = NDArray[np.float64]
Key = Sequence[str] | str
Given = TurnTable | ArrayLike
State = dict[str, float]


def reinforce(table: Given, key: Key = ()) -> Array:
    """No baseline:  A_n = G_n.  (Williams 1992.) [N] -> [N]; the scale is the user's problem, `key` groups nothing.

    >>> reinforce([1, -2]).tolist()
    [1.0, -2.0]
    """
    return _values(table, "ret").copy()


def rebn(table: Given, key: Key = ("policy", "scenario", "agent")) -> Array:
    """Return batch normalisation:  A_n = (G_n - mean G) / (std G + 1e-8) in each group.  (GEM, arXiv 2510.01051.) [N] -> [N]

    The paper's form is `key="global"`: all turns of the policy, every agent together. In a zero-sum game that mean is 0 whatever the agents
    do, so the default takes each agent by itself.

    >>> rebn([1, 2, 3, 6]).round(4).tolist()
    [-1.069, -0.5345, 0.0, 1.6036]
    >>> rebn([.1, .1, .1]).tolist()
    [0.0, 0.0, 0.0]
    """
    values = _values(table, "ret")
    return _by_group(values, groups(table, key), _normalised)


def grpo(table: Given, key: Key = ("group", "agent"), ddof: int = 0) -> Array:
    """Group-relative:  A = (R - mean R) / (std R + 1e-6), one value per episode and agent.  (DeepSeekMath, arXiv 2402.03300, eq. 3.) [N] -> [N]

    Statistics count each episode once, however many turns it has. `ddof=1` is the sample form of verl and TRL.

    >>> grpo([1, 0, 0, 1]).round(4).tolist(), grpo([1, 0, 0, 1], ddof=1).round(4).tolist()
    ([1.0, -1.0, -1.0, 1.0], [0.866, -0.866, -0.866, 0.866])
    """
    return _per_episode(table, key, lambda values: _normalised(values, 1e-6, ddof))


def dr_grpo(table: Given, key: Key = ("group", "agent")) -> Array:
    """Group-relative without the division:  A = R - mean R, one value per episode and agent.  (Dr. GRPO, arXiv 2503.20783.) [N] -> [N]

    >>> dr_grpo([1, 0, 0, 1]).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return _per_episode(table, key, _centred)


def rloo(table: Given, key: Key = ("group", "agent")) -> Array:
    """Leave one out:  A = (n R - sum R) / (n - 1), one value per episode and agent.  (RLOO, arXiv 2402.14740.) [N] -> [N]

    >>> rloo([1, 0, 0, 1]).round(4).tolist()
    [0.6667, -0.6667, -0.6667, 0.6667]
    """
    return _per_episode(table, key, lambda values: _centred(values) * (len(values) / max(1, len(values) - 1)))


def rae(
    table: Given, key: Key = ("scenario", "agent"), *, state: Mapping[str, float] | None = None, decay: float = 0.95, first: bool = False
) -> tuple[Array, State]:
    """Role-conditioned baseline:  A = R - b, then  b <- decay b + (1 - decay) R, per group.  (SPIRAL, arXiv 2506.24119.) [N] -> [N], state

    Episodes are taken in the order of their ids, never of completion. `state` maps a group to its b and is not changed: a checkpoint is this
    dict. b starts at 0 as in the paper, with `first` at the group's first R.

    >>> advantages, state = rae([1, 1, -1])
    >>> advantages.round(4).tolist(), {group: round(b, 6) for group, b in state.items()}
    ([1.0, 0.95, -1.0975], {'': 0.042625})
    """
    values, group, baselines = _values(table, "total"), groups(table, key), dict(state or {})
    names = _group_names(table, key)
    advantages = np.zeros(len(values))
    for rows in _episodes(table):
        n = rows[0]
        name, value = names[group[n]], float(values[n])
        baseline = baselines.get(name, value if first else 0.0)
        advantages[rows] = value - baseline
        baselines[name] = decay * baseline + (1 - decay) * value
    return advantages, baselines


ESTIMATORS: dict[str, tuple[Callable[..., Any], Key]] = {
    "reinforce": (reinforce, ()),
    "rebn": (rebn, ("policy", "scenario", "agent")),
    "grpo": (grpo, ("group", "agent")),
    "dr_grpo": (dr_grpo, ("group", "agent")),
    "rloo": (rloo, ("group", "agent")),
    "rae": (rae, ("scenario", "agent")),
}
STATEFUL = frozenset({"rae"})  # these also take `state` and give (advantages, state)


def estimate(name: str, table: TurnTable, key: Key | None = None, state: Mapping[str, float] | None = None) -> tuple[Array, State]:
    """The advantages of a named estimator, and its state ({} for those that keep none). `key` None = the estimator's own."""
    function, default = estimator(name)
    if name in STATEFUL:
        advantages, after = function(table, default if key is None else key, state=state)
        return advantages, after
    return function(table, default if key is None else key), {}


def estimator(name: str) -> tuple[Callable[..., Any], Key]:
    """(function, default key) of a name. Raises ConfigError with the nearest names."""
    if name not in ESTIMATORS:
        near = get_close_matches(name, ESTIMATORS, n=1)
        raise ConfigError(f"no estimator is called {name!r} ({f'did you mean {near[0]!r}?' if near else 'known: ' + ', '.join(ESTIMATORS)})")
    return ESTIMATORS[name]


def groups(table: Given, key: Key) -> NDArray[np.int64]:
    """Number of the group of each row [N]. `key` is a tuple of column names, or "global" (= no column) for one group."""
    if not isinstance(table, TurnTable):
        return np.zeros(len(_values(table, "ret")), np.int64)
    return np.array(_numbered(_key_rows(table, key))[0], np.int64)


def columns(key: Key) -> tuple[str, ...]:
    """The column names of a key: "global" is (), one name is one column."""
    return () if key == "global" else (key,) if isinstance(key, str) else tuple(key)


def _key_rows(table: TurnTable, key: Key) -> list[tuple[Any, ...]]:
    parts = [table.column(name).tolist() for name in columns(key)]
    return list(zip(*parts, strict=True)) if parts else [()] * len(table)


def _numbered(rows: Sequence[tuple[Any, ...]]) -> tuple[list[int], list[tuple[Any, ...]]]:
    names = {row: number for number, row in enumerate(sorted(set(rows)))}
    return [names[row] for row in rows], list(names)


def _group_names(table: Given, key: Key) -> list[str]:
    if not isinstance(table, TurnTable):
        return [""]
    return ["/".join(map(str, row)) for row in _numbered(_key_rows(table, key))[1]]


def _values(table: Given, column: str) -> Array:
    if isinstance(table, TurnTable):
        values = np.asarray(getattr(table, column), np.float64)
        if values.shape != (len(table),):
            raise ValueError(f"column {column} has shape {values.shape}, the table has {len(table)} turns")
        return values
    values = np.asarray(table, np.float64)
    if values.ndim != 1:
        raise ValueError(f"returns are an array [N]; got shape {values.shape}")
    return values


def _by_group(values: Array, group: NDArray[np.int64], function: Callable[[Array], Array]) -> Array:
    if len(values) != len(group):
        raise ValueError(f"one group number per value; got {len(group)} and {len(values)}")
    result = np.zeros(len(values))
    for number in np.unique(group):
        rows = group == number
        result[rows] = function(values[rows])
    return result


def _episodes(table: Given) -> list[NDArray[np.int64]]:
    """Row numbers of each (episode, agent), in the order of episode ids; of a bare array every element is its own episode."""
    if not isinstance(table, TurnTable):
        return [np.array([n]) for n in range(len(_values(table, "total")))]
    rows: dict[tuple[Any, ...], list[int]] = {}
    for n, (episode, index, agent) in enumerate(zip(table.episodes, table.episode.tolist(), table.agent.tolist(), strict=True)):
        rows.setdefault((episode.scenario, *episode.id, index, agent), []).append(n)
    return [np.array(rows[name]) for name in sorted(rows)]


def _per_episode(table: Given, key: Key, function: Callable[[Array], Array]) -> Array:
    """Applies `function` to R, each (episode, agent) once in its group, and gives its value to all its turns."""
    values, group, members = _values(table, "total"), groups(table, key), _episodes(table)
    heads = np.array([rows[0] for rows in members], np.int64)
    result = np.zeros(len(values))
    for rows, advantage in zip(members, _by_group(values[heads], group[heads], function), strict=True):
        result[rows] = advantage
    return result


def _centred(values: Array) -> Array:
    if len(values) < 2 or values.max() - values.min() < EPSILON:
        return np.zeros(len(values))
    return values - math.fsum(values) / len(values)


def _normalised(values: Array, epsilon: float = EPSILON, ddof: int = 0) -> Array:
    centred = _centred(values)
    spread = math.sqrt(math.fsum(centred**2) / max(1, len(values) - ddof))
    return centred / (spread + epsilon) if spread >= EPSILON else np.zeros(len(values))
