"""Who is good in a population, from its payoff table alone: alpha-rank and Nash averaging.

Ratings of games won order every population on one line; these two also tell a cycle (rock, paper,
scissors), and adding a copy of a player does not move them. Pure functions over arrays. Axes: S
strategies of a population, K populations, B tables at once, N profiles: S of one population, the
product of theirs for several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import DataError

Floats = NDArray[np.float64]
TIE = 1e-9  # payoffs closer than this share of the largest are equal: rounding orders nothing
NOISE = 0.01  # of alpha-rank without a finite alpha, as in OpenSpiel
_GAP = 1e-13  # where the path to an equilibrium ends, in units of the largest payoff
_STEPS = 500
_MOST = 1e9  # the log of a chance: its rounding, 1e-7, is the error of a share


class NashAverage(NamedTuple):
    """`weights` [S]: the equilibrium; `skills` [S]: what each strategy is paid against it, 0 for
    those it holds."""

    weights: Floats
    skills: Floats


def alpha_rank(
    payoffs: Floats | Sequence[Floats],
    *,
    alpha: float = math.inf,
    agents: int = 50,
    noise: float = NOISE,
) -> Floats:
    """How long a population that imitates what pays more stays at each strategy, in the long run.

    One table [..., S, S] (row against column) is a symmetric game of one population, and gives
    [..., S]. A sequence of K tables [..., S_1, ..., S_K], one for each population, gives the
    share of each profile, [..., S_1, ..., S_K]. All shares are positive and sum to 1; leading
    axes of the tables are tables of their own.

    A mutant takes over `agents` imitators with probability (1 - e^-u) / (1 - e^(-u agents)), u =
    `alpha` times what it gains; of an infinite alpha 1 - `noise` where it gains, 1/2 in a tie,
    `noise` where it loses. The shares are the stationary ones of that chain. Omidshafiei et al.
    2019 (arXiv 1903.01373), section 3; everything is kept in logs, for large alphas.

    >>> rock_paper_scissors = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    >>> alpha_rank(rock_paper_scissors).round(3).tolist()
    [0.333, 0.333, 0.333]

    Raises ValueError for tables that do not fit together or are not finite, and arguments out of
    range.
    """
    if not (alpha > 0 and agents >= 2 and 0 < noise <= 0.5):
        raise ValueError(
            "alpha is above 0, agents 2 or more and noise in 0..1/2 above 0; got"
            f" {alpha}, {agents}, {noise}"
        )
    single = isinstance(payoffs, np.ndarray)
    tables = [_finite(payoffs)] if isinstance(payoffs, np.ndarray) else [*map(_finite, payoffs)]
    if single:
        shape = _square(tables[0]).shape[-1:]
        # a mutant in the column's population, of which it meets one
        gains = [np.swapaxes(tables[0], -1, -2) - tables[0]]
        pairs = [~np.eye(shape[0], dtype=bool)]
    else:
        shape = tables[0].shape[tables[0].ndim - len(tables) :] if tables else ()
        if len(shape) != len(tables) or not shape or len({one.shape for one in tables}) > 1:
            raise ValueError(
                "K populations have K tables of one shape [..., S_1, ..., S_K]; got"
                f" {[one.shape for one in tables]}"
            )
        flat = [one.reshape(*one.shape[: one.ndim - len(shape)], -1) for one in tables]
        gains = [one[..., None, :] - one[..., :, None] for one in flat]
        pairs = _neighbours(shape)
    scale = max((float(np.abs(one).max(initial=0.0)) for one in tables), default=0.0)
    most = max(float(np.abs(one).max(initial=0.0)) for one in gains) * agents
    if alpha < math.inf and alpha * most > _MOST:
        raise ValueError(
            f"an alpha of {alpha} times gains for {agents} agents is above {_MOST:.0e}, where logs"
            " lose their digits; take a smaller one, or alpha=math.inf"
        )
    logs = np.full(gains[0].shape, -np.inf)
    for gain, pair in zip(gains, pairs, strict=True):
        ours = np.broadcast_to(pair, gain.shape)
        logs[ours] = _log_fixation(gain[ours], TIE * scale, alpha, agents, noise)
    return _stationary(logs).reshape(*logs.shape[:-2], *shape)


def _neighbours(shape: Sequence[int]) -> list[NDArray[np.bool_]]:
    """For each population, which profiles [N, N] differ in its strategy alone."""
    profiles = np.indices(shape).reshape(len(shape), -1)
    differs = profiles[:, :, None] != profiles[:, None, :]
    alone = differs.sum(0) == 1
    return [one & alone for one in differs]


def _log_fixation(gain: Floats, tie: float, alpha: float, agents: int, noise: float) -> Floats:
    """The log of the chance that a mutant takes over; `tie`: gains up to it are none."""
    gain = np.where(np.abs(gain) <= tie, 0.0, gain)
    if math.isinf(alpha):
        return np.log(np.where(gain == 0, 0.5, np.where(gain > 0, 1 - noise, noise)))
    size = alpha * np.abs(gain)
    # both signs have one fraction below 1; a loser has e^(-size (agents - 1)) of it
    with np.errstate(divide="ignore", invalid="ignore"):
        won = np.log(-np.expm1(-size)) - np.log(-np.expm1(-agents * size))
    logs = np.where(gain > 0, won, won - size * (agents - 1))
    return np.where(size == 0, -math.log(agents), logs)


def _stationary(logs: Floats) -> Floats:
    """Stationary shares [..., N] of a chain whose moves have these logs of rates [..., N, N].

    States are taken out one by one (Grassmann, Taksar and Heyman 1985), without one subtraction;
    what a state keeps to itself plays no part.
    """
    logs = logs.copy()
    count = logs.shape[-1]
    for n in range(count - 1, 0, -1):
        # into the last state, per stay in it
        logs[..., :n, n] -= np.logaddexp.reduce(logs[..., n, :n], axis=-1)[..., None]
        through = logs[..., :n, n, None] + logs[..., n, None, :n]
        logs[..., :n, :n] = np.logaddexp(logs[..., :n, :n], through)
    shares = np.zeros(logs.shape[:-1])
    for n in range(1, count):
        shares[..., n] = np.logaddexp.reduce(shares[..., :n] + logs[..., :n, n], axis=-1)
    shares -= np.logaddexp.reduce(shares, axis=-1, keepdims=True)
    return np.exp(shares)


def nash_average(payoffs: Floats) -> NashAverage:
    """The equilibrium of largest entropy of a zero-sum table [S, S], row against column.

    `payoffs` is antisymmetric: what i gains against j, j loses. Of all p with A p <= 0 (nobody
    gains against p) the one with the largest -sum p log p. Balduzzi et al. 2018 (arXiv
    1806.02643), section 3.

    >>> nash_average(np.array([[0.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [-1.0, -1.0, 0.0]]))
    NashAverage(weights=array([1., 0., 0.]), skills=array([ 0., -1., -1.]))

    Raises ValueError for a table that is not square, finite and antisymmetric, DataError where
    payoffs differ by so little that rounding decides.
    """
    table = _square(_finite(payoffs))
    scale = float(np.abs(table).max(initial=0.0))
    if table.ndim != 2 or float(np.abs(table + table.T).max()) > TIE * scale:
        raise ValueError(
            "the table of Nash averaging is antisymmetric, [S, S]; of any other, average over both"
            " seats: (A - A.T) / 2"
        )
    if not scale:
        return NashAverage(np.full(len(table), 1 / len(table)), np.zeros(len(table)))
    unit = (table - table.T) / (2 * scale)
    inner, slack = _complementary(unit)
    held = inner > slack
    weights = np.zeros(len(table))
    columns = unit[:, held]
    weights[held] = _largest_entropy(columns[held], columns[~held], inner[held])
    if weights.min() < 0 or float((unit @ weights).max()) > 1e-7:
        raise DataError("payoffs too close to ties to tell who holds a weight; round them")
    skills = table @ weights
    skills[held] = 0.0
    return NashAverage(weights, skills)


def _complementary(table: Floats) -> tuple[Floats, Floats]:
    """An equilibrium [S] and the slack of each constraint [S], of which exactly one is 0 in the
    limit (Goldman and Tucker 1956): who holds a weight in some equilibrium has one here.

    Newton along the central path: p_i s_i = mu, s = t - A p, sum p = 1, so that t = S mu.
    """
    count = len(table)
    p = np.full(count, 1 / count)
    against = table @ p
    s = float(against.max()) + 1.0 - against
    for _ in range(_STEPS):
        mu = float(p @ s) / count
        if mu < _GAP:
            break
        system = np.zeros((count + 1, count + 1))
        system[:count, :count] = np.diag(s) - p[:, None] * table
        system[:count, count] = p
        system[count, :count] = 1.0
        step = np.linalg.solve(system, np.append(0.1 * mu - p * s, 1.0 - p.sum()))
        moves = np.append(step[:count], step[count] - table @ step[:count])
        both = np.append(p, s)
        shrinks = moves < 0
        # short of the edge, which the limit alone may touch
        reach = min(1.0, 0.9 * float((both[shrinks] / -moves[shrinks]).min(initial=np.inf)))
        p, s = p + reach * moves[:count], s + reach * moves[count:]
    return p, s


def _largest_entropy(fixed: Floats, others: Floats, start: Floats) -> Floats:
    """The p > 0 [H] of largest entropy with sum 1, `fixed` p = 0 [F, H] and `others` p <= 0 [G, H];
    `start` satisfies all of it, and the last strictly.

    Newton, with a barrier that is drawn in; what it was drawn against is then held at 0.
    """
    equal = np.vstack([fixed, np.ones(len(start))])
    _, sizes, ways = np.linalg.svd(equal)
    free = ways[int((sizes > TIE * sizes[0]).sum()) :].T  # [H, ways in which p may move]
    aim = np.append(np.zeros(len(fixed)), 1.0)
    p = start + np.linalg.lstsq(equal, aim - equal @ start, rcond=TIE)[0]
    if not free.shape[1]:
        return p

    def cost(p: Floats, barrier: float) -> float:
        left = -others @ p
        if p.min() <= 0 or left.min(initial=1.0) <= 0:
            return math.inf
        return float(p @ np.log(p) - barrier * np.log(left).sum())

    barrier = 1.0 if len(others) else 0.0
    for _ in range(_STEPS):
        left = -others @ p
        slope = free.T @ (np.log(p) + 1 + others.T @ (barrier / left))
        bend = np.diag(1 / p) + (others.T * (barrier / left**2)) @ others
        # the least step, where rounding leaves no bend
        move = free @ -np.linalg.lstsq(free.T @ bend @ free, slope, rcond=None)[0]
        fall = float(-slope @ (free.T @ move))
        now = cost(p, barrier)
        reach = 1.0
        while reach > 1e-9 and cost(p + reach * move, barrier) > now - 1e-4 * reach * fall:
            reach /= 2
        if reach > 1e-9:
            p = p + reach * move
        if fall < 1e-16 or reach <= 1e-9:
            if barrier < 1e-12:
                break
            barrier /= 10
    left = -others @ p
    tight = left < math.sqrt(barrier)
    if not tight.any():
        return p
    return _largest_entropy(np.vstack([fixed, others[tight]]), others[:0], p)


def _finite(payoffs: Floats) -> Floats:
    table = np.asarray(payoffs, dtype=np.float64)
    if not np.isfinite(table).all():
        raise ValueError("payoffs are finite numbers; a pair that has not met has none")
    return table


def _square(table: Floats) -> Floats:
    if table.ndim < 2 or table.shape[-1] != table.shape[-2] or not table.shape[-1]:
        raise ValueError(f"a table of one population is [..., S, S]; got {table.shape}")
    return table
