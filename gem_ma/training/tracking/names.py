"""Rows of a run as flat names: what a curve is called wherever it is drawn. docs/watching.md
lists them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_APART = ("kind", "step", "policies", "at")


def flat(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of one row, by name; words, gaps and the step itself are left out.

    >>> flat({"kind": "train", "step": 3, "return": {"a": 1.0}, "policies": {"main": {"kl": 0.5}}})
    {'policy/main/kl': 0.5, 'train/return/a': 1.0}
    >>> flat({"kind": "evaluation", "step": 3, "sampled": {"success": None, "ok": 8}})
    {'evaluation/sampled/ok': 8.0}
    >>> alarm = {"kind": "alarm", "step": 3, "policy": "main", "signal": "deaf"}
    >>> flat({**alarm, "value": 0.01, "limit": 0.05})
    {'alarm/main/deaf': 0.01}
    >>> flat({"step": 3, "at": 1.7e9, "play_s": 0.2})
    {'time/play_s': 0.2}
    """
    # timings have no kind: they are rows of another file
    kind = str(row.get("kind", "time"))
    if kind == "alarm":
        # one curve per signal; its limit is left to whoever draws
        return dict(_numbers(row.get("value"), f"alarm/{row.get('policy')}/{row.get('signal')}"))
    found = dict(_numbers(row.get("policies", {}), "policy"))
    return found | dict(
        _numbers({key: value for key, value in row.items() if key not in _APART}, kind)
    )


def _numbers(value: Any, name: str) -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        return [pair for key, item in value.items() for pair in _numbers(item, f"{name}/{key}")]
    # a tracker may draw NaN as 0, so a gap stays a gap
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return [(name, float(value))]
    return []
