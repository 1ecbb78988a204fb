"""Reading an answer: text -> the legal string it names, or the tool calls it holds. The one parser
of the views, behaviours and local engines.

A wrong answer is data. Nothing here raises on a model's text, evaluates it, or repairs it in
silence.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "calls": ("DECODED", "EXCERPT", "offered", "read_call"),
    "formats": ("FORMATS", "Format", "parse_tool_calls"),
    "legal": ("parse_action", "parse_legal"),
    "reasoning": ("split_reasoning",),
    "strict_json": ("MAX_CALLS", "MAX_DEPTH", "MAX_DIGITS", "MAX_TEXT"),
    "text": ("clean", "fold"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = list(_HOME_OF)


# lazy: most plays read legal strings alone, and no format of tool calls
def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
