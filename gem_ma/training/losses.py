"""The clipped policy-gradient loss over trained tokens, as pure functions of tensors; torch is imported by the caller's tensors.

Axis: n trained tokens. `turn` names the turn of each token. The loss of one optimiser step is

    loss = - sum_t w_t min(rho_t A_t, clip(rho_t, 1 - e, 1 + e) A_t)  -  c * mean_t H_t ,     rho_t = exp(logprob_t - old_t)

with weights w_t by aggregation (`token_weights`), counted over the whole step, so micro-batches add up to the step as one batch would.
The objective is PPO's (arXiv 1707.06347, eq. 7); k3 is the estimator of http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.errors import ConfigError

AGGREGATIONS = ("turn_sum", "token_mean", "turn_mean")


def token_weights(turn: NDArray[np.int64], aggregation: str) -> NDArray[np.float64]:
    """Weight [n] of each trained token, given its turn [n].

    turn_sum: 1 / turns, the gradient of one action per turn. token_mean: 1 / tokens. turn_mean: 1 / (turns * tokens of the turn).

    >>> token_weights(np.array([0, 0, 1]), "turn_sum").tolist()
    [0.5, 0.5, 0.5]
    >>> token_weights(np.array([0, 0, 1]), "turn_mean").tolist()
    [0.25, 0.25, 0.5]
    """
    _, index, counts = np.unique(turn, return_inverse=True, return_counts=True)
    if aggregation == "turn_sum":
        return np.full(len(turn), 1.0 / max(len(counts), 1))
    if aggregation == "token_mean":
        return np.full(len(turn), 1.0 / max(len(turn), 1))
    if aggregation == "turn_mean":
        return np.asarray(1.0 / (len(counts) * counts[index]), np.float64)
    raise ConfigError(f"no aggregation is called {aggregation!r}; aggregations are {', '.join(AGGREGATIONS)}")


def clipped(logprobs: Any, old: Any, advantages: Any, clip: float) -> tuple[Any, Any]:
    """(objective [n] to be maximised, whether the clipped branch is the one that counts [n])."""
    ratio = (logprobs - old).exp()
    free, bound = ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    return free.minimum(bound), bound < free


def k3(sampled_from: Any, other: Any) -> Any:
    """Estimate [n] of KL(sampled_from || other), never negative: exp(d) - d - 1 with d = other - sampled_from."""
    difference = other - sampled_from
    return difference.expm1() - difference


def entropy(logprobs: Any) -> Any:
    """Entropy [n] in nats of distributions given as log-probabilities [n, V]; -inf (an id that is never sampled) counts 0."""
    return -(logprobs.exp() * logprobs.clamp(min=-1e30)).sum(-1)
