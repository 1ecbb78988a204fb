"""Which policies learn at a step, and with which settings, rate and discounts each: functions of
the config and the step alone, so a resumed run has nothing to remember."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gem_ma.config.document import Document, Place, dotted
from gem_ma.config.learning import SCHEDULE
from gem_ma.config.playing import Settings
from gem_ma.config.schema import validate
from gem_ma.config.training import TrainSettings
from gem_ma.credit import Gamma, discount_of
from gem_ma.kernel.errors import ConfigError

SECTIONS = ("credit", "estimator", "loss", "critic")


def learning(settings: TrainSettings, step: int) -> tuple[str, ...]:
    """The policies that learn at a step (from 0), in the order of `train.policies`.

    Those of `train.alternate` take turns in the order written there, round and round; all others
    learn at every step.

    >>> names = ["user", "assistant", "judge"]
    >>> both = TrainSettings(policies=names, alternate={"user": 2, "assistant": 1})
    >>> [learning(both, step)[0] for step in range(6)]
    ['user', 'user', 'assistant', 'user', 'user', 'assistant']
    """
    turn = None
    if settings.alternate:
        left = step % sum(settings.alternate.values())
        for name, steps in settings.alternate.items():
            turn = name
            if left < steps:
                break
            left -= steps
    return tuple(
        name for name in settings.policies if name == turn or name not in settings.alternate
    )


def settings_of(settings: TrainSettings, policy: str) -> TrainSettings:
    """The settings with what `train.per_policy` says otherwise of this policy. Raises ConfigError
    naming the key.

    Keys of a section replace single keys of the common one; an estimator that is named there
    begins with its own defaults.
    """
    special = settings.per_policy.get(policy)
    if special is None:
        return settings
    changed: dict[str, Any] = {
        name: value
        for name in ("lr", "lr_final", "lr_warmup", "max_policy_lag")
        if (value := getattr(special, name)) is not None  # 0 is a value: lr_warmup may be 0
    }
    for section in SECTIONS:
        if changes := getattr(special, section):
            common: Settings = getattr(settings, section)
            # options and keys of one estimator mean nothing to another
            base = {} if section == "estimator" and "name" in changes else common.model_dump()
            changed[section] = _merged(
                type(common), base, changes, f"train.per_policy.{policy}.{section}"
            )
    # a copy without validation: what could be wrong was checked by `_merged`
    return settings.model_copy(update=changed)


def _merged(
    model: type[Settings], base: dict[str, Any], changes: Mapping[str, Any], where: str
) -> Settings:
    """The base with these changes, validated. Raises ConfigError naming the key."""
    # by the reader of configs, so that the message is the one that the common section would get
    document = Document({**base, **changes}, {(): Place(where)})
    merged = validate(document, model)
    if merged is None:
        fault = document.faults[0]  # one at a time: the first may well cause the others
        raise ConfigError(f"{where}.{dotted(fault.path)}: {fault.text}")
    return merged


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
    return isinstance(gamma, Mapping) and bool(SCHEDULE & gamma.keys())


def logged(gamma: Gamma, agents: list[str]) -> float | dict[str, float]:
    """A step's discount for the record: one number where all agents share it, else one for each
    of these."""
    if not isinstance(gamma, Mapping):
        return gamma
    return {agent: discount_of(gamma, agent) for agent in agents}


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of a step (from 0): from lr to lr_final * lr, along a line or half a
    cosine, times a linear rise over the first lr_warmup steps."""
    passed = step / max(1, settings.steps - 1)
    if settings.lr_decay == "cosine":
        passed = (1 - math.cos(math.pi * passed)) / 2
    share = 1 + (settings.lr_final - 1) * passed
    # step + 1: a rate of 0 at step 0 would play that step for nothing
    return settings.lr * share * min(1.0, (step + 1) / max(1, settings.lr_warmup))
