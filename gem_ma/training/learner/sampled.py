"""Trained tokens as they were sampled, in columns, and what they are worth to a loss."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import Aggregation, LossSettings
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.pairs import Pairs

# How much each trained token counts in the loss, in pure numpy: by aggregation, and by how far the
# sampler's numbers lie from the learner's. Axis: n trained tokens.

AGGREGATIONS: tuple[str, ...] = get_args(Aggregation)


def token_weights(
    turn: NDArray[np.int64],
    aggregation: str,
    part: NDArray[np.int64] | None = None,
    longest: int | None = None,
) -> NDArray[np.float64]:
    """Weight [n] of each trained token, given its turn [n].

    turn_sum: 1 / turns, the gradient of one action per turn. token_mean: 1 / tokens. turn_mean: 1 /
    (turns * tokens of the turn), which favours short right and long wrong turns. constant: 1 /
    (turns * `longest`), `longest` = the token limit of a turn (Dr. GRPO, arXiv 2503.20783).
    episode_sum: 1 / parts, given for each token the agent's `part` [n] in an episode.

    >>> token_weights(np.array([0, 0, 1]), "turn_sum").tolist()
    [0.5, 0.5, 0.5]
    >>> token_weights(np.array([0, 0, 1]), "turn_mean").tolist()
    [0.25, 0.25, 0.5]
    """
    _, index, counts = np.unique(turn, return_inverse=True, return_counts=True)
    # max(..., 1): a step may have no token at all
    if aggregation == "turn_sum":
        return np.full(len(turn), 1.0 / max(len(counts), 1))
    if aggregation == "token_mean":
        return np.full(len(turn), 1.0 / max(len(turn), 1))
    if aggregation == "turn_mean":
        return np.asarray(1.0 / (len(counts) * counts[index]), np.float64)
    # by a constant, not by the turn's own length: no reason to be short or long is left
    if aggregation == "constant":
        return np.full(
            len(turn), 1.0 / (max(len(counts), 1) * (longest or int(counts.max(initial=1))))
        )
    if aggregation == "episode_sum":
        return np.full(len(turn), 1.0 / max(len(np.unique(turn if part is None else part)), 1))
    raise ConfigError(
        f"no aggregation is called {aggregation!r}; aggregations are {', '.join(AGGREGATIONS)}"
    )


def truncated_weight(
    gap: NDArray[np.float64],
    turn: NDArray[np.int64],
    part: NDArray[np.int64],
    ratio: str,
    cap: float | None,
) -> NDArray[np.float64]:
    """Truncated importance weight [n] between engine and learner, over the unit of the ratio:
    min(exp(gap), cap); 1 without a cap.

    gap [n] = learner's less engine's log-probability of a token, both before the update.  (verl's
    TIS; cap 2 is usual.)

    >>> turn, part = np.array([0, 1]), np.array([0, 0])
    >>> truncated_weight(np.log([1.5, 4.0]), turn, part, "token", 2.0).round(6).tolist()
    [1.5, 2.0]
    """
    if cap is None:
        return np.ones(len(gap))
    # over the unit of the loss's own ratio: the two multiply, and must speak of one event
    if ratio != "token":
        _, unit, length = np.unique(
            part if ratio.startswith("episode") else turn, return_inverse=True, return_counts=True
        )
        drift = np.bincount(unit, gap).astype(np.float64)
        gap = np.asarray((drift / length if ratio.endswith("mean") else drift)[unit], np.float64)
    return np.asarray(np.minimum(np.exp(gap), cap))


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
        assert self.group is not None
        return Pairs.of(self.advantage, self.part, self.group)

    def weights(self, how: LossSettings, longest: int) -> NDArray[np.float64]:
        return token_weights(self.turn, how.aggregation, self.part, longest)


def start_of(episode: Episode) -> str:
    """The name of a start: all plays with it can be compared with each other."""
    return episode.group or str(episode.id)
