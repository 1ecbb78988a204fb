"""The rates of a step: how fast it learns, and the discount of each agent. `train.credit.gamma` is
a number or a schedule, for all
agents together or for each by name.

A schedule is a function of the step alone, so a run that goes on from a checkpoint has nothing
to remember.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gem_ma.config.learning import SCHEDULE
from gem_ma.config.training import TrainSettings
from gem_ma.credit import Gamma, discount_of


def discounts(gamma: Any, step: int) -> Gamma:
    """The discounts of a step (from 0): `gamma` of the config, with its schedules evaluated.

    A schedule is linear from `from` at step 0 to `to` at its last step, `steps` - 1, and stays
    there.

    >>> [round(discounts({"from": 0.9, "to": 1.0, "steps": 3}, step), 3) for step in range(4)]
    [0.9, 0.95, 1.0, 1.0]
    >>> discounts({"assistant": {"from": 0.5, "to": 0.0, "steps": 2}, "user": 1.0}, 1)
    {'assistant': 0.0, 'user': 1.0}
    """
    if isinstance(gamma, Mapping) and not is_schedule(gamma):
        return {agent: _value_at(part, step) for agent, part in gamma.items()}
    return _value_at(gamma, step)


def _value_at(gamma: Any, step: int) -> float:
    if not isinstance(gamma, Mapping):
        return float(gamma)
    # the last of n steps is n - 1; the config refuses a schedule of one step
    share = min(1.0, step / (gamma["steps"] - 1))
    # a weighted sum, since from + share * (to - from) misses `to` by a rounding
    return float((1 - share) * gamma["from"] + share * gamma["to"])


def is_schedule(gamma: Any) -> bool:
    """Whether a mapping is a schedule, not one discount per agent."""
    return isinstance(gamma, Mapping) and bool(SCHEDULE & gamma.keys())


def logged(gamma: Gamma, agents: list[str]) -> float | dict[str, float]:
    """A step's discount for the record: one number where all agents share it, else one for each
    of these."""
    return (
        {agent: discount_of(gamma, agent) for agent in agents}
        if isinstance(gamma, Mapping)
        else gamma
    )


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of a step (from 0): from lr to lr_final * lr, along a line or half a
    cosine, times a linear rise over the first lr_warmup steps."""
    passed = step / max(1, settings.steps - 1)
    if settings.lr_decay == "cosine":
        passed = (1 - math.cos(math.pi * passed)) / 2
    share = 1 + (settings.lr_final - 1) * passed
    # step + 1: a rate of 0 at step 0 would play that step for nothing
    return settings.lr * share * min(1.0, (step + 1) / max(1, settings.lr_warmup))
