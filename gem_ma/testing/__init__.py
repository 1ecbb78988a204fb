"""The public conformance kit. Light at import: the pytest plugin is loaded in every run of
pytest.

Decisions: docs/decisions.md#testing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_ma.testing.check import check_scenario
    from gem_ma.testing.report import RULES, Finding, Report

__all__ = ["RULES", "Finding", "Report", "check_scenario"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("gem_ma.testing.check"), name)
    raise AttributeError(f"module 'gem_ma.testing' has no attribute {name!r}")
