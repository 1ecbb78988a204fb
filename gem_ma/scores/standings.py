"""Who is good in the population of a study whose axes are seats: alpha-rank, Nash averaging,
ratings and what a seat is worth.

Where two seats are filled from the same names, a name is one player in both, and its payoff is the
mean over them. Axes: S_1, ..., S_K names by seat, U units that all cells have played, B resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import DataError
from gem_ma.scores.groups import ONE_PLAY, Id
from gem_ma.scores.populations import alpha_rank, nash_average
from gem_ma.scores.stats import apart, mean_interval
from gem_ma.scores.tournaments import matches_of, rated_of, told

Names = tuple[str, ...]
Returns = Mapping[Names, Mapping[str, Mapping[Id, float]]]  # cell -> agent -> play -> its return
RESAMPLES = 1000
_WORK = 5e7  # steps that alpha-rank may take over all resamples: about a second
_LEAST = 100  # resamples, below which no interval is told


def standings(
    seats: Mapping[str, Names],
    paid: Sequence[Any],
    returns: Returns,
    *,
    copied: bool,
    seed: int = 0,
) -> dict[str, Any]:
    """As JSON values: `players`, each with `name`, `agent` (None where a name is one player in both
    seats), `alpha_rank`, and there also `nash`, `skill` and `rating`; `seats`: what the first of
    two such seats is paid more; `units`; `resamples`, 0 where intervals are left out.

    `seats`: agent -> names; `paid`: the returns [S_1, ..., S_K, U] of each agent; `copied`: all
    plays of a cell are one play again, so that nothing has an interval.
    """
    *shape, units = paid[0].shape
    (_, names), *others = seats.items()
    shared = len(seats) == 2 and sorted(others[0][1]) == sorted(names)
    profiles = len(names) if shared else int(np.prod(shape))
    count = min(RESAMPLES, int(_WORK / profiles**3))
    if copied or units < 2 or count < _LEAST:
        count = 0
    draws = np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), count)
    # the first row is what was played
    weights = np.vstack([np.ones(units), draws]) / units
    tables = [np.moveaxis(one @ weights.T, -1, 0) for one in paid]
    method = ONE_PLAY if copied else "resampled tasks"
    found: dict[str, Any] = {"units": units, "resamples": count, "seats": None, "cross_play": None}
    if not shared:
        return {**found, "players": _by_seat(seats, tables, method)}
    order = [others[0][1].index(name) for name in names]
    table = (tables[0][:, :, order] + np.swapaxes(tables[1][:, :, order], 1, 2)) / 2
    rated = _rated(list(seats), returns, copied)
    players = _players(names, table, rated, method)
    worth = told(mean_interval(apart(paid[1], paid[0]).mean((0, 1))), copied)
    found["seats"] = {"agents": list(seats), **worth}
    means = (paid[0] + paid[1])[:, order] / 2
    # all alike: the rules fix what both are paid, as in a game of two sides
    if np.ptp(means, axis=(0, 1)).max() > 1e-9:
        found["cross_play"] = {
            key: told(mean_interval(values), copied) for key, values in _cross_play(means).items()
        }
    return {**found, "players": players}


def _cross_play(shared: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Means [U] of [S, S, U] with oneself, with others, and the first less the second (Hu et al.
    2020)."""
    is_self = np.eye(len(shared), dtype=bool)
    alone = shared[is_self].mean(0)
    others = shared[~is_self].mean(0)
    return {"self": alone, "cross": others, "gap": apart(others, alone)}


def _by_seat(
    seats: Mapping[str, Names], tables: Sequence[NDArray[Any]], method: str
) -> list[dict[str, Any]]:
    """Each name of each seat with its share of the profiles [1 + B, S_1, ..., S_K]."""
    shares = alpha_rank(tables)
    rows = []
    for place, (agent, names) in enumerate(seats.items(), 1):
        by_name = shares.sum(tuple(axis for axis in range(1, shares.ndim) if axis != place))
        rows += [
            {"name": name, "agent": agent, "alpha_rank": _interval(by_name[:, at], method)}
            for at, name in enumerate(names)
        ]
    return rows


def _players(
    names: Names, table: NDArray[Any], rated: Mapping[str, Any], method: str
) -> list[dict[str, Any]]:
    """Each name with its numbers from the tables [1 + B, S, S], the best by alpha-rank first."""
    ranks = alpha_rank(table)
    nash = _nash((table - np.swapaxes(table, 1, 2)) / 2)
    rows = [
        {
            "name": name,
            "agent": None,
            "alpha_rank": _interval(ranks[:, at], method),
            "nash": nash and _interval(nash[0][:, at], method),
            "skill": nash and _interval(nash[1][:, at], method),
            "rating": rated.get(name),
        }
        for at, name in enumerate(names)
    ]
    return sorted(rows, key=lambda row: -row["alpha_rank"]["mean"])


def _nash(margins: NDArray[Any]) -> tuple[Any, Any] | None:
    """Weights and skills [1 + B, S] of tables [1 + B, S, S]; None where rounding decides."""
    try:
        weights, skills = zip(*map(nash_average, margins), strict=True)
    except DataError:
        return None
    return np.array(weights), np.array(skills)


def _rated(agents: Sequence[str], returns: Returns, copied: bool) -> dict[str, dict[str, Any]]:
    """Player -> its Bradley-Terry rating; {} where the games do not compare all of them."""
    first, second = agents
    played = [
        match
        for (one, other), paid in returns.items()
        for play, value in paid.get(first, {}).items()
        if play in paid.get(second, {})
        for match in matches_of(play, [((one,), value), ((other,), paid[second][play])])
    ]
    return rated_of(played, copied)


def _interval(values: NDArray[Any], method: str) -> dict[str, Any]:
    """The first of [1 + B], with percentiles of the rest."""
    low, high = np.quantile(values[1:], (0.025, 0.975)) if len(values) > 1 else (None, None)
    return {
        "mean": float(values[0]),
        "low": None if low is None else float(low),
        "high": None if high is None else float(high),
        "method": method,
    }
