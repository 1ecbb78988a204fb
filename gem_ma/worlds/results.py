"""What the environments of users give, checked as it comes in: a fault is one line that says what
is missing, and no error from some place further on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from operator import index
from typing import Any

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")


def parts(result: Any, names: tuple[str, ...], where: str) -> tuple[Any, ...]:
    """The values of a reset or a step. Raises TypeError where they are not as many as their names:
    the interface of before 2022 had one and four."""
    if isinstance(result, (tuple, list)) and len(result) == len(names):
        return tuple(result)
    count = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
    raise TypeError(f"{where}() gave {count}; it has to give {', '.join(names)}")


def begun(env: Any, seed: int) -> tuple[Any, Mapping[str, Any]]:
    """The observation and the info of a reset."""
    seen, info = parts(env.reset(seed=seed), RESET, "reset")
    return seen, noted(info)


def noted(info: Any) -> Mapping[str, Any]:
    """An info; {} for what is none."""
    return info if isinstance(info, Mapping) else {}


def amount(paid: Any) -> float:
    """A reward as a number, an array of one too. Raises TypeError for another."""
    with suppress(TypeError, ValueError, RuntimeError):  # numpy's and torch's, of more than one
        if not isinstance(paid, (str, bytes)):
            return float(paid.item() if hasattr(paid, "item") else paid)
    line = " ".join(repr(paid).split())[:80]
    raise TypeError(f"a reward has to be a number; step() gave {line}")


def flag(value: Any, name: str) -> bool:
    """Whether a step says that the play is over. Raises TypeError for anything that is not an
    answer."""
    with suppress(ValueError, RuntimeError):
        if not isinstance(value, (Mapping, str)):
            return bool(value)
    raise TypeError(f"{name} has to be true or false; step() gave {type(value).__name__}")


def step_limit(env: Any, spec: Any, typed: int | None) -> int | None:
    """The steps after which a play is cut: as typed, else as declared. A wrapper TimeLimit holds
    whatever is typed, since the environment does not go on behind it."""
    wrapped = math.inf
    layer = env
    while layer is not None:
        within = vars(layer) if hasattr(layer, "__dict__") else {}
        wrapped = min(wrapped, _steps(within.get("_max_episode_steps")))
        layer = within.get("env")
    inner = getattr(env, "unwrapped", env)
    declared = (typed, getattr(spec, "max_episode_steps", None), getattr(inner, "max_steps", None))
    limits = [steps for steps in map(_steps, declared) if steps < math.inf]
    least = min(limits[0] if limits else math.inf, wrapped)
    return int(least) if least < math.inf else None


def _steps(declared: Any) -> float:
    """A limit that an environment declares; inf for what is none, as a word or a switch."""
    try:
        steps: float = index(declared)
    except TypeError:
        steps = declared if isinstance(declared, float) else 0
    good = steps >= 1 and not isinstance(declared, bool)  # false for NaN
    return steps if good else math.inf
