"""Estimators that look at single turns: value baselines, anchor states, turn indices and spread
credit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from gem_ma.credit import Gamma, discount_of
from gem_ma.credit.estimators.groups import (
    Array,
    Key,
    TableLike,
    by_group,
    centred,
    columns,
    episodes,
    groups,
    normalised,
    per_episode,
    values_of,
)
from gem_ma.credit.table import TurnTable


def gae(rewards: ArrayLike, values: ArrayLike, gamma: float = 1.0, lam: float = 0.95) -> Array:
    """Generalised advantages of one agent's turns:  d_k = r_k + gamma V_(k+1) - V_k,  A_k = d_k +
    gamma lam A_(k+1).

    rewards [K], values [K + 1] -> [K]; the last value is 0 where the play ended, the critic's where
    the driver cut it. Raises ValueError for other lengths.  (Schulman et al., arXiv 1506.02438, eq.
    16.)

    >>> gae([0, 0, 1], [.5, .5, .5, 0], lam=.5).tolist()
    [0.125, 0.25, 0.5]
    >>> gae([0, 0, 1], [.5, .5, .5, .8], lam=.5).round(3).tolist()
    [0.325, 0.65, 1.3]
    """
    paid = np.asarray(rewards, np.float64)
    seen = np.asarray(values, np.float64)
    if paid.ndim != 1 or seen.shape != (len(paid) + 1,):
        raise ValueError(
            f"values need one entry more than rewards; got {len(seen)} and {len(paid)}"
        )
    result = np.zeros(len(paid))
    following = 0.0
    # backwards, eq. 16 is one addition a turn; forwards it is a sum for each
    for k in range(len(paid) - 1, -1, -1):
        following = result[k] = paid[k] + gamma * seen[k + 1] - seen[k] + gamma * lam * following
    return result


def turn_gae(
    table: TurnTable,
    key: Key = ("policy", "scenario", "agent"),
    *,
    gamma: Gamma = 1.0,
    lam: float = 0.95,
) -> Array:
    """`gae` over the turns of each (episode, agent), then normalised in each group as PPO does. [N]
    -> [N]

    `table.value` [N] is the critic's value of what the agent saw before the turn, `gamma` the
    one that made `table.ret`. Turns that another policy played are bridged: their rewards lie in
    the return between the two turns that are in the table.
    """
    return by_group(raw_gae(table, gamma=gamma, lam=lam), groups(table, key), normalised)


def raw_gae(table: TurnTable, *, gamma: Gamma = 1.0, lam: float = 0.95) -> Array:
    """The advantages of `turn_gae` before they are normalised; a critic's targets are these plus
    `table.value`. [N] -> [N]"""
    result = np.zeros(len(table))
    gains = values_of(table, "ret")
    values = values_of(table, "value")
    for rows in _in_order(table):
        rate = discount_of(gamma, str(table.agent[rows[0]]))
        following = 0.0
        for place in range(len(rows) - 1, -1, -1):
            n = rows[place]
            if place + 1 == len(rows):
                # the tail of a cut play is in the return already, see `credit.turns`
                result[n] = following = gains[n] - values[n]
                continue
            after = rows[place + 1]
            gap = int(table.k[after] - table.k[n])  # above 1 where turns between are not trained
            # G_n = r_n + ... + gamma^gap G_after: what was paid in between is their difference
            paid = gains[n] - rate**gap * gains[after]
            result[n] = following = (
                paid + rate**gap * values[after] - values[n] + (rate * lam) ** gap * following
            )
    return result


def gigpo(
    table: TurnTable,
    key: Key = ("group", "agent"),
    *,
    weight: float = 1.0,
    divide: bool = True,
    history: bool = False,
    ddof: int = 0,
) -> Array:
    """Episode part and anchor-state part:  A = A_E + weight A_S.  (GiGPO, arXiv 2505.10978, eq. 8.)
    [N] -> [N]

    A_E = (R - mean R) / F over the episodes of a group, R undiscounted (eq. 3). A_S = (G - mean
    G) / F over the turns of the group that were taken from one state (eq. 6 and 7), G discounted
    (eq. 5). Both parts have the same normaliser F: std + 1e-6 (the paper's form, and
    `mean_std_norm` of the authors' code), with `divide` False 1 (`mean_norm`). `ddof=1` is the
    sample form of the authors' code. The state is what the agent was shown last (`observation`),
    as in the authors' code; with `history` all that it had seen and said (`state_key`), which
    two plays rarely share. A state met once is silent: its A_S is 0; so is, unlike in that code,
    a group of one episode.
    """

    def norm(values: Array) -> Array:
        return normalised(values, 1e-6, ddof) if divide else centred(values)

    # within the group of the episodes, as eq. 6 has it: equal states of other tasks do not compare
    anchors = groups(table, (*columns(key), "state_key" if history else "observation"))
    return per_episode(table, key, norm) + weight * by_group(values_of(table, "ret"), anchors, norm)


def mt_grpo(
    table: TurnTable,
    key: Key = ("group", "agent"),
    *,
    weight: float = 1.0,
    turn_weight: float = 1.0,
    ddof: int = 0,
) -> Array:
    """Turn and outcome apart:  A_k = turn_weight norm(r_k) + weight norm(O) before the last turn,
    A_K = norm(O).  [N] -> [N]

    norm(x) = (x - mean x) / (std x + 1e-6): of the outcomes O over the episodes of a group, of
    the rewards r_k over its k-th turns that are not last turns. O is the return of an agent's
    last turn, r_k what its k-th turn alone is paid: rewards of a turn count for that turn and no
    other, so the turn part is myopic.  (MT-GRPO, arXiv 2505.11821, section 4, for K turns in
    place of its two: `weight` is the paper's lambda; `turn_weight` the coefficient of the
    authors' code, whose estimate `aae` this is. `ddof=1` is its sample form.)
    """

    def norm(values: Array) -> Array:
        return normalised(values, 1e-6, ddof)

    result = np.zeros(len(table))
    gains = values_of(table, "ret")
    rewards = values_of(table, "reward")
    plays = _in_order(table)
    # a last turn has only the outcome: its own reward is in it, and would count twice
    last = np.array([rows[-1] for rows in plays], np.int64)
    earlier = np.array(sorted(set(range(len(table))) - set(last.tolist())), np.int64)
    outcome = by_group(gains[last], groups(table, key)[last], norm)
    # by k: what a turn is paid depends on its place in the play
    index = groups(table, (*columns(key), "k"))[earlier]
    result[earlier] = turn_weight * by_group(rewards[earlier], index, norm)
    for rows, value in zip(plays, outcome, strict=True):
        result[rows[:-1]] += weight * value
        result[rows[-1]] = value
    return result


def turn_grpo(table: TableLike, key: Key = ("group", "agent", "k")) -> Array:
    """Group-relative per turn index:  A = (G - mean G) / (std G + 1e-6) over the k-th turns of a
    group. [N] -> [N]

    Ours. With two turns it is the estimate `cae` in the code of MT-GRPO (arXiv 2505.11821): turn
    reward plus discounted outcome before the tool's result, the outcome after it. The index is
    known before the turn is taken, so the baseline adds no bias.

    >>> turn_grpo([1, 0, 0, 1]).round(4).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    return by_group(values_of(table, "ret"), groups(table, key), _normed)


def at_grpo(table: TableLike, key: Key = ("group", "agent", "k")) -> Array:
    """Group-relative over actions from one state:  A = (r - mean r) / (std r + 1e-6), r the turn's
    own reward.  (AT-GRPO, arXiv 2510.11062.)

    [N] -> [N]. `group` names branches of one fork point (`train.fork`): there the actions are
    alternatives in one state, as in the paper. Later turns of the branches, and plays of one start,
    are compared by turn index, whatever their states. Mix team and local reward by the credit rule
    `team_mix(w)`. Myopic by design: what a turn brings later does not count.

    >>> at_grpo([1, 0]).round(4).tolist()
    [1.0, -1.0]
    """
    return by_group(values_of(table, "reward"), groups(table, key), _normed)


def _normed(values: Array) -> Array:
    return normalised(values, 1e-6)


def c3(table: TurnTable, key: Key = ("group", "agent")) -> Array:
    """Leave one out among the forks of a turn, for that turn alone:  A = G - mean G of the other
    forks; 0 at all turns that follow.  (C3, arXiv 2603.06859.) [N] -> [N]

    The forks of a turn (`train.fork`) are other acts in one frozen context; each is played on by
    the policies as they are, and what follows only tells what the act was worth. `rloo` on the same
    forks gives their advantage to these later turns too. A play that is not forked counts as a
    fork of its start.
    """
    result = np.zeros(len(table))
    # the step from which an episode was sampled, and not taken over from the play that was forked
    first = [max((step for step, _ in play.forks), default=0) for play in table.episodes]
    forked = np.flatnonzero(table.step == np.array(first, np.int64))
    result[forked] = by_group(
        values_of(table, "ret")[forked],
        groups(table, key)[forked],
        lambda values: centred(values) * (len(values) / max(1, len(values) - 1)),
    )
    return result


def turn_credit(
    table: TurnTable, key: Key = (), *, decay: float = 0.5, scores: ArrayLike | None = None
) -> Array:
    """Differences of a state score, spread back over the turns before them. [N] -> [N]

    d_t = s_t - s_(t-1) (`scores` [N], the score after each turn; nan = none, the difference
    passes to the next turn that has one; without `scores` d_t is the turn's reward). Each d_t is
    spread over turns t, t-1, ... with weights decay^0, decay^1, ... that sum to 1. The credits
    of an episode sum to its last score less its first, 0.  (prime-rl, per-turn credit.) `key`
    groups nothing.
    """
    result = np.zeros(len(table))
    rewards = values_of(table, "reward")
    marks = None if scores is None else np.asarray(scores, np.float64)
    if marks is not None and marks.shape != (len(table),):
        raise ValueError(
            f"scores need one entry per turn; got {marks.shape} for {len(table)} turns"
        )
    # `key` is not used: differences of an episode's own score have a baseline already
    for rows in _in_order(table):
        steps = rewards[rows] if marks is None else _differences(marks[rows])
        result[rows] = spread(steps, decay)
    return result


def spread(differences: ArrayLike, decay: float) -> Array:
    """Spreads each difference [K] over its own and the earlier turns, with weights decay^distance
    that sum to 1. [K] -> [K]

    >>> spread([.5, 0, .5], .5).round(4).tolist()
    [0.5714, 0.1429, 0.2857]
    """
    steps = np.asarray(differences, np.float64)
    result = np.zeros(len(steps))
    following = 0.0
    for t in range(len(steps) - 1, -1, -1):
        # the weights of t + 1 turns; summed anew, as the closed form divides by 0 at decay 1
        total = math.fsum(decay**distance for distance in range(t + 1))
        following = result[t] = steps[t] / total + decay * following
    return result


def _differences(scores: Array) -> Array:
    # a play begins with the score 0
    result = np.zeros(len(scores))
    last = 0.0
    for t, score in enumerate(scores):
        if not math.isnan(score):
            result[t] = score - last
            last = score
    return result


def _in_order(table: TurnTable) -> list[list[int]]:
    """Rows of each (episode, agent) by turn index."""
    return [sorted(rows.tolist(), key=lambda n: int(table.k[n])) for rows in episodes(table)]
