"""The moves of the games that are played by up, down, left and right."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gem_ma.scenarios.games.solo import Form

DIRECTIONS = ("up", "down", "left", "right")
STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
FORM = Form("(up|down|left|right)")


@lru_cache(maxsize=64)
def _listed(possible: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in DIRECTIONS if name in possible)


def listed(possible: Iterable[str]) -> tuple[str, ...]:
    """These directions in their usual order: the same tuple each time, which is checked once."""
    return _listed(frozenset(possible))
