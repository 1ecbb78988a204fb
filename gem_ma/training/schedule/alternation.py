"""Which policies learn at a step, and with which settings each: schedules over learners, not
another loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.config.document import Document, Place, dotted
from gem_ma.config.playing import Settings
from gem_ma.config.schema import validate
from gem_ma.config.training import TrainSettings
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
        # a function of the step alone, so a resume has no state of whose turn it is
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
