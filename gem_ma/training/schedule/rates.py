"""How fast a step of a training learns, as a function of the config alone."""

from __future__ import annotations

import math

from gem_ma.config.training import TrainSettings


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of a step (from 0): from lr to lr_final * lr, along a line or half a
    cosine, times a linear rise over the first lr_warmup steps."""
    passed = step / max(1, settings.steps - 1)
    if settings.lr_decay == "cosine":
        passed = (1 - math.cos(math.pi * passed)) / 2
    share = 1 + (settings.lr_final - 1) * passed
    # step + 1: a rate of 0 at step 0 would play that step for nothing
    return settings.lr * share * min(1.0, (step + 1) / max(1, settings.lr_warmup))
