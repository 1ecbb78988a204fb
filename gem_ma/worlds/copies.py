"""Copies of environments of Gymnasium and PettingZoo as they stand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeVar

from gem_ma.worlds.guest import TURN

T = TypeVar("T")


def whole_copy(state: T) -> T:
    """A deep copy that stands where its original stands.

    Their `EzPickle` makes a new environment out of the arguments of the old, so that
    Python's own copy of it has played nothing.
    """
    # the class is changed for the time of the copy, for all threads
    with TURN, _as_it_stands():
        return deepcopy(state)


@contextmanager
def _as_it_stands() -> Iterator[None]:
    # older PettingZoo has a class of its own; what nobody has imported is in no environment
    homes = (sys.modules.get(name) for name in ("gymnasium.utils", "pettingzoo.utils"))
    classes: set[Any] = {getattr(home, "EzPickle", None) for home in homes} - {None}
    for cls in classes:
        cls.__deepcopy__ = _by_attributes
    try:
        yield
    finally:
        for cls in classes:
            del cls.__deepcopy__


def _by_attributes(env: Any, memo: dict[int, Any]) -> Any:
    copy: Any = object.__new__(type(env))
    memo[id(env)] = copy  # before its parts, which may point back to it
    copy.__dict__.update(deepcopy(env.__dict__, memo))
    return copy
