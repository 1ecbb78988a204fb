"""The loss of a step whose importance ratio is of whole turns or episodes, in numpy; see
`gem_ma.training.learner.losses`, which knows what is maximised of a ratio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import Ratio
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.slopes import Pull, Slope

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
