"""Records as facts: what changed since the start, as a signed multiset, and how far one set of
changes is from another.

A fact is `(table, key, field, ..., value)`. Two ends are the same where the same facts came and
went: order in lists, int or float, null or absent, case and blanks of texts, and float noise in
money say nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Overlay

Fact = tuple[Any, ...]
# (table, key, record) -> the record as facts
Facts = Callable[[str, str, Mapping[str, Any]], Counter[Fact]]
Weigh = Callable[[str, str], int]  # (table, key) -> how much a differing fact of this record counts


def cents(amount: Any) -> Any:
    """Money in whole cents; what is not a finite number as folded text."""
    # A flag is an int in Python, and nan equals nothing, itself included.
    if (
        isinstance(amount, bool)
        or not isinstance(amount, (int, float))
        or not math.isfinite(amount)
    ):
        return folded(amount)
    return round(amount * 100)


def folded(text: Any) -> str:
    """A text without regard to case and blanks."""
    return " ".join(str(text).split()).casefold()


def plain(table: str, key: str, record: Mapping[str, Any]) -> Counter[Fact]:
    """Any JSON record as facts: numbers in hundredths, texts folded, lists as multisets, null as
    absent.

    >>> sorted(plain("t", "k", {"a": 5.0, "b": [" X", "x"], "c": None}).items())
    [(('t', 'k', 'a', 500), 1), (('t', 'k', 'b', 'x'), 2)]
    """
    counts: Counter[Fact] = Counter()
    stack: list[tuple[Fact, Any]] = [((table, key), record)]
    while stack:
        # A stack and not recursion: a record may nest as deep as an overlay stores it.
        where, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [((*where, name), inner) for name, inner in value.items()]
        elif isinstance(value, (list, tuple)):
            # Lists of records keep each record together: two items with their prices swapped are a
            # change.
            if any(isinstance(inner, (Mapping, list, tuple)) for inner in value):
                counts.update((*where, leaf) for leaf in (_leaf(inner) for inner in value))
            else:
                stack += [(where, inner) for inner in value]
        elif value is not None:
            counts[(*where, _scalar(value))] += 1
    return counts


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value)  # True is no 1
    return cents(value) if isinstance(value, (int, float)) else folded(value)


def _leaf(value: Any) -> Any:
    """A nested element of a list as one hashable value; the order of inner lists says nothing
    either."""
    if isinstance(value, Mapping):
        return tuple(
            sorted(
                ((str(name), _leaf(inner)) for name, inner in value.items() if inner is not None),
                # By repr: texts and numbers of one list cannot be compared with each other.
                key=repr,
            )
        )
    if isinstance(value, (list, tuple)):
        return tuple(sorted((_leaf(inner) for inner in value), key=repr))
    return None if value is None else _scalar(value)


def changes(data: Overlay, facts: Facts) -> Counter[Fact]:
    """The facts that hold now and did not at the start, less those that held and do not. Notes
    of the store count as facts."""
    difference: Counter[Fact] = Counter()
    for table, key in data.touched():
        now, before = (
            facts(table, key, data.record(table, key)),
            facts(table, key, data.base.tables[table][key]),
        )
        # A record that was written back as it was has not changed.
        if now != before:
            difference.update(now)
            # Signed, and so `Counter - Counter` will not do: it drops what went away.
            difference.subtract(before)
    for slot, notes in data.notes.items():
        difference.update((*slot, *note) for note in notes)
    return Counter({fact: count for fact, count in difference.items() if count})


def state(stores: Iterable[Any], facts: Facts) -> Counter[Fact]:
    """The changes in all stores of a talk; two stores over one overlay are one."""
    # By identity: where both sides work on one overlay its changes count once.
    overlays = {id(store.overlay): store.overlay for store in stores if store is not None}
    total: Counter[Fact] = Counter()
    for overlay in overlays.values():
        total.update(changes(overlay, facts))  # update keeps negative counts, + would not
    return total


def once(table: str, key: str) -> int:
    return 1


def distance(done: Counter[Fact], goal: Counter[Fact], weigh: Weigh = once) -> int:
    """How many facts are in one and not in the other; 0 = the same changes."""
    # Equal far more often than not, and cheaper to ask than to count.
    if done == goal:
        return 0
    return sum(abs(done[fact] - goal[fact]) * weigh(fact[0], fact[1]) for fact in {*done, *goal})
