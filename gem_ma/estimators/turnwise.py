"""Estimators that look at single turns: value baselines, anchor states, turn indices, trees and spread credit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gem_ma.credit import TurnTable, discount_of
from gem_ma.estimators.groups import Array, Given, Key, by_group, centred, episodes, groups, normalised, per_episode, values_of
from gem_ma.types import Episode, Turn

Gamma = float | Mapping[str, float]


def gae(rewards: ArrayLike, values: ArrayLike, gamma: float = 1.0, lam: float = 0.95) -> Array:
    """Generalised advantages of one agent's turns:  d_k = r_k + gamma V_(k+1) - V_k,  A_k = d_k + gamma lam A_(k+1).

    rewards [K], values [K + 1] -> [K]; the last value is 0 where the play ended, the critic's where the driver cut it. Raises ValueError for
    other lengths.  (Schulman et al., arXiv 1506.02438, eq. 16.)

    >>> gae([0, 0, 1], [.5, .5, .5, 0], lam=.5).tolist(), gae([0, 0, 1], [.5, .5, .5, .8], lam=.5).round(3).tolist()
    ([0.125, 0.25, 0.5], [0.325, 0.65, 1.3])
    """
    paid, seen = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    if paid.ndim != 1 or seen.shape != (len(paid) + 1,):
        raise ValueError(f"values need one entry more than rewards; got {len(seen)} and {len(paid)}")
    result, following = np.zeros(len(paid)), 0.0
    for k in range(len(paid) - 1, -1, -1):
        following = result[k] = paid[k] + gamma * seen[k + 1] - seen[k] + gamma * lam * following
    return result


def turn_gae(table: TurnTable, key: Key = ("policy", "scenario", "agent"), *, gamma: Gamma = 1.0, lam: float = 0.95) -> Array:
    """`gae` over the turns of each (episode, agent), then normalised in each group as PPO does. [N] -> [N]

    `table.value` [N] is the critic's value of what the agent saw before the turn, `gamma` the one that made `table.ret`. Own turns that are
    not in the table (played by another policy) are bridged: their rewards lie in the return between the two turns that are.
    """
    return by_group(raw_gae(table, gamma=gamma, lam=lam), groups(table, key), normalised)


def raw_gae(table: TurnTable, *, gamma: Gamma = 1.0, lam: float = 0.95) -> Array:
    """The advantages of `turn_gae` before they are normalised; a critic's targets are these plus `table.value`. [N] -> [N]"""
    result = np.zeros(len(table))
    gains, values = values_of(table, "ret"), values_of(table, "value")
    for rows in _in_order(table):
        rate = discount_of(gamma, str(table.agent[rows[0]]))
        following = 0.0
        for place in range(len(rows) - 1, -1, -1):
            n = rows[place]
            if place + 1 == len(rows):
                result[n] = following = gains[n] - values[n]
                continue
            after = rows[place + 1]
            gap = int(table.k[after] - table.k[n])
            paid = gains[n] - rate**gap * gains[after]
            result[n] = following = paid + rate**gap * values[after] - values[n] + (rate * lam) ** gap * following
    return result


def gigpo(table: TurnTable, key: Key = ("group", "agent"), *, weight: float = 1.0, divide: bool = True) -> Array:
    """Episode part and anchor-state part:  A = A_E + weight A_S.  (GiGPO, arXiv 2505.10978, eq. 8.) [N] -> [N]

    A_E = (R - mean R) / (std R + 1e-6) over the episodes of a group (`divide` False: R - mean R); A_S = G - mean G over the turns of the group
    that were taken from the same view (`state_key`, a digest of all that the agent had seen). A view seen once is silent: its A_S is 0.
    """
    whole = per_episode(table, key, (lambda values: normalised(values, 1e-6)) if divide else centred)
    anchors = groups(table, (*_listed(key), "state_key"))
    return whole + weight * by_group(values_of(table, "ret"), anchors, centred)


def mt_grpo(table: Given, key: Key = ("group", "agent", "k")) -> Array:
    """Group-relative per turn index:  A = (G - mean G) / (std G + 1e-6) over the k-th turns of a group.  (MT-GRPO, arXiv 2505.11821.) [N] -> [N]

    With one tool turn and one answer this is the paper's form for credit assignment: turn reward plus discounted outcome before the tool's
    result, the outcome after it. The index is known before the turn is taken, so the baseline adds no bias.

    >>> mt_grpo([1, 0, 0, 1]).round(4).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    return by_group(values_of(table, "ret"), groups(table, key), lambda values: normalised(values, 1e-6))


def at_grpo(table: Given, key: Key = ("group", "agent", "k")) -> Array:
    """Group-relative over actions from one state:  A = (r - mean r) / (std r + 1e-6), r the turn's own reward.  (AT-GRPO, arXiv 2510.11062.)

    [N] -> [N]. `group` names branches of one fork point; mix team and local reward by the credit rule `team_mix(w)`. Myopic by design:
    what a turn brings later does not count.

    >>> at_grpo([1, 0]).round(4).tolist()
    [1.0, -1.0]
    """
    return by_group(values_of(table, "reward"), groups(table, key), lambda values: normalised(values, 1e-6))


def turn_credit(table: TurnTable, key: Key = (), *, decay: float = 0.5, scores: ArrayLike | None = None) -> Array:
    """Differences of a state score, spread back over the turns before them. [N] -> [N]

    d_t = s_t - s_(t-1) (`scores` [N], the score after each turn; nan = none, the difference passes to the next turn that has one; without
    `scores` d_t is the turn's reward). Each d_t is spread over turns t, t-1, ... with weights decay^0, decay^1, ... that sum to 1. The credits
    of an episode sum to its last score less its first, 0.  (prime-rl, per-turn credit.) `key` groups nothing.
    """
    result, rewards = np.zeros(len(table)), values_of(table, "reward")
    given = None if scores is None else np.asarray(scores, np.float64)
    if given is not None and given.shape != (len(table),):
        raise ValueError(f"scores need one entry per turn; got {given.shape} for {len(table)} turns")
    for rows in _in_order(table):
        steps = rewards[rows] if given is None else _differences(given[rows])
        result[rows] = spread(steps, decay)
    return result


def spread(differences: ArrayLike, decay: float) -> Array:
    """Spreads each difference [K] over its own and the earlier turns, with weights decay^distance that sum to 1. [K] -> [K]

    >>> spread([.5, 0, .5], .5).round(4).tolist()
    [0.5714, 0.1429, 0.2857]
    """
    steps = np.asarray(differences, np.float64)
    result, following = np.zeros(len(steps)), 0.0
    for t in range(len(steps) - 1, -1, -1):
        total = math.fsum(decay**distance for distance in range(t + 1))
        following = result[t] = steps[t] / total + decay * following
    return result


def _differences(scores: Array) -> Array:
    result, last = np.zeros(len(scores)), 0.0
    for t, score in enumerate(scores):
        if not math.isnan(score):
            result[t], last = score - last, score
    return result


# -- trees ------------------------------------------------------------------------------------------------------------------


def magrpo(table: TurnTable, key: Key = ("group",), *, divide: bool = False) -> Array:
    """Group-relative over siblings of a tree, one value for all agents of a joint action.  (MAGRPO, arXiv 2508.04652, eq. 5.) [N] -> [N]

    Episodes of a group that did the same until a step share a node there. The return of a joint action is what the cast is paid for it, plus the
    mean return of what follows; A = return - mean over the siblings (`divide`: / max(std, 1e-6)). Undiscounted. In both means a joint action
    counts as often as it was sampled, so A sums to 0 over the episodes of a node; a fork does not sample its prefix again. A step that only one
    branch took teaches nothing.
    """
    result = np.zeros(len(table))
    trees = groups(table, key)
    for number in np.unique(trees):
        rows = np.flatnonzero(trees == number)
        gains = _tree({int(table.episode[n]): table.episodes[n] for n in rows})
        for n in rows:
            siblings = gains[int(table.episode[n]), int(table.step[n])]
            middled = centred(np.repeat([one.gain for one in siblings], [one.sampled for one in siblings]))
            own = next(place for place, one in enumerate(siblings) if int(table.episode[n]) in one.members)
            scale = max(math.sqrt(math.fsum(middled**2) / len(middled)), 1e-6) if divide else 1.0
            result[n] = middled[sum(one.sampled for one in siblings[:own])] / scale
    return result


class _Branch(NamedTuple):
    """One joint action at a node: the episodes that took it, how many of them sampled it (the others inherited it by a fork), and its return."""

    members: frozenset[int]
    sampled: int
    gain: float


def _tree(plays: Mapping[int, Episode]) -> dict[tuple[int, int], list[_Branch]]:
    """For each (episode, step): the branches of its node, in a fixed order."""
    histories = {index: _histories(episode) for index, episode in plays.items()}
    paid = {index: _paid(episode) for index, episode in plays.items()}
    forked = {index: max((step for step, _ in episode.forks), default=0) for index, episode in plays.items()}
    nodes: list[tuple[list[int], int]] = [(sorted(plays), 0)]  # episodes alike so far, and the step that they take next
    ways: list[list[tuple[list[int], int | None]]] = []  # by node: who goes which way, and the node there; None = they have ended
    for members, step in nodes:  # grows while it is read: an episode may have more steps than Python has frames
        split: dict[str, list[int]] = {}
        for index in members:
            split.setdefault(histories[index].get(step, ""), []).append(index)
        ways.append([(inside, len(nodes) + n if history else None) for n, (history, inside) in enumerate(sorted(split.items(), reverse=True))])
        nodes += [(inside, step + 1) for history, inside in sorted(split.items(), reverse=True) if history]
    found: dict[tuple[int, int], list[_Branch]] = {}
    following = [0.0] * len(nodes)  # the mean return from a node on
    for number in range(len(nodes) - 1, -1, -1):
        members, step = nodes[number]
        branches = []
        for inside, node in reversed(ways[number]):
            now = math.fsum(paid[index].get(step, 0.0) for index in inside) / len(inside)
            sampled = max(1, sum(step >= forked[index] for index in inside))
            branches.append(_Branch(frozenset(inside), sampled, now + following[node] if node is not None else 0.0))
        found |= {(index, step): branches for index in members}
        following[number] = math.fsum(one.sampled * one.gain for one in branches) / sum(one.sampled for one in branches)
    return found


def _histories(episode: Episode) -> dict[int, str]:
    """A digest of all that was done up to and with each step."""
    digest, found = hashlib.blake2b(digest_size=8), {}
    for turn in sorted(episode.turns, key=lambda turn: turn.step):
        digest.update(repr((turn.step, turn.agent, _said(turn))).encode())
        found[turn.step] = digest.hexdigest()
    return found


def _said(turn: Turn) -> tuple[Any, ...]:
    return (turn.action.text, tuple(repr(call) for call in turn.action.tool_calls))


def _paid(episode: Episode) -> dict[int, float]:
    paid: dict[int, list[float]] = {}
    for entry in episode.ledger:
        paid.setdefault(entry.step, []).append(entry.value)
    return {step: math.fsum(values) for step, values in paid.items()}


def _in_order(table: TurnTable) -> list[list[int]]:
    """Rows of each (episode, agent) by turn index."""
    return [sorted(rows.tolist(), key=lambda n: int(table.k[n])) for rows in episodes(table)]


def _listed(key: Key) -> tuple[str, ...]:
    return () if key == "global" else (key,) if isinstance(key, str) else tuple(key)
