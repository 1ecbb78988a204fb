"""A lesson: what one policy learns from at one step. Made by `gem_ma.training.loop.updates`; a
`Step` holds one for each policy whose turn it is."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from gem_ma.config.training import TrainSettings
from gem_ma.turn_table import TurnTable


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy learns from at a step, which counts from 0.

    `numbers` are logged. `stale`: it has only episodes that are too old, so it learns nothing.
    """

    policy: str
    settings: TrainSettings
    gamma: Any
    turns: TurnTable
    numbers: dict[str, Any]
    step: int
    rng: random.Random
    lr: float
    stale: bool
    warning: str | None
