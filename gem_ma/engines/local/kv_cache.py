"""Kept KV: what a model has computed for token sequences that may go on, so that the next turn of a
talk computes only what is new.

Knows ids and tensors; knows no model, no requests and no text. Sequences are a tree of segments, so
all that begin alike (the turns of one talk, the plays of a group, forks) share what they have in
common, and a new turn copies its own tokens only. Bounded in tokens: what was used longest ago goes
first.

A segment's tensor is [S, H, T, D]: S = keys and values of every layer in turn, H heads, T
tokens, D their width.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Segment:
    """Ids [T] that follow those of the parent, and their keys and values."""

    ids: tuple[int, ...]
    states: Any
    parent: Segment | None
    used: int = 0
    after: dict[int, Segment] = field(default_factory=dict)  # by first id


class Kept:
    """At most `limit` tokens. `owner` keeps apart what other weights have computed: one base may
    carry many adapters."""

    def __init__(self, limit: int) -> None:
        self.limit, self.tokens = limit, 0
        self._roots: dict[Hashable, Segment] = {}
        self._clock = 0

    def find(
        self, owner: Hashable, ids: Sequence[int], most: int | None = None
    ) -> tuple[list[tuple[Segment, int]], int]:
        """The longest kept beginning of `ids`, `most` tokens of it at most: its segments, each
        with how many of its tokens; and their sum."""
        self._clock += 1
        path: list[tuple[Segment, int]] = []
        at, end = 0, len(ids) if most is None else min(most, len(ids))
        here = self._roots.get(owner)
        while here is not None and at < end and (segment := here.after.get(ids[at])) is not None:
            same = _common(segment.ids, ids, at, end)
            segment.used = self._clock
            path.append((segment, same))
            at += same
            here = segment if same == len(segment.ids) else None
        return path, at

    def keep(self, owner: Hashable, ids: Sequence[int], states: Callable[[int], Any]) -> None:
        """Keeps `ids`; `states(n)` gives the tensor of the tokens from the n-th on, and is asked
        for what is not there yet only."""
        path, known = self.find(owner, ids)
        missing = len(ids) - known
        if not 0 < missing <= self.limit:
            return
        parent = self._roots.setdefault(owner, Segment((), None, None))
        if path:
            parent, same = path[-1]
            if same < len(parent.ids):
                parent = self._split(parent, same)
        parent.after[ids[known]] = Segment(tuple(ids[known:]), states(known), parent, self._clock)
        self.tokens += missing
        if self.tokens > self.limit:
            self._drop_oldest()

    def clear(self) -> None:
        """Drops everything."""
        self._roots, self.tokens = {}, 0

    def drop(self, owner: Hashable) -> None:
        """Drops what this owner has computed."""
        stack = [self._roots.pop(owner)] if owner in self._roots else []
        while stack:
            segment = stack.pop()
            self.tokens -= len(segment.ids)
            stack += segment.after.values()

    def _split(self, segment: Segment, at: int) -> Segment:
        """Cuts a segment in two and gives the upper part. Both are copied: a view would hold on
        to the memory of the whole."""
        parent = segment.parent
        upper = Segment(
            segment.ids[:at],
            segment.states[:, :, :at].clone(),
            parent,
            segment.used,
            {segment.ids[at]: segment},
        )
        if parent is not None:
            parent.after[segment.ids[0]] = upper
        segment.ids, segment.states, segment.parent = (
            segment.ids[at:],
            segment.states[:, :, at:].clone(),
            upper,
        )
        return upper

    def _drop_oldest(self) -> None:
        """Down to seven eighths, so that not every new turn comes here."""
        ends: list[tuple[int, int, Segment]] = []
        stack = list(self._roots.values())
        while stack:
            segment = stack.pop()
            stack += segment.after.values()
            if not segment.after and segment.parent is not None:
                ends.append((segment.used, len(ends), segment))
        heapq.heapify(ends)
        number = len(ends)
        while ends and self.tokens > self.limit * 7 // 8:
            _, _, segment = heapq.heappop(ends)
            parent = segment.parent
            if parent is None:
                continue
            del parent.after[segment.ids[0]]
            self.tokens -= len(segment.ids)
            if not parent.after and parent.parent is not None:
                number += 1
                heapq.heappush(ends, (parent.used, number, parent))


def _common(mine: tuple[int, ...], ids: Sequence[int], at: int, end: int) -> int:
    """How many tokens of `mine` are those of `ids` from `at` on."""
    length = min(len(mine), end - at)
    if mine[:length] == tuple(ids[at : at + length]):
        return length
    low, high = 1, length  # the first `low - 1` are known to be the same
    while low < high:
        middle = (low + high) // 2
        if mine[:middle] == tuple(ids[at : at + middle]):
            low = middle + 1
        else:
            high = middle
    return low - 1
