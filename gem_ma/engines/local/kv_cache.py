"""Kept KV: what a model has computed for token sequences that may go on, so that the next turn of a
talk computes only what is new.

Sequences are a tree of segments: all that begin alike (the turns of one talk, the plays of a group,
forks) share what they have in common. What was used longest ago goes first.

A segment's tensor is [S, H, T, D]: S = keys and values of every layer in turn, H heads, T
tokens, D their width.
"""

from __future__ import annotations

import functools
import heapq
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

# on a CPU at most, or a sixteenth of its memory; an accelerator keeps an eighth of its own
KEPT_BYTES = 1 << 30


@dataclass(slots=True, eq=False)
class Segment:
    """Ids [T] that follow those of the parent, and their keys and values."""

    ids: tuple[int, ...]
    states: Any
    parent: Segment | None
    used: int = 0
    after: dict[int, Segment] = field(default_factory=dict)  # by first id


Path = list[tuple[Segment, int]]  # segments in their order, and how many tokens of each


class KVCache:
    """At most `limit` tokens. `owner` keeps apart what different weights have computed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tokens = 0
        self._roots: dict[Hashable, Segment] = {}
        self._clock = 0

    def find(
        self, owner: Hashable, ids: Sequence[int], most: int | None = None
    ) -> tuple[Path, int]:
        """The longest kept beginning of `ids`, and how many tokens it has, `most` at most."""
        self._clock += 1
        path: Path = []
        length = 0
        end = len(ids) if most is None else min(most, len(ids))
        here = self._roots.get(owner)
        while here is not None and length < end:
            segment = here.after.get(ids[length])
            if segment is None:
                break
            same = _common(segment.ids, ids, length, end)
            segment.used = self._clock
            path.append((segment, same))
            length += same
            # Past a segment that only begins alike there is nothing of this sequence.
            here = segment if same == len(segment.ids) else None
        return path, length

    def keep(self, owner: Hashable, ids: Sequence[int], states: Callable[[int], Any]) -> None:
        """Keeps `ids`. `states(n)` gives the tensor of the tokens from the n-th on."""
        path, known = self.find(owner, ids)
        missing = len(ids) - known
        # What is longer than the limit would drop everything else and then itself.
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
        self._roots = {}
        self.tokens = 0

    def drop(self, owner: Hashable) -> None:
        """Drops what this owner has computed."""
        stack = [self._roots.pop(owner)] if owner in self._roots else []
        while stack:
            segment = stack.pop()
            self.tokens -= len(segment.ids)
            stack += segment.after.values()

    def _split(self, segment: Segment, length: int) -> Segment:
        """Cuts a segment in two behind `length` tokens, and gives the upper part."""
        parent = segment.parent
        ids = segment.ids
        states = segment.states
        # Both parts are copies: a view would hold on to the memory of the whole.
        upper = Segment(
            ids[:length],
            states[:, :, :length].clone(),
            parent,
            segment.used,
            {ids[length]: segment},
        )
        if parent is not None:
            parent.after[ids[0]] = upper
        # The lower part stays the same object, since its children name it as their parent.
        segment.ids = ids[length:]
        segment.parent = upper
        segment.states = states[:, :, length:].clone()
        return upper

    def _drop_oldest(self) -> None:
        """Drops leaves, the oldest first, down to seven eighths of the limit."""
        leaves: list[tuple[int, int, Segment]] = []
        stack = list(self._roots.values())
        while stack:
            segment = stack.pop()
            stack += segment.after.values()
            if not segment.after and segment.parent is not None:
                # The number decides between equal ages; segments have no order.
                leaves.append((segment.used, len(leaves), segment))
        heapq.heapify(leaves)
        number = len(leaves)
        # Below the limit by a margin, so that not every new turn walks the whole tree.
        while leaves and self.tokens > self.limit * 7 // 8:
            _, _, segment = heapq.heappop(leaves)
            parent = segment.parent
            if parent is None:
                continue
            del parent.after[segment.ids[0]]
            self.tokens -= len(segment.ids)
            if not parent.after and parent.parent is not None:
                number += 1
                heapq.heappush(leaves, (parent.used, number, parent))


def _common(mine: tuple[int, ...], ids: Sequence[int], start: int, end: int) -> int:
    """How many tokens of `mine` are those of `ids` from `start` on."""
    length = min(len(mine), end - start)
    if mine[:length] == tuple(ids[start : start + length]):
        return length
    # bisection with slices, which are compared in C; the first `low - 1` are the same
    low = 1
    high = length
    while low < high:
        middle = (low + high) // 2
        if mine[:middle] == tuple(ids[start : start + middle]):
            low = middle + 1
        else:
            high = middle
    return low - 1


SPARE = 64  # columns of room behind the tokens of a running batch


@functools.cache
def _growing_layer() -> Any:
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):
        """Keys and values [B, H, T, D] in memory that has columns to spare: a token is written
        behind them, where the library's layer copies all of them to append one."""

        def __init__(self, keys: Any, values: Any) -> None:
            super().__init__()
            self.lazy_initialization(keys, values)
            self.keys = keys
            self.values = values

        def __setattr__(self, name: str, value: Any) -> None:
            # Rows were chosen, joined or moved: the memory goes now, and not at the next token,
            # or each batch would be held twice.
            if name == "keys":
                self._memory: list[Any] = []
            super().__setattr__(name, value)

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> Any:
            before = self.keys.shape[2]
            width = before + key_states.shape[2]
            memories = self._memory
            if not memories or width > memories[0].shape[2]:
                memories = [self._roomy(old, width) for old in (self.keys, self.values)]
            for memory, new in zip(memories, (key_states, value_states), strict=True):
                memory[:, :, before:width] = new
            self.keys, self.values = (memory[:, :, :width] for memory in memories)
            self._memory = memories
            return self.keys, self.values

        @staticmethod
        def _roomy(states: Any, width: int) -> Any:
            rows, heads, columns, size = states.shape
            memory = states.new_empty(rows, heads, width + SPARE, size)
            memory[:, :, :columns] = states
            return memory

    return GrowingLayer


def grow_in_place(cache: Any) -> None:
    """Changes a plain cache, so that tokens are appended to it without a copy of the rest."""
    layer_type = _growing_layer()
    cache.layers = [
        layer if isinstance(layer, layer_type) else layer_type(layer.keys, layer.values)
        for layer in cache.layers
    ]


def token_bytes(cache: Any) -> int | None:
    """Bytes of one token's keys and values in a model's cache, or None where rows cannot be cut
    out of it, put together and kept."""
    layers = getattr(cache, "layers", [])
    # A window that slides, a recurrent state or a quantised cache cannot be cut by columns. Their
    # classes are subclasses of this one, so the name has to be the very same.
    if not all(type(layer).__name__ == "DynamicLayer" for layer in layers):
        return None
    shapes = {tuple(states.shape) for layer in layers for states in (layer.keys, layer.values)}
    if len(shapes) != 1:  # one tensor holds all layers of a segment
        return None
    (_, heads, _, width) = shapes.pop()
    return int(2 * len(layers) * heads * width * layers[0].keys.element_size())


def usual_limit(torch: Any, device: Any, size: int) -> int:
    """Tokens of `size` bytes that are kept on a device by default."""
    # By the size of the memory, not by what is free now: what is kept changes the last bits of a
    # result, so it must not differ from run to run.
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory // 8 // size)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(KEPT_BYTES, memory // 16) // size)


def stamp(weights: Iterable[Any]) -> tuple[int, int, int]:
    """A number of these weights that changes when one of them is written to or replaced.

    torch counts writes in place (`_version`); a weight that was replaced lies elsewhere.
    """
    listed = list(weights)
    versions = sum(weight._version for weight in listed)
    return len(listed), versions, sum(weight.data_ptr() for weight in listed)
