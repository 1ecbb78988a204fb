"""The clipped policy-gradient loss over trained tokens, as pure functions; torch is imported by the
caller's tensors.

Axis: n trained tokens. `turn` names the turn of each token, `part` one agent's part in one episode.
The loss of one optimiser step is

    loss = - sum_t w_t v_t min(rho_t A_t, clip(rho_t, 1 - e, 1 + e) A_t)  -  c * mean_t H_t  +  b *
    mean_t k3(policy || reference)

with rho_t = exp(logprob_t - old_t) and weights w_t by aggregation (`token_weights`), counted
over the whole step, so micro-batches add up to the step as one batch would. v_t = min(exp(old_t
- sampled_t), C) corrects for an engine whose numbers differ from the learner's (truncated
importance sampling); without C it is 1. `unit_pull` is the loss where the ratio is of a whole
turn or episode. The objective is PPO's (arXiv 1707.06347, eq. 7); turn_mean is the ratio of GSPO
(arXiv 2507.18071); k3 is the estimator of http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.errors import ConfigError

AGGREGATIONS = ("turn_sum", "token_mean", "turn_mean", "constant", "episode_sum")
RATIOS = ("token", "turn_sum", "turn_mean", "episode")


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
    if aggregation == "turn_sum":
        return np.full(len(turn), 1.0 / max(len(counts), 1))
    if aggregation == "token_mean":
        return np.full(len(turn), 1.0 / max(len(turn), 1))
    if aggregation == "turn_mean":
        return np.asarray(1.0 / (len(counts) * counts[index]), np.float64)
    if aggregation == "constant":
        return np.full(
            len(turn), 1.0 / (max(len(counts), 1) * (longest or int(counts.max(initial=1))))
        )
    if aggregation == "episode_sum":
        return np.full(len(turn), 1.0 / max(len(np.unique(turn if part is None else part)), 1))
    raise ConfigError(
        f"no aggregation is called {aggregation!r}; aggregations are {', '.join(AGGREGATIONS)}"
    )


def clipped(logprobs: Any, old: Any, advantages: Any, clip: float) -> tuple[Any, Any]:
    """(objective [n] to be maximised, whether the clipped branch is the one that counts [n])."""
    ratio = (logprobs - old).exp()
    free, bound = ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    return free.minimum(bound), bound < free


def unit_pull(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    advantage: NDArray[np.float64],
    turn: NDArray[np.int64],
    part: NDArray[np.int64],
    ratio: str,
    clip: float,
) -> tuple[NDArray[np.float64], float, NDArray[np.bool_]]:
    """The loss with one ratio per turn or per episode: (d loss / d logprob [n], loss, whether the
    turn of a token is clipped [n]).

    Each turn u counts once: loss = - mean_u min(rho A_u, clip(rho) A_u). turn_sum: rho = exp(sum
    over the turn's tokens of new - old), the exact ratio of the action; turn_mean: its geometric
    mean per token; episode: the ratio of all tokens of the agent's `part` [n] in the episode.
    Raises ConfigError.
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
    rho = np.exp(drift)[unit[first]]  # [u]
    worth = advantage[first]
    free, bound = rho * worth, np.clip(rho, 1 - clip, 1 + clip) * worth
    cut = bound < free
    count = max(len(first), 1)
    own = np.where(cut, 0.0, free) * scale / count
    pull = np.bincount(unit[first], own, len(drift))[unit] if ratio == "episode" else own[turn_of]
    return (
        np.asarray(-pull, np.float64),
        -float(np.minimum(free, bound).sum()) / count,
        cut[turn_of],
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

    >>> truncated_weight(np.log([1.5, 4.0]), np.array([0, 1]), np.array([0, 0]), "token", 2.0).round(6).tolist()
    [1.5, 2.0]
    """
    if cap is None:
        return np.ones(len(gap))
    if ratio != "token":
        _, unit, length = np.unique(
            part if ratio == "episode" else turn, return_inverse=True, return_counts=True
        )
        drift = np.bincount(unit, gap).astype(np.float64)
        gap = np.asarray((drift / length if ratio == "turn_mean" else drift)[unit], np.float64)
    return np.asarray(np.minimum(np.exp(gap), cap))


def k3(sampled_from: Any, other: Any) -> Any:
    """Estimate [n] of KL(sampled_from || other), never negative: exp(d) - d - 1 with d = other -
    sampled_from."""
    difference = other - sampled_from
    return difference.expm1() - difference


def entropy(logprobs: Any) -> Any:
    """Entropy [n] in nats of distributions given as log-probabilities [n, V]; -inf (an id that
    is never sampled) counts 0."""
    return -(logprobs.exp() * logprobs.clamp(min=-1e30)).sum(-1)
