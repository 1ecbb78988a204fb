"""Rewards that are changed on their way into the ledger, payment by payment.

An entry keeps what the rules paid beside what it became (`Entry.original`), so that success and
measures are those of the rules.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from math import copysign, isfinite
from typing import Any

from gem_ma.kernel.effects import Ask, Effect, Leave, Play, Reward, Scenario, amount
from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import construct
from gem_ma.wrappers.around import Around, layers_of, relay


def reward(inner: Scenario, sort: str = "", **transform: Any) -> Scenario:
    """One transform, by its name: `sign`, `final`, `scale: 0.5`, `clip: [-1, 1]` or
    `per_step: -0.01`."""
    if not isinstance(sort, str):
        raise ConfigError(
            f"reward: a transform has a name, of {', '.join(TRANSFORMS)}; got {sort!r}"
        )
    transforms = {**({sort: None} if sort else {}), **transform}
    if len(transforms) != 1:
        raise ConfigError(
            "reward: one transform an entry, since their order matters; got"
            f" {', '.join(transforms) or 'none'}"
        )
    [(name, value)] = transforms.items()
    if name not in TRANSFORMS:
        raise ConfigError(f"reward: there is no {name!r}; there are {', '.join(TRANSFORMS)}")
    values = [] if value is None else [value]
    made: Scenario = construct(f"reward: {name}", TRANSFORMS[name], inner, *values)
    return made


class Changed(Around):
    """Each payment becomes another one."""

    def changed(self, value: float) -> float:
        """What a payment of this value becomes."""
        return value

    def play(self, rng: random.Random, task: Any) -> Play:
        return relay(self.played(rng, task), self._handled)

    def _handled(self, effect: Effect) -> Generator[Any, Any, Any]:
        if (values := _values(effect)) is None:
            return (yield effect)
        new = {agent: self.changed(value) for agent, value in values.items()}
        return (yield Reward(new, effect.why, _original(effect, values)))  # type: ignore[union-attr]


class Scale(Changed):
    """Each payment times a number."""

    def __init__(self, inner: Scenario, by: float) -> None:
        if not _number(by) or by == 0:
            raise ConfigError(f"reward: scale is a number other than 0; got {by!r}")
        super().__init__(inner)
        self.by = float(by)
        self.pays_otherwise(alike=True)

    def changed(self, value: float) -> float:
        return value * self.by


class Clip(Changed):
    """Each payment brought between two bounds."""

    def __init__(self, inner: Scenario, bounds: Any) -> None:
        fits = isinstance(bounds, (list, tuple)) and len(bounds) == 2 and all(map(_number, bounds))
        if not fits or not bounds[0] < bounds[1]:
            raise ConfigError(f"reward: clip is [low, high], low below high; got {bounds!r}")
        super().__init__(inner)
        self.low = float(bounds[0])
        self.high = float(bounds[1])
        # of three agents, or in two payments, what added up to 0 need not do so any more
        self.pays_otherwise()

    def changed(self, value: float) -> float:
        return min(max(value, self.low), self.high)


class Sign(Changed):
    """Of each payment its sign alone: -1, 0 or 1."""

    def __init__(self, inner: Scenario) -> None:
        super().__init__(inner)
        self.pays_otherwise()

    def changed(self, value: float) -> float:
        return copysign(1.0, value) if value else 0.0


class PerStep(Around):
    """A payment more for each turn of an agent; a cost where it is negative."""

    def __init__(self, inner: Scenario, value: float) -> None:
        if not _number(value):
            raise ConfigError(f"reward: per_step is a number; got {value!r}")
        super().__init__(inner)
        self.value = float(value)
        self.pays_otherwise()

    def play(self, rng: random.Random, task: Any) -> Play:
        return relay(self.played(rng, task), self._handled)

    def _handled(self, effect: Effect) -> Generator[Any, Any, Any]:
        answer = yield effect
        if isinstance(effect, Ask):
            values = dict.fromkeys(effect.to, self.value)
            yield Reward(values, "wrapper: step", dict.fromkeys(effect.to, 0.0))
        return answer


class Final(Around):
    """Nothing is paid until an agent's part ends; then the sum of all. A play that a limit cuts
    pays nothing."""

    def __init__(self, inner: Scenario) -> None:
        if any(isinstance(layer, Final) for layer in layers_of(inner)):
            raise ConfigError("reward: final stands around final: write one")
        super().__init__(inner)

    def play(self, rng: random.Random, task: Any) -> Play:
        owed: dict[str, float] = {}

        def handled(effect: Effect) -> Generator[Any, Any, Any]:
            if (values := _values(effect)) is not None:
                for agent, value in values.items():
                    owed[agent] = owed.get(agent, 0.0) + value
                none = dict.fromkeys(values, 0.0)
                return (yield Reward(none, effect.why, _original(effect, values)))  # type: ignore[union-attr]
            # who has left is never paid again
            if isinstance(effect, Leave) and effect.agent in owed:
                yield _sum({effect.agent: owed.pop(effect.agent)})
            return (yield effect)

        yield from relay(self.played(rng, task), handled)
        if owed:
            yield _sum(owed)


TRANSFORMS = {"scale": Scale, "clip": Clip, "sign": Sign, "per_step": PerStep, "final": Final}


def _sum(owed: Mapping[str, float]) -> Reward:
    return Reward(dict(owed), "wrapper: sum", dict.fromkeys(owed, 0.0))


def _values(effect: Effect) -> dict[str, float] | None:
    """What a Reward pays; None for another effect, and for one that the kernel will refuse."""
    if not isinstance(effect, Reward) or not isinstance(effect.values, Mapping):
        return None
    try:
        return {agent: amount(value) for agent, value in effect.values.items()}
    except ValueError:
        return None


def _original(effect: Any, values: Mapping[str, float]) -> Mapping[str, float]:
    """What the rules paid: a wrapper further in may have changed it already."""
    return values if effect.original is None else effect.original


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
