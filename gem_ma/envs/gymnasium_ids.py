"""Puts our scenarios into Gymnasium's registry as soon as both are imported, in whichever order.

Gymnasium takes longer to import than gem_ma, which does without it until an environment is made. So
where it is not there yet, a finder waits for its import, steps aside and registers behind it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# the last module that `import gymnasium` runs; its registry is ready then
LAST = "gymnasium.envs"


def register_when_there() -> None:
    """Registers now where Gymnasium is imported, else when it is."""
    if LAST in sys.modules:
        _register()
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


class _Waiting:
    """Finds one module, once, as the other finders do, and registers after it has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != LAST:
            return None
        # before asking the others: they are asked through the same list
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                _register()

            loader: Any = spec.loader
            loader.exec_module = run_and_register
        return spec


def _register() -> None:
    import_module("gem_ma.envs.registration").register_all()
