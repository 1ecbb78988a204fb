"""Options that several behaviours have."""

from __future__ import annotations

from typing import Any

from gem_ma.kernel.errors import ConfigError


def probability(agent: str, name: str, value: Any) -> float:
    """An option of a behaviour that is a number from 0 to 1. Raises ConfigError."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # a NaN is between no bounds
    if not number or not 0 <= value <= 1:
        raise ConfigError(f"agent {agent!r}: {name} is a probability; got {value!r}")
    return float(value)
