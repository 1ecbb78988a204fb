"""The shape of summary.json of a training: whoever reads one that may be damaged, or a
stranger's, asks here before using it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import StoreError

Test = Callable[[Any], bool]


def check_training(summary: dict[str, Any], file: Path) -> dict[str, Any]:
    """The summary itself. Raises StoreError naming the file and the first key that is not what a
    training writes."""
    for key in _NEEDED:
        if key not in summary:
            raise StoreError(f"{file}: damaged: {key!r} is missing")
    # keys of a newer version are passed over
    for key, test in {**_NEEDED, **_OPTIONAL}.items():
        if key in summary and not test(summary[key]):
            raise StoreError(f"{file}: damaged: {key!r} has another shape than a training writes")
    return summary


def _whole(value: Any) -> bool:
    # a bool is an int to isinstance
    return type(value) is int and value >= 0


def _number(value: Any) -> bool:
    # None: a mean over nothing
    return value is None or type(value) in (int, float)


def _dict_of(test: Test) -> Test:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _exam(value: Any) -> bool:
    """One score, or a group of them as `training.exams.measures` gives it."""
    if not isinstance(value, dict):
        return _number(value)
    # a mean without its counts is not printed, so it may not come in
    counts = all(_whole(value.get(key)) for key in ("ok", "failed"))
    numbers = all(_dict_of(_number)(value.get(key, {})) for key in ("return", "scores"))
    # older ones have neither scores nor intervals
    bounds = _dict_of(_bounds)(value.get("intervals", {}))
    return counts and "return" in value and numbers and bounds and _number(value.get("success"))


def _bounds(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_number, value))


def _change(value: Any) -> bool:
    """One score of the last exam less that of the first."""
    numbers = ("difference", "low", "high", "p_adjusted")
    return (
        isinstance(value, dict)
        and all(key in value and _number(value[key]) for key in numbers)
        and isinstance(value.get("method"), str)
    )


def _model(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("engine"), str)
        and isinstance(value.get("path"), str)
    )


def _league(value: Any) -> bool:
    return isinstance(value, dict) and (
        isinstance(value.get("ratings"), str) or _dict_of(_number)(value.get("ratings", {}))
    )


_NEEDED: dict[str, Test] = {
    "steps": _whole,
    "learned": _names,
    "unchanged": _names,
    "before": _dict_of(_exam),
    "after": _dict_of(_exam),
}
# of these a folder of an older version has fewer
_OPTIONAL: dict[str, Test] = {
    "models": _dict_of(_model),
    "averaged": _dict_of(_model),
    "alarms": _dict_of(_whole),
    "changes": _dict_of(_dict_of(_change)),
    "league": _league,
    "weights": _dict_of(lambda value: isinstance(value, str)),
    "changed": _names,
    "baselines": _dict_of(lambda value: isinstance(value, dict)),
}
