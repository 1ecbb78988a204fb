"""Plays that two runs have in common, and the difference between the two over them.

A play is known by its task and its seed, so what is compared had the same start. The difference
is taken within a play, and the task is the unit (`gem_ma.scores.stats`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from gem_ma.scores.copies import ONE_PLAY
from gem_ma.scores.stats import paired

Id = tuple[str, int, int]  # task, seed, repeat

# A comparison without a shared play.
NO_PAIR: Mapping[str, Any] = {
    **dict.fromkeys(
        ("difference", "low", "high", "p", "p_adjusted", "low_adjusted", "high_adjusted")
    ),
    "method": "none",
    "tasks": 0,
}


def by_play(values: Mapping[Id, float], paired_by: Sequence[str]) -> dict[tuple[Any, ...], float]:
    """The mean of the values that share a key; the task comes first in it."""
    seeded = "seed" in paired_by
    repeated = "repeat" in paired_by
    means: dict[tuple[Any, ...], float] = {}
    # most have one value, and ten thousand lists and means of one number take a tenth of a second
    several: dict[tuple[Any, ...], list[float]] = {}
    for (task, seed, repeat), value in values.items():
        # 0 stands for what is not paired by: all of it falls under one key, and is averaged
        key = (task, seed if seeded else 0, repeat if repeated else 0)
        if key in means:
            several.setdefault(key, [means[key]]).append(value)
        else:
            means[key] = value
    return means | {key: fmean(numbers) for key, numbers in several.items()}


def paired_difference(
    pairs: Sequence[tuple[tuple[Any, ...], float, float]],
    resamples: int,
    family: int,
    rate: bool,
) -> dict[str, Any]:
    """The second value of each pair less the first, as JSON values; the key of a pair names its
    play. `rate`: as in `gem_ma.scores.stats.paired`."""
    keys, before, after = zip(*pairs, strict=True)
    result = paired(before, after, _units(keys), resamples=resamples, family=family, rate=rate)
    return {
        "difference": result.difference,
        "low": finite(result.low),
        "high": finite(result.high),
        "p": result.p,
        "method": result.method,
        "tasks": result.tasks,
        "low_adjusted": finite(result.wide_low),
        "high_adjusted": finite(result.wide_high),
    }


def one_difference(pairs: Sequence[tuple[tuple[Any, ...], float, float]]) -> dict[str, Any]:
    """The same of two cells whose plays are copies of one each: a difference that nothing tests."""
    _, before, after = pairs[0]
    return {**NO_PAIR, "difference": after - before, "method": ONE_PLAY, "tasks": 1}


def _units(keys: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The independent unit of each key: its task, or its seed where there is one task only."""
    # with one task its seeds are all that is independent
    single = len({key[0] for key in keys}) == 1
    return [key[:2] if single else key[0] for key in keys]


def finite(value: float) -> float | None:
    """The number, or None where it is none that JSON can hold."""
    return value if math.isfinite(value) else None
