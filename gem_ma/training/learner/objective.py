"""What one minibatch maximises, as a function of log-probabilities that come a chunk at a time; it
keeps the sums that are logged.

Knows tokens and losses; knows no model and no optimiser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.training.learner.divergences import DIVERGENCES, k3
from gem_ma.training.learner.forward import Scored
from gem_ma.training.learner.losses import Clip, pull, surrogate
from gem_ma.training.learner.sampled import Sampled

Array = NDArray[np.float64]


class Objective:
    """The loss of n tokens: called with a chunk of them it gives that part of the loss, to be
    differentiated.

    `old` [n]: log-probabilities before the update, filled in where they are `fresh`, since this
    very pass gives them. `anchor` [n]: those of the reference weights. `longest`: the token limit
    of a turn.
    """

    def __init__(
        self,
        sampled: Sampled,
        old: Array,
        settings: LossSettings,
        tensor: Callable[[Array], Any],
        *,
        fresh: bool,
        anchor: Array | None,
        longest: int,
    ) -> None:
        self.sampled = sampled
        self.old = old
        self.anchor = anchor
        self.fresh = fresh
        self.settings = settings
        self.tensor = tensor
        self.longest = longest
        self.count = len(sampled.turn)
        # counted over the whole step: a chunk does not know how many turns there are
        self.weight = self.sampled.weights(settings, longest)
        self.clip = Clip.of(settings)
        self.pull: Array | None = None
        # loss, entropy, k3 of old to new, clipped tokens, k3 to the reference; of the chunks of
        # this process
        self.sums = np.zeros(5)
        # what every process knows of the whole minibatch, so that it is counted once
        self.whole = np.zeros(5)

    def pull_units(self, logprobs: Array) -> None:
        """Of a ratio of whole turns or episodes, and of pairs: what each token's log-probability
        [n] is pulled by. A chunk may hold half a turn, so this needs a pass ahead."""
        whole = pull(logprobs, self.old, self.sampled, self.settings, self.longest, self.anchor)
        self.pull = whole.slope
        self.whole[0] = whole.loss
        self.whole[3] = whole.clipped.sum()

    def __call__(self, scored: Scored) -> Any:
        """The part of the loss that these tokens make, as a tensor."""
        logprobs = scored.logprobs
        order = scored.order
        how = self.settings
        if self.fresh:  # no step was taken yet: this pass gives the values of before the update
            self.old[order] = logprobs.detach().double().cpu().numpy()
        before = self.tensor(self.old[order])
        if self.pull is not None:
            # linear in the log-probabilities, with the gradient that the whole has
            loss = (logprobs * self.tensor(self.pull[order])).sum()
        else:
            loss = self._surrogate(logprobs, before, order)
            self.sums[0] += float(loss.detach())
        if how.entropy:
            bonus = how.entropy * scored.entropy.sum() / self.count
            self.sums[0] -= float(bonus.detach())
            loss = loss - bonus
        if self.anchor is not None:
            anchor = self.tensor(self.anchor[order])
            # in nats whatever the form
            self.sums[4] += float(k3(logprobs.detach(), anchor).sum())
            if how.kl:  # a loss of pairs has its anchor for itself
                away = DIVERGENCES[how.kl_form](logprobs, anchor).sum()
                self.sums[0] += how.kl * float(away.detach()) / self.count
                loss = loss + how.kl * away / self.count
        self.sums[1] += float(scored.entropy.detach().sum())
        self.sums[2] += float(k3(before, logprobs.detach()).sum())
        return loss

    def _surrogate(self, logprobs: Any, before: Any, order: NDArray[np.int64]) -> Any:
        # without gradient: the correction for the sampler is a weight, not a part of the objective
        worth = self.sampled.take(order).worth(self.old[order], self.settings)
        objective = surrogate(self.settings.surrogate)
        gain, clipped = objective(logprobs, before, self.tensor(worth), self.clip)
        self.sums[3] += float(clipped.sum())
        return -(gain * self.tensor(self.weight[order])).sum()
