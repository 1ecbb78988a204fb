"""A lesson: what one policy learns from at one step. Made by `gem_ma.training.loop.updates`; a
`Step` holds one for each policy whose turn it is."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from gem_ma.config.training import TrainSettings
from gem_ma.credit.table import TurnTable


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy learns from at a step."""

    policy: str
    settings: TrainSettings  # with what `train.per_policy` says of this policy
    gamma: Any  # the discount, or one by agent, that made the returns of `turns`
    turns: TurnTable
    numbers: dict[str, Any]  # logged, whatever the update adds
    step: int  # from 0
    rng: random.Random  # its own: what others draw beside it must not change its minibatches
    lr: float  # of this step, schedule and brake applied
    stale: bool  # all its episodes are too old, so it learns nothing
    warning: str | None  # for the user
