"""The average of all versions that a table published, in pure functions over its rows.

Version v has weight v times the agent's own reach of the view. That equals drawing one version per
episode (later ones are likelier) and playing it throughout. In self-play this average approaches an
equilibrium; the last iterate does not. It is exact because a view holds all that its agent saw and
did.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gem_ma.engines.small.table import Array, softmax
from gem_ma.kernel.types import Sampling

Path = tuple[tuple[int, int], ...]  # the agent's own (view key, choice) pairs that lead to a view
LEAST = 1e-300  # a probability of 0 has no logarithm


def accumulate(
    sums: dict[int, Array],
    weights: Mapping[int, Array],
    paths: Mapping[int, Path],
    version: int,
    sampling: Sampling,
) -> None:
    """Adds what these weights play, in place; `sums` hold version times reach times probabilities
    by view."""
    chances = {key: softmax(row, sampling) for key, row in weights.items()}
    for key, row in chances.items():
        # of the agent's own choices alone: those of others weigh all its versions alike
        reach = 1.0
        for view, choice in paths.get(key, ()):
            reach *= float(chances[view][choice])
        sums[key] = sums.get(key, 0.0) + version * reach * row


def averaged(weights: Mapping[int, Array], sums: Mapping[int, Array]) -> dict[int, Array]:
    """Logits that play the average; a view that no version reached keeps its present ones."""
    logits = {}
    for key, row in weights.items():
        total = sums.get(key)
        logits[key] = (
            row.copy()
            if total is None or not total.sum() > 0
            else np.log(np.maximum(total / total.sum(), LEAST))
        )
    return logits
