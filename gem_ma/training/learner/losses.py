"""The policy-gradient loss over trained tokens, as pure functions: for language models and tables
alike, so a new loss is one function here.

Axis: n trained tokens. `turn` names the turn of each token, `part` one agent's part in one episode.
The loss of one optimiser step is

    loss = - sum_t w_t v_t surrogate(rho_t, A_t)  -  c * mean_t H_t  +  b * mean_t k3(policy ||
    reference)

with rho_t = exp(logprob_t - old_t) and weights w_t by aggregation (`token_weights`), counted
over the whole step, so micro-batches add up to the step as one batch would. v_t = min(exp(old_t
- sampled_t), C) corrects for an engine whose numbers differ from the learner's (truncated
importance sampling); without C it is 1.

A surrogate is written in operations that tensors and `Slope` share. The torch learner calls it on
the tokens of a chunk and differentiates it backwards; `pull` calls it on all tokens of a step in
numpy and gives the gradient itself, which tables use, and torch where a ratio is of a whole turn or
episode. `k3` is the estimator of http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings, Ratio
from gem_ma.errors import ConfigError
from gem_ma.training.learner.slopes import Slope
from gem_ma.training.learner.token_weights import token_weights, truncated_weight

# (logprobs, old, advantages, clip), all [n] but the last -> (objective [n] to be maximised, whether
# a token is clipped [n]). Of a ratio of whole turns, `logprobs` is what a turn's moved by, `old` 0.
Surrogate = Callable[[Any, Any, Any, float], tuple[Any, Any]]
RATIOS: tuple[str, ...] = get_args(Ratio)


def clipped(logprobs: Any, old: Any, advantages: Any, clip: float) -> tuple[Any, Any]:
    """min(rho A, clip(rho, 1 - clip, 1 + clip) A) with rho = exp(logprobs - old), of PPO (arXiv
    1707.06347, eq. 7): no token gains by going further than the clip."""
    ratio = (logprobs - old).exp()
    # a minimum, not the clipped one alone: a token that has gone the wrong way is still pulled back
    free, bound = ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    return free.minimum(bound), bound < free


SURROGATES: dict[str, Surrogate] = {"clipped": clipped}


def surrogate(name: str) -> Surrogate:
    """A surrogate by name. Raises ConfigError."""
    if name not in SURROGATES:
        raise ConfigError(
            f"no surrogate is called {name!r}; surrogates are {', '.join(SURROGATES)}"
        )
    return SURROGATES[name]


class Pull(NamedTuple):
    """What a step does to each log-probability: d loss / d logprob [n]; the loss; and which tokens
    are clipped [n]."""

    slope: NDArray[np.float64]
    loss: float
    clipped: NDArray[np.bool_]


def token_pull(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    advantage: NDArray[np.float64],
    weight: NDArray[np.float64],
    clip: float,
    objective: Surrogate = clipped,
) -> Pull:
    """The loss with a ratio per token, of weight [n] each (`token_weights`)."""
    gain, cut = objective(Slope.of(new), old, advantage, clip)
    return Pull(-gain.slope * weight, -float((gain.value * weight).sum()), cut)


def unit_pull(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    advantage: NDArray[np.float64],
    turn: NDArray[np.int64],
    part: NDArray[np.int64],
    ratio: str,
    clip: float,
    objective: Surrogate = clipped,
) -> Pull:
    """The loss with one ratio per turn or per episode; a token is clipped where its turn is.

    Each turn u counts once: loss = - mean_u surrogate(rho_u, A_u). turn_sum: rho = exp(sum over
    the turn's tokens of new - old), the exact ratio of the action; turn_mean: its geometric mean
    per token, as in GSPO (arXiv 2507.18071); episode: the ratio of all tokens of the agent's
    `part` [n] in the episode. Raises ConfigError.
    """
    if ratio not in RATIOS[1:]:
        raise ConfigError(
            f"no unit ratio is called {ratio!r}; unit ratios are {', '.join(RATIOS[1:])}"
        )
    _, first, turn_of, length = np.unique(
        turn, return_index=True, return_inverse=True, return_counts=True
    )
    unit = turn_of if ratio != "episode" else np.unique(part, return_inverse=True)[1]
    drift: NDArray[np.float64] = np.bincount(unit, new - old).astype(np.float64)
    scale = np.ones(len(length))
    if ratio == "turn_mean":
        drift, scale = drift / length, 1.0 / length
    drift_of_turn = drift[unit[first]]  # [u]: turns of one episode may share a ratio
    gain, cut = objective(Slope.of(drift_of_turn), np.zeros(len(first)), advantage[first], clip)
    count = max(len(first), 1)
    share = gain.slope * scale / count
    # a token of an episode's ratio moves the ratio of every turn in it
    per_unit = np.bincount(unit[first], share, len(drift)) if ratio == "episode" else share
    slope = per_unit[unit]
    return Pull(np.asarray(-slope, np.float64), -float(gain.value.sum()) / count, cut[turn_of])


class Sampled(NamedTuple):
    """Trained tokens [n] as they were sampled: advantage, log-probability, turn and part."""

    advantage: NDArray[np.float64]
    logprob: NDArray[np.float64]
    turn: NDArray[np.int64]
    part: NDArray[np.int64]

    def take(self, index: NDArray[Any]) -> Sampled:
        """These tokens, by index or mask."""
        return Sampled(*(column[index] for column in self))

    def worth(self, old: NDArray[np.float64], how: LossSettings) -> NDArray[np.float64]:
        """The advantages [n], corrected for a sampler whose numbers are not the learner's `old`."""
        gap = old - self.logprob  # learner to engine; under overlap also newer to older weights
        return self.advantage * truncated_weight(gap, self.turn, self.part, how.ratio, how.tis)

    def weights(self, how: LossSettings, longest: int) -> NDArray[np.float64]:
        """See `token_weights`."""
        return token_weights(self.turn, how.aggregation, self.part, longest)


def pull(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    tokens: Sampled,
    how: LossSettings,
    longest: int,
) -> Pull:
    """What a whole step is pulled by, under any ratio. `longest`: the token limit of a turn."""
    worth, objective = tokens.worth(old, how), surrogate(how.surrogate)
    if how.ratio == "token":
        return token_pull(new, old, worth, tokens.weights(how, longest), how.clip, objective)
    return unit_pull(new, old, worth, tokens.turn, tokens.part, how.ratio, how.clip, objective)


def k3(sampled_from: Any, other: Any) -> Any:
    """Estimate [n] of KL(sampled_from || other) from log-probabilities, tensors or `Slope`: exp(d)
    - d - 1 with d = other - sampled_from. By expm1 it is never negative, however small d is."""
    difference = other - sampled_from  # d; its expectation under `sampled_from` is -KL
    return difference.expm1() - difference


def entropy(logprobs: Any) -> Any:
    """Entropy [n] in nats of distributions given as log-probabilities [n, V]; -inf (an id that
    is never sampled) counts 0."""
    return -(logprobs.exp() * logprobs.clamp(min=-1e30)).sum(-1)
