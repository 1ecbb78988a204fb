"""numpy's global random state, put aside for a guest and put back.

`numpy.random.get_state` and `set_state` copy it number by number, which takes longer than a step of
most environments. Another generator in its place takes a moment, but numpy then forgets the second
of two normals, of which the caller may have drawn the first. So that one is kept here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_FREE: list[Any] = []  # generators of guests that have left; to make one takes longest of all


class _Blank:
    """Stands for a generator while the rest of a state is read or written."""

    def __init__(self) -> None:
        self.state = {"bit_generator": "MT19937", "state": {}}


def put_aside(random: Any) -> Any:
    """Takes the caller's state out of `numpy.random`, and leaves another there that is to be
    seeded. What comes back is for `put_back`."""
    if not _is_quick(random):
        return random.get_state()
    aside = random.get_bit_generator(), _normal(random.mtrand._rand)
    lent = _FREE.pop() if _FREE else random.MT19937()
    random.set_bit_generator(lent)
    return *aside, lent


def put_back(random: Any, aside: Any) -> None:
    """Whatever the guest has done to `numpy.random`, the caller finds what was put aside."""
    if not _is_quick(random):
        random.set_state(aside)
        return
    generator, normal, lent = aside
    random.set_bit_generator(generator)
    if normal is not None:
        _give_normal(random.mtrand._rand, normal)
    _FREE.append(lent)


def _normal(state: Any) -> float | None:
    """The normal that waits in a `RandomState`, None where none does."""
    generator = state._bit_generator
    state._bit_generator = _Blank()
    try:
        rest = state.get_state(legacy=False)
    finally:
        state._bit_generator = generator
    return float(rest["gauss"]) if rest["has_gauss"] else None


def _give_normal(state: Any, normal: float) -> None:
    generator = state._bit_generator
    blank = _Blank()
    state._bit_generator = blank
    try:
        state.set_state({**blank.state, "has_gauss": 1, "gauss": normal})
    finally:
        state._bit_generator = generator


@cache
def _is_quick(random: Any) -> bool:
    """Whether this numpy is built as the short way needs it, tried on states of our own."""
    try:
        first, other = (random.RandomState(random.MT19937(5)) for _ in range(2))
        first.standard_normal(3)
        other.standard_normal(4)  # the last of which waits in the first one
        normal = _normal(first)
        if normal is None or _normal(other) is not None:
            return False
        _give_normal(other, normal)
        same = list(first.standard_normal(3)) == list(other.standard_normal(3))
        return same and callable(random.set_bit_generator)
    except Exception:  # another numpy, with other insides
        return False
