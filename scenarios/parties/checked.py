"""Options of worlds for many agents, and what is measured in several of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gem_ma import Turn
from gem_ma.kernel.errors import ConfigError


def whole(name: str, value: object, least: int, most: int) -> int:
    """An option that is a whole number from `least` to `most`. Raises ConfigError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"scenario.{name}: a whole number from {least} to {most}; got {value!r}")
    return value


def flag(name: str, value: object) -> bool:
    """An option that is true or false. Raises ConfigError."""
    if not isinstance(value, bool):
        raise ConfigError(f"scenario.{name}: true or false; got {value!r}")
    return value


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """An option that is one of these words. Raises ConfigError."""
    if value not in choices:
        raise ConfigError(f"scenario.{name}: one of {', '.join(choices)}; got {value!r}")
    return value


def rounds_of(turns: Iterable[Turn]) -> list[dict[str, Turn]]:
    """Turns of agents who all act once a round, by round and agent; of an unfinished round nothing.

    By their order and not by their step: what stands around the rules may ask one of them again,
    whose act is then of a later step than those of the others.
    """
    acts: dict[str, list[Turn]] = {}
    for turn in turns:
        acts.setdefault(turn.agent, []).append(turn)
    rounds = zip(*acts.values(), strict=False)
    return [dict(zip(acts, together, strict=True)) for together in rounds]


def equality(values: Iterable[float]) -> float | None:
    """1 - Gini of amounts of 0 or more: 1 where all have the same, 1/n where one of n has all;
    None where nobody has anything."""
    ordered = sorted(values)
    total = sum(ordered)
    if not total:
        return None
    # the i-th smallest is the larger one of i pairs and the smaller one of the others
    count = len(ordered)
    apart = sum((2 * place + 1 - count) * value for place, value in enumerate(ordered))
    return 1.0 - apart / (count * total)
