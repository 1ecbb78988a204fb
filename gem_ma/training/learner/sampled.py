"""Trained tokens as they were sampled, in columns, and what they are worth to a loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.kernel.episode import Episode
from gem_ma.training.learner.pairs import Pairs
from gem_ma.training.learner.token_weights import token_weights, truncated_weight


class Sampled(NamedTuple):
    """Trained tokens [n] as they were sampled: advantage, log-probability, turn and part; `group`:
    the parts that a loss of pairs compares, None where there is none."""

    advantage: NDArray[np.float64]
    logprob: NDArray[np.float64]
    turn: NDArray[np.int64]
    part: NDArray[np.int64]
    group: NDArray[np.int64] | None = None

    def take(self, index: NDArray[Any]) -> Sampled:
        """These tokens, by index or mask."""
        group = None if self.group is None else self.group[index]
        advantage, logprob, turn, part = (column[index] for column in self[:4])
        return Sampled(advantage, logprob, turn, part, group)

    def worth(self, old: NDArray[np.float64], how: LossSettings) -> NDArray[np.float64]:
        """The advantages [n], corrected for a sampler whose numbers are not the learner's `old`."""
        gap = old - self.logprob  # learner to engine; under overlap also newer to older weights
        weight = truncated_weight(gap, self.turn, self.part, how.ratio, how.tis)
        return self.advantage * weight

    def pairs(self) -> Pairs:
        """See `Pairs.of`."""
        assert self.group is not None
        return Pairs.of(self.advantage, self.part, self.group)

    def weights(self, how: LossSettings, longest: int) -> NDArray[np.float64]:
        """See `token_weights`."""
        return token_weights(self.turn, how.aggregation, self.part, longest)


def start_of(episode: Episode) -> str:
    """The name of a start: all plays with it can be compared with each other."""
    return episode.group or str(episode.id)
