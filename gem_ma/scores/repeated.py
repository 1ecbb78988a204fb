"""Flipping the signs of thousands of values of which only a few differ, such as the -1, 0 and 1 of
a success: what counts is how often each is flipped. Axes: T tasks, B resamples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MANY = 1_000  # tasks; below, drawing them one by one costs little
FEW = 100  # different values; with more of them nothing is gained


def repeats(values: Floats) -> bool:
    """Whether the function below is worth it for these values [T]."""
    return len(values) > MANY and len(np.unique(values)) <= FEW


def flipped_sums(values: Floats, resamples: int, seed: int) -> Floats:
    """The sums [B] of the values [T] with random signs."""
    sizes, counts = np.unique(np.abs(values), return_counts=True)
    # of c equal sizes k are added and c - k taken away
    added = np.random.default_rng(seed).binomial(counts, 0.5, (resamples, len(counts)))
    return np.asarray((2 * added - counts) @ sizes)
