"""Losses of pairs of plays, in pure numpy: of two plays of one start the better one shall become
likelier than the worse one, compared with what a reference says of both.

Knows tokens and advantages, but not models. Axes: n trained tokens, P pairs. A *part* is what one
agent said in one play; the parts of one agent from one start are a *group*. Which of two is better
follows from their advantages, which an estimator that scores whole plays keeps in the order of
their returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.training.learner.slopes import Pull, Slope

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def dpo(margin: Slope, beta: float) -> Slope:
    """-log sigmoid(beta margin), of DPO (arXiv 2305.18290, eq. 7). margin [P]: log (p / p
    reference) of the better part less that of the worse, summed over the tokens of each."""
    return (-margin * beta).softplus()


def ipo(margin: Slope, beta: float) -> Slope:
    """(margin - 1 / (2 beta))^2, of IPO (arXiv 2310.12036, eq. 17): a pair that is far enough apart
    is pulled no further."""
    away = margin - 1 / (2 * beta)
    return away * away


# (margin [P], loss.pair_beta) -> loss [P]
PAIRED: dict[str, Callable[[Slope, float], Slope]] = {"dpo": dpo, "ipo": ipo}


class Pairs(NamedTuple):
    """All pairs (better, worse) of a batch, as numbers of its parts [P]; `owner` [n] is the part
    of each token."""

    better: Index
    worse: Index
    owner: Index

    @classmethod
    def of(cls, advantage: Array, part: Index, group: Index) -> Pairs:
        """Every two parts of one group whose advantages differ; columns [n] of the tokens."""
        _, first, owner = np.unique(part, return_index=True, return_inverse=True)
        worth = advantage[first]
        start = group[first]
        better = [np.zeros(0, np.int64)]
        worse = [np.zeros(0, np.int64)]
        # by group, not over all parts at once: a batch has thousands of parts, a group a few
        for mine in np.split(np.argsort(start, kind="stable"), _ends(np.sort(start))):
            ahead, behind = np.nonzero(worth[mine][:, None] > worth[mine][None, :])
            better.append(mine[ahead])
            worse.append(mine[behind])
        return cls(np.concatenate(better), np.concatenate(worse), owner)

    def margin(self, away: Array) -> Array:
        """[P] of log (p / p reference) of each token [n]."""
        lead = np.bincount(self.owner, away).astype(np.float64)
        return np.asarray(lead[self.better] - lead[self.worse])


def _ends(ordered: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal values ends, but the last."""
    return np.flatnonzero(np.diff(ordered)) + 1


def pair_pull(name: str, away: Array, pairs: Pairs, beta: float) -> Pull:
    """The mean loss of these pairs, and its slope by the log-probability of each token [n]; `away`
    as in `Pairs.margin`."""
    loss = PAIRED[name](Slope.of(pairs.margin(away)), beta)
    count = max(len(pairs.better), 1)
    parts = int(pairs.owner.max(initial=-1)) + 1
    # a part stands in as many pairs as there are others of its group that came to more or less
    pull = np.bincount(pairs.better, loss.slope / count, parts)
    pull = pull - np.bincount(pairs.worse, loss.slope / count, parts)
    clipped = np.zeros(len(away), np.bool_)
    slope = np.asarray(pull[pairs.owner], np.float64)
    return Pull(slope, float(loss.value.sum()) / count, clipped)


def ranking(away: Array, pairs: Pairs) -> dict[str, float]:
    """What is logged: how many pairs there are, and the share whose better part has become
    likelier than the worse one; equals count half."""
    margin = pairs.margin(away)
    right = (margin > 0) + 0.5 * (margin == 0)
    return {
        "pairs": float(len(margin)),
        **({"pairs_right": float(right.mean())} if len(margin) else {}),
    }
