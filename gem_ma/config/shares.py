"""Which of several worlds comes next, so that each has its share of every stretch: a function of
the weights and of a number alone, so that a resumed run has nothing to remember.

The worlds are taken one by one. Of the numbers that the worlds before left over, a world takes
those at which `share * n`, rounded, grows; the rest is numbered anew and goes to the next ones.
So no share waits for a long run: a world is never more than a few turns from its due.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import NamedTuple


class Due(NamedTuple):
    """Whose turn it is, and how many turns this one had before."""

    name: str
    before: int


def due(weights: Mapping[str, float], number: int) -> Due:
    """Whose turn the one of this number (from 0) is.

    >>> "".join(due({"a": 3, "b": 1}, number).name for number in range(8))
    'aabaaaba'
    """
    # by name: the order in which a config names its scenarios is no part of its digest
    names = sorted(weights)
    # fractions, since a share of .1 that is added a million times is another number in floats
    left = sum(Fraction(str(weights[name])) for name in names)
    for name in names[:-1]:
        share = Fraction(str(weights[name])) / left
        before = _turns_before(share, number)
        if _turns_before(share, number + 1) > before:
            return Due(name, before)
        number = number - before
        left = left - Fraction(str(weights[name]))
    return Due(names[-1], number)


def _turns_before(share: Fraction, number: int) -> int:
    """How many of the first so many are its own."""
    return floor(share * number + Fraction(1, 2))
