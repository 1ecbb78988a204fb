"""The policy-gradient loss over trained tokens, as pure functions: for language models and tables
alike, so a new loss is one function here.

Axis: n trained tokens. `turn` names the turn of each token, `part` one agent's part in one episode.
The loss of one optimiser step is

    loss = - sum_t w_t v_t surrogate(rho_t, A_t)  -  c * mean_t H_t  +  b * mean_t d(policy ||
    reference)

with rho_t = exp(logprob_t - old_t) and weights w_t by aggregation (`token_weights`), counted
over the whole step, so micro-batches add up to the step as one batch would. v_t = min(exp(old_t
- sampled_t), C) corrects for an engine whose numbers differ from the learner's (truncated
importance sampling); without C it is 1.

A surrogate is written in operations that tensors and `Slope` share. The torch learner calls it on
the tokens of a chunk and differentiates it backwards; `pull` calls it on all tokens of a step in
numpy and gives the gradient itself, which tables use, and torch where a ratio is of a whole turn or
episode. d is one of `DIVERGENCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings, Ratio
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.pairs import PAIRED, pair_pull
from gem_ma.training.learner.sampled import Sampled
from gem_ma.training.learner.slopes import Pull, Slope

# The loss of a step whose importance ratio is of whole turns or episodes, in numpy; see
# `gem_ma.training.learner.losses`, which knows what is maximised of a ratio.

RATIOS: tuple[str, ...] = get_args(Ratio)


def unit_pull(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    advantage: NDArray[np.float64],
    turn: NDArray[np.int64],
    part: NDArray[np.int64],
    ratio: str,
    clip: Any,
    objective: Callable[[Any, Any, Any, Any], tuple[Any, Any]],
) -> Pull:
    """The loss with one ratio per turn or per episode; a token is clipped where its turn is.

    Each turn u counts once: loss = - mean_u surrogate(rho_u, A_u). turn_sum: rho = exp(sum over
    the turn's tokens of new - old), the exact ratio of the action; turn_mean: its geometric mean
    per token, as in GSPO (arXiv 2507.18071); episode: the ratio of all tokens of the agent's
    `part` [n] in the episode; episode_mean: its geometric mean per token, GSPO over the whole
    conversation. Raises ConfigError.
    """
    if ratio not in RATIOS[1:]:
        raise ConfigError(
            f"no unit ratio is called {ratio!r}; unit ratios are {', '.join(RATIOS[1:])}"
        )
    _, first, turn_of = np.unique(turn, return_index=True, return_inverse=True)
    whole = ratio.startswith("episode")
    unit = np.unique(part, return_inverse=True)[1] if whole else turn_of
    drift: NDArray[np.float64] = np.bincount(unit, new - old).astype(np.float64)
    length = np.bincount(unit) if ratio.endswith("mean") else np.ones(len(drift))
    drift = drift / length
    drift_of_turn = drift[unit[first]]  # [u]: turns of one episode may share a ratio
    gain, cut = objective(Slope.of(drift_of_turn), np.zeros(len(first)), advantage[first], clip)
    count = max(len(first), 1)
    # a token of an episode's ratio moves the ratio of every turn in it
    per_unit = np.bincount(unit[first], gain.slope / count, len(drift)) / length
    slope = per_unit[unit]
    return Pull(np.asarray(-slope, np.float64), -float(gain.value.sum()) / count, cut[turn_of])


class Clip(NamedTuple):
    """How far a ratio may go: down to 1 - low, up to 1 + high."""

    low: float
    high: float

    @classmethod
    def of(cls, how: LossSettings) -> Clip:
        """The clip of a config."""
        high = how.clip if how.clip_high is None else how.clip_high
        return cls(how.clip, high)


# (logprobs, old, advantages, clip), all [n] but the last -> (objective [n] to be maximised, whether
# a token is clipped [n]). Of a ratio of whole turns, `logprobs` is what a turn's moved by, `old` 0.
Surrogate = Callable[[Any, Any, Any, Clip], tuple[Any, Any]]


def clipped(logprobs: Any, old: Any, advantages: Any, clip: Clip) -> tuple[Any, Any]:
    """min(rho A, clip(rho, 1 - low, 1 + high) A) with rho = exp(logprobs - old), of PPO (arXiv
    1707.06347, eq. 7): no token gains by going further than the clip. A `high` above `low` is of
    DAPO (arXiv 2503.14476): a rare token may rise further than a likely one may fall."""
    ratio = (logprobs - old).exp()
    # a minimum, not the clipped one alone: a token that has gone the wrong way is still pulled back
    free = ratio * advantages
    bound = ratio.clamp(1 - clip.low, 1 + clip.high) * advantages
    return free.minimum(bound), bound < free


def cispo(logprobs: Any, old: Any, advantages: Any, clip: Clip) -> tuple[Any, Any]:
    """sg(min(rho, 1 + high)) A logprob, of MiniMax-M1 (arXiv 2506.13585, eq. 4 and 5): the weight
    is clipped and no gradient goes through it, so that a clipped token is still learned from.
    There is no bound below, as in the paper."""
    ratio = (logprobs - old).exp().detach()
    return ratio.clamp(max=1 + clip.high) * advantages * logprobs, ratio > 1 + clip.high


def none(logprobs: Any, old: Any, advantages: Any, clip: Clip) -> tuple[Any, Any]:
    """0: what was paid teaches nothing. The divergence alone is learned from, as in on-policy
    distillation (arXiv 2306.13649), or the entropy bonus."""
    return logprobs * 0.0, advantages != advantages


SURROGATES: dict[str, Surrogate] = {"clipped": clipped, "cispo": cispo, "none": none}


def whole(how: LossSettings) -> bool:
    """Whether a token's pull depends on other tokens than itself, so that a chunk is not enough."""
    return how.ratio != "token" or how.surrogate in PAIRED


def surrogate(name: str) -> Surrogate:
    """A surrogate by name. Raises ConfigError."""
    if name not in SURROGATES:
        raise ConfigError(
            f"no surrogate is called {name!r}; surrogates are {', '.join((*SURROGATES, *PAIRED))}"
        )
    return SURROGATES[name]


def token_pull(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    advantage: NDArray[np.float64],
    weight: NDArray[np.float64],
    clip: Clip,
    objective: Surrogate = clipped,
) -> Pull:
    """The loss with a ratio per token, of weight [n] each (`token_weights`)."""
    gain, cut = objective(Slope.of(new), old, advantage, clip)
    return Pull(-gain.slope * weight, -float((gain.value * weight).sum()), cut)


def pull(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    tokens: Sampled,
    how: LossSettings,
    longest: int,
    anchor: NDArray[np.float64] | None = None,
) -> Pull:
    """What a whole step is pulled by, under any ratio. `longest`: the token limit of a turn.
    `anchor` [n]: log-probabilities of the reference, for losses of pairs."""
    if how.surrogate in PAIRED:
        assert anchor is not None
        return pair_pull(how.surrogate, new - anchor, tokens.pairs(), how.pair_beta)
    worth = tokens.worth(old, how)
    clip = Clip.of(how)
    objective = surrogate(how.surrogate)
    if how.ratio == "token":
        return token_pull(new, old, worth, tokens.weights(how, longest), clip, objective)
    return unit_pull(new, old, worth, tokens.turn, tokens.part, how.ratio, clip, objective)


# How far two policies are apart, by their log-probabilities: tensors, `Slope` or numpy alike where
# an operation allows it. The estimators are those of http://joschu.net/blog/kl-approx.html.


def k3(sampled_from: Any, other: Any) -> Any:
    """Estimate [n] of KL(sampled_from || other) from log-probabilities, tensors or `Slope`: exp(d)
    - d - 1 with d = other - sampled_from. By expm1 it is never negative, however small d is."""
    difference = other - sampled_from  # d; its expectation under `sampled_from` is -KL
    return difference.expm1() - difference


def k2(sampled_from: Any, other: Any) -> Any:
    """d^2 / 2 [n] with d = sampled_from - other: its gradient is d times that of the policy's
    log-probability, whose mean over what the policy sampled is the gradient of KL(policy || other)
    itself. That of `k3` is in the mean the gradient of KL(other || policy)."""
    difference = sampled_from - other
    return difference * difference / 2


DIVERGENCES: dict[str, Callable[[Any, Any], Any]] = {"k3": k3, "k2": k2}


def entropy(logprobs: Any) -> Any:
    """Entropy [n] in nats of distributions given as log-probabilities [n, V]; -inf (an id that
    is never sampled) counts 0."""
    return -(logprobs.exp() * logprobs.clamp(min=-1e30)).sum(-1)
