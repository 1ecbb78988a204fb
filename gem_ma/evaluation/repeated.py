"""Resampling thousands of values of which only a few differ, such as the -1, 0 and 1 of a success:
what counts is how often each is drawn. Axes: T tasks, V different values, B resamples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MANY = 1_000  # tasks; below, drawing them one by one costs little
FEW = 100  # different values; with more of them nothing is gained


def repeats(values: Floats) -> bool:
    """Whether the functions below are worth it for these values [T]."""
    return len(values) > MANY and len(np.unique(values)) <= FEW


def resampled_means(values: Floats, resamples: int, seed: int) -> Floats:
    """The means [B] of resamples of the values [T]."""
    distinct, counts = np.unique(values, return_counts=True)
    # T draws out of T tasks are one multinomial draw over what the tasks are worth
    drawn = np.random.default_rng(seed).multinomial(len(values), counts / len(values), resamples)
    return np.asarray(drawn @ distinct / len(values))


def flipped_sums(values: Floats, resamples: int, seed: int) -> Floats:
    """The sums [B] of the values [T] with random signs."""
    sizes, counts = np.unique(np.abs(values), return_counts=True)
    # of c equal sizes k are added and c - k taken away
    added = np.random.default_rng(seed).binomial(counts, 0.5, (resamples, len(counts)))
    return np.asarray((2 * added - counts) @ sizes)
