"""What holds a policy to its reference weights beside the term of the loss: the divergence as a
part of the reward.

Knows columns and numbers; where the reference lies is the learner's matter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gem_ma.config.learning import LossSettings
from gem_ma.config.training import TrainSettings
from gem_ma.credit import Gamma, discount_of
from gem_ma.credit.estimators.groups import episodes
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.capabilities import Anchors
from gem_ma.training.learner.pairs import PAIRED
from gem_ma.training.loop.roles import Learner


def is_charged(loss: LossSettings) -> bool:
    """Whether the divergence is taken off the rewards, and is not a term of the loss."""
    return bool(loss.kl) and loss.kl_in == "reward"


def charged(
    learner: Learner, loss: LossSettings, turns: TurnTable, gamma: Gamma
) -> tuple[TurnTable, dict[str, float]]:
    """The turns, where the reward has it with what each costs taken off; and what is logged.

    A turn costs weight x (log p sampled - log p reference), summed over its tokens: an estimate
    without bias of how far the policy is away there (arXiv 2009.01325, section 3.4).
    """
    if not is_charged(loss) or not len(turns) or not isinstance(learner, Anchors):
        return turns, {}
    away, tokens = learner.divergence(turns)
    cost = loss.kl * away
    reward = turns.reward - cost
    gains = turns.ret.copy()
    totals = turns.total.copy()
    for rows in episodes(turns):
        rate = discount_of(gamma, str(turns.agent[rows[0]]))
        totals[rows] -= cost[rows].sum()
        for n in rows:
            # what comes after a turn is discounted over the agent's own turns, as its rewards
            later = rows[turns.k[rows] >= turns.k[n]]
            gaps = (turns.k[later] - turns.k[n]).astype(np.float64)
            gains[n] -= float((cost[later] * np.power(rate, gaps)).sum())
    numbers = {"kl_reference": float(away.sum() / max(tokens, 1))}
    return replace(turns, reward=reward, ret=gains, total=totals), numbers


def check_anchored(settings: TrainSettings, learner: Learner) -> None:
    """Raises ConfigError where a learner cannot do what `train.loss` says of its reference."""
    loss = settings.loss
    asked = [f"kl_in: {loss.kl_in}"] * is_charged(loss)
    asked += [f"surrogate: {loss.surrogate}"] * (loss.surrogate in PAIRED)
    if asked and not isinstance(learner, Anchors):
        raise ConfigError(
            f"policy {learner.policy!r}: {type(learner).__name__} keeps no reference weights, which"
            f" train.loss.{asked[0]} needs; remove it, or learn a local model"
        )
