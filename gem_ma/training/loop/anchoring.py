"""What holds a policy to its reference weights beside the term of the loss: the divergence as a
part of the reward, a weight that adapts itself, a reference that is renewed.

Knows columns and numbers; where the reference lies is the learner's matter. The state is one
mapping of floats by policy, beside those of the estimators in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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

MOST = 0.2  # the share by which an update changes the weight at most (arXiv 1909.08593, 2.2)


class Anchoring:
    """The weight of the divergence at one update of a policy, and what becomes of it. `past`: the
    state that the update before left, {} at the first."""

    def __init__(self, learner: Learner, loss: LossSettings, past: Mapping[str, float]) -> None:
        self.learner = learner
        self.settings = loss
        self.weight = past.get("weight", loss.kl)
        self.updates = past.get("updates", 0.0)
        every = loss.kl_refresh
        if every and self.updates and self.updates % every == 0 and isinstance(learner, Anchors):
            learner.hold()

    @property
    def loss(self) -> LossSettings:
        """The settings of the update: with the weight of now, or none where the reward has it."""
        return self.settings.model_copy(update={"kl": 0.0 if self._paid else self.weight})

    @property
    def _paid(self) -> bool:
        return bool(self.settings.kl) and self.settings.kl_in == "reward"

    def charged(self, turns: TurnTable, gamma: Gamma) -> tuple[TurnTable, dict[str, float]]:
        """The turns, where the reward has it with what each costs taken off; and what is logged.

        A turn costs weight x (log p sampled - log p reference), summed over its tokens: an
        estimate without bias of how far the policy is away there (arXiv 2009.01325, section 3.4).
        """
        numbers = {} if self.settings.kl_target is None else {"kl_weight": self.weight}
        if not self._paid or not len(turns) or not isinstance(self.learner, Anchors):
            return turns, numbers
        away, tokens = self.learner.divergence(turns)
        cost = self.weight * away
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
        numbers["kl_reference"] = float(away.sum() / max(tokens, 1))
        return replace(turns, reward=reward, ret=gains, total=totals), numbers

    def after(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """The state for the next update; `numbers` are what is logged of this one."""
        weight = self.weight
        target = self.settings.kl_target
        away = numbers.get("kl_reference")
        if target is not None and away is not None:
            weight *= 1 + min(MOST, max(-MOST, away / target - 1))
        return {"weight": weight, "updates": self.updates + 1}


def check_anchored(settings: TrainSettings, learner: Learner) -> None:
    """Raises ConfigError where a learner cannot do what `train.loss` says of its reference."""
    loss = settings.loss
    asked = [f"kl_in: {loss.kl_in}"] * (loss.kl > 0 and loss.kl_in == "reward")
    asked += [f"kl_refresh: {loss.kl_refresh}"] * (loss.kl_refresh is not None)
    asked += [f"surrogate: {loss.surrogate}"] * (loss.surrogate in PAIRED)
    if asked and not isinstance(learner, Anchors):
        raise ConfigError(
            f"policy {learner.policy!r}: {type(learner).__name__} keeps no reference weights, which"
            f" train.loss.{asked[0]} needs; remove it, or learn a local model"
        )
