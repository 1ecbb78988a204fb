"""Sets in one order: a generator that draws from a set of strings draws otherwise in every process,
since Python salts their hashes. The same question must be asked wherever a record is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AnySet
from typing import Any


class Ordered(set[Any]):
    """A set that is walked in the order of its members' texts, and so are its differences."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=repr))

    # Python's own would give plain sets
    def __sub__(self, other: AnySet[Any]) -> Ordered:
        return Ordered(super().__sub__(other))

    def __and__(self, other: AnySet[Any]) -> Ordered:
        return Ordered(super().__and__(other))

    def __or__(self, other: AnySet[Any]) -> Ordered:
        return Ordered(super().__or__(other))


MANY = 1_000  # strings of a list of words; shorter ones may be cards in an order of their own


def words_in_order(holder: Any) -> Any:
    """The object of a game, with its lists of words in one order: it may have taken them out of a
    set."""
    for value in vars(holder).values():
        if type(value) is list and len(value) >= MANY and all(type(one) is str for one in value):
            value.sort()
    return holder


def in_order(holder: Any) -> Any:
    """The object of a generator, with its sets in one order."""
    for name, value in vars(holder).items():
        if type(value) in (set, frozenset):
            setattr(holder, name, Ordered(value))
    if listed := getattr(holder, "_get_monomials", None):
        # sympy takes them out of a set of its own
        holder._get_monomials = lambda rng: sorted(listed(rng), key=str)
    return holder
