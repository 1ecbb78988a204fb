"""Configs: one YAML shape for run, train and study, from text to checked settings and plans.

`document` reads YAML and remembers lines, `settings` and `schema` say what may stand there, `fit`
whether it fits together, `loading` puts overrides and cells on top, `casts` and `plans` make of it
who sits where and what is played.

Decisions: docs/decisions.md#config
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_ma.config.loading import Loaded as Loaded
    from gem_ma.config.loading import load as load


def __getattr__(name: str) -> Any:
    """`load` and `Loaded`, read when they are asked for: `document` stands below what they need."""
    if name in ("load", "Loaded"):
        return getattr(import_module("gem_ma.config.loading"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
