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
episode. d is one of `divergences.DIVERGENCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.pairs import PAIRED, pair_pull
from gem_ma.training.learner.sampled import Sampled
from gem_ma.training.learner.slopes import Pull, Slope
from gem_ma.training.learner.unit_ratios import unit_pull


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
