"""Estimators of joint actions: what a whole cast is paid after one, against what else was done.
They read the ledger of the episodes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gem_ma.credit.estimators.groups import Array, Key, by_group, centred, groups, normalised
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import Episode


def team_grpo(
    table: TurnTable, key: Key = ("group", "agent", "k"), *, divide: bool = False
) -> Array:
    """Group-relative over plays of one start, by what the whole cast is still paid:  A = T - mean T
    over the k-th turns of a group. [N] -> [N]

    T is the sum of all agents' rewards from the turn's step on, undiscounted (`divide`: / (std T
    + 1e-6)). Ours: the return of MAGRPO (arXiv 2508.04652) with the group of `grpo`, for plays
    that go their own ways after the first turn and so share no tree.
    """
    # of the whole ledger, not of the agent's entries: the cast is paid together
    plays = zip(table.episodes, table.turns, strict=True)
    ahead = [[e.value for e in play.ledger if e.step >= turn.step] for play, turn in plays]
    still = np.array([math.fsum(values) for values in ahead])

    def norm(values: Array) -> Array:
        return normalised(values, 1e-6) if divide else centred(values)

    return by_group(still, groups(table, key), norm)


def magrpo(table: TurnTable, key: Key = ("group",), *, divide: bool = False) -> Array:
    """Group-relative over siblings of a tree, one value for all agents of a joint action.  (MAGRPO,
    arXiv 2508.04652.) [N] -> [N]

    Episodes of a group that did the same until a step share a node there. The return of a joint
    action is what the cast is paid for it, plus the mean return of what follows; A = return -
    mean over the siblings (`divide`: / max(std, 1e-6)). Undiscounted. In both means a joint
    action counts as often as it was sampled, so A sums to 0 over the episodes of a node; a fork
    does not sample its prefix again. A step that only one branch took teaches nothing, so plays
    that merely share a start learn from their first step at most: a config wants `train.fork`,
    and for such plays there is `team_grpo`.  (The authors' code: aligned joint actions,
    `advantage_mode: mean`, discount 1. There equal answers of two siblings stand apart; here
    they are one joint action, worth its mean.)
    """
    result = np.zeros(len(table))
    trees = groups(table, key)
    for number in np.unique(trees):
        rows = np.flatnonzero(trees == number)
        gains = _tree({int(table.episode[n]): table.episodes[n] for n in rows})
        for n in rows:
            episode = int(table.episode[n])
            siblings = gains[episode, int(table.step[n])]
            counts = [branch.sampled for branch in siblings]
            middled = centred(np.repeat([branch.gain for branch in siblings], counts))
            mine = next(i for i, branch in enumerate(siblings) if episode in branch.members)
            # bounded, not shifted by 1e-6: two siblings that differ get exactly 1 and -1
            scale = max(math.sqrt(math.fsum(middled**2) / len(middled)), 1e-6) if divide else 1.0
            # `middled` has an entry per sample; the first of my branch comes after all before it
            result[n] = middled[sum(counts[:mine])] / scale
    return result


class _Branch(NamedTuple):
    """One joint action at a node: the episodes that took it, how many of them sampled it (the
    others inherited it by a fork), and its return."""

    members: frozenset[int]
    sampled: int
    gain: float


def _tree(plays: Mapping[int, Episode]) -> dict[tuple[int, int], list[_Branch]]:
    """For each (episode, step): the branches of its node, in a fixed order."""
    histories = {index: _histories(episode) for index, episode in plays.items()}
    paid = {index: _paid(episode) for index, episode in plays.items()}
    # up to its last fork an episode repeats another one's record; from there on it sampled
    forked = {n: max((step for step, _ in play.forks), default=0) for n, play in plays.items()}
    # episodes alike so far, and the step that they take next
    nodes: list[tuple[list[int], int]] = [(sorted(plays), 0)]
    # by node: who goes which way, and the node there; None = they have ended
    ways: list[list[tuple[list[int], int | None]]] = []
    # grows while it is read: an episode may have more steps than Python has frames
    for members, step in nodes:
        split: dict[str, list[int]] = {}
        for index in members:
            split.setdefault(histories[index].get(step, ""), []).append(index)
        ordered = enumerate(sorted(split.items(), reverse=True), len(nodes))
        ways.append([(inside, n if history else None) for n, (history, inside) in ordered])
        nodes += [(inside, step + 1) for inside, node in ways[-1] if node is not None]
    gains: dict[tuple[int, int], list[_Branch]] = {}
    following = [0.0] * len(nodes)  # the mean return from a node on
    # children stand behind their parents in `nodes`, so backwards each child is done first
    for number in range(len(nodes) - 1, -1, -1):
        members, step = nodes[number]
        branches = []
        for inside, node in reversed(ways[number]):
            now = math.fsum(paid[index].get(step, 0.0) for index in inside) / len(inside)
            # at least 1: in a batch without its trunk a prefix is inherited by all of its branches
            sampled = max(1, sum(step >= forked[index] for index in inside))
            gain = now + following[node] if node is not None else 0.0
            branches.append(_Branch(frozenset(inside), sampled, gain))
        gains |= {(index, step): branches for index in members}
        total = math.fsum(branch.sampled * branch.gain for branch in branches)
        following[number] = total / sum(branch.sampled for branch in branches)
    return gains


def _histories(episode: Episode) -> dict[int, str]:
    """A digest of all that was done up to and with each step."""
    # one running digest: a history is compared as a whole, and a list of texts would be quadratic
    digest = hashlib.blake2b(digest_size=8)
    digests = {}
    # stable: the agents of one step stay in the order of the record, which is that of the cast
    for turn in sorted(episode.turns, key=lambda turn: turn.step):
        # by repr: the arguments of a call are dicts, which have no hash
        action = (turn.action.text, tuple(repr(call) for call in turn.action.tool_calls))
        digest.update(repr((turn.step, turn.agent, action)).encode())
        digests[turn.step] = digest.hexdigest()
    return digests


def _paid(episode: Episode) -> dict[int, float]:
    paid: dict[int, list[float]] = {}
    for entry in episode.ledger:
        paid.setdefault(entry.step, []).append(entry.value)
    return {step: math.fsum(values) for step, values in paid.items()}
