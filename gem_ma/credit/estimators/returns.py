"""Estimators that compare returns: one number per turn (G) or per episode (R) against its group.

G = discounted return-to-go of a turn, R = undiscounted sum of the agent's rewards in the
episode; std is the population form, in two passes (E[x^2] - E[x]^2 goes negative in float32).

Those of joint actions read the ledger of the episodes: what a whole cast is paid after one, against
what else was done.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gem_ma.credit.estimators.groups import (
    Array,
    Key,
    TableLike,
    by_group,
    centred,
    groups,
    normalised,
    per_episode,
    values_of,
)
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import Episode


def reinforce(table: TableLike, key: Key = ()) -> Array:
    """No baseline:  A_n = G_n.  (Williams 1992.) [N] -> [N]; the scale is the user's problem, `key`
    groups nothing.

    >>> reinforce([1, -2]).tolist()
    [1.0, -2.0]
    """
    # a copy: a caller that scales its advantages in place must not change the table
    return values_of(table, "ret").copy()


def rebn(table: TableLike, key: Key = ("policy", "scenario", "agent")) -> Array:
    """Return batch normalisation:  A_n = (G_n - mean G) / (std G + 1e-8) in each group.  (GEM,
    arXiv 2510.01051.) [N] -> [N]

    The paper's form is `key="global"`: all turns of the policy, every agent together. In a zero-sum
    game that mean is 0 whatever the agents do, so the default takes each agent by itself.

    >>> rebn([1, 2, 3, 6]).round(4).tolist()
    [-1.069, -0.5345, 0.0, 1.6036]
    >>> rebn([.1, .1, .1]).tolist()
    [0.0, 0.0, 0.0]
    """
    values = values_of(table, "ret")
    return by_group(values, groups(table, key), normalised)


def grpo(table: TableLike, key: Key = ("group", "agent"), ddof: int = 0) -> Array:
    """Group-relative:  A = (R - mean R) / (std R + 1e-6), one value per episode and agent.
    (DeepSeekMath, arXiv 2402.03300, 4.1.2.) [N] -> [N]

    Statistics count each episode once, however many turns it has. `ddof=1` is the sample form,
    which verl and TRL use.

    >>> grpo([1, 0, 0, 1]).round(4).tolist(), grpo([1, 0, 0, 1], ddof=1).round(4).tolist()
    ([1.0, -1.0, -1.0, 1.0], [0.866, -0.866, -0.866, 0.866])
    """
    # the epsilon of verl; that of `rebn` and `agent_norm` is 1e-8, as their authors have it
    return per_episode(table, key, lambda values: normalised(values, 1e-6, ddof))


def dr_grpo(table: TableLike, key: Key = ("group", "agent")) -> Array:
    """Group-relative without the division:  A = R - mean R, one value per episode and agent.  (Dr.
    GRPO, arXiv 2503.20783.) [N] -> [N]

    >>> dr_grpo([1, 0, 0, 1]).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return per_episode(table, key, centred)


def rloo(table: TableLike, key: Key = ("group", "agent")) -> Array:
    """Leave one out:  A = (n R - sum R) / (n - 1), one value per episode and agent.  (RLOO, arXiv
    2402.14740.) [N] -> [N]

    >>> rloo([1, 0, 0, 1]).round(4).tolist()
    [0.6667, -0.6667, -0.6667, 0.6667]
    """
    # (n R - sum R) / (n - 1) = (R - mean R) n / (n - 1); alone (n = 1) the centred R is 0
    return per_episode(
        table, key, lambda values: centred(values) * (len(values) / max(1, len(values) - 1))
    )


def agent_norm(table: TableLike, key: Key = ("group", "agent"), ddof: int = 0) -> Array:
    """Each agent against itself:  A = (R - mean R) / (std R + 1e-8), over all turns of the agent in
    the group.  (Dr. MAS, arXiv 2602.08847.)

    [N] -> [N]. Unlike `grpo`, an episode counts once per turn in the statistics, as in the authors'
    code: long episodes weigh more. `ddof=1` is the sample form.

    >>> agent_norm([1, 0, 0, 1]).round(4).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    # over rows and not `per_episode`: see above, this is what sets it apart from `grpo`
    return by_group(
        values_of(table, "total"), groups(table, key), lambda values: normalised(values, ddof=ddof)
    )


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
