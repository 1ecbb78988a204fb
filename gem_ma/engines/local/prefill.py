"""How rows begin: which of them share a pass, and what that pass is fed.

Knows rows and what is kept of their prompts; knows no module. Three things save work here: what is
kept is not computed again, equal prompts are computed once, and of rows that share a long new
beginning one goes ahead and the others find it kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gem_ma.engines.local.kv_cache import Path
from gem_ma.engines.local.sampling import Draw, Source

SHARED = 64  # new tokens that rows must have in common for one of them to go ahead

Prompt = tuple[Source, tuple[int, ...]]  # rows of equal ones are computed once


class Feed(NamedTuple):
    """What a pass is fed: `ids` and `places` [B, W], padded on the left. `mask` [B, T + W] covers
    the T columns of the cache too; `full`: it is 1 everywhere. `new`: ids of each row."""

    ids: Any
    places: Any
    mask: Any
    full: bool
    new: list[int]


def fitting(waiting: deque[Draw], running: Sequence[Draw], most: int) -> list[Draw]:
    """Takes from the front what fits beside the running rows in a batch of `most` tokens, padding
    included."""
    rows = len(running)
    # At its longest, not as it is now: a batch that fits today must fit at its last token.
    widest = max((draw.longest for draw in running), default=0)
    taken: list[Draw] = []
    while waiting:
        widest = max(widest, waiting[0].longest)
        # One row always fits alone, or it would wait for ever.
        if rows + len(taken) and (rows + len(taken) + 1) * widest > most:
            break
        taken.append(waiting.popleft())
    return taken


def groups(draws: Sequence[Draw], known: Callable[[Draw], int], limit: int) -> Iterator[list[Draw]]:
    """Splits rows into groups that begin in one pass each, with about as many new tokens a row.

    `known(draw)` is how much of a row's prompt is kept, `limit` how much may be. The caller
    computes each group before it asks for the next, so `known` may then answer more.
    """
    left = draws
    before = dict[int, int]()
    while left:
        ahead: list[tuple[int, Draw]] = []
        behind: list[Draw] = []
        first: dict[Prompt, tuple[int, ...]] = {}
        for draw in left:
            length = known(draw)
            # A row waits again only if the last round made more of it known: this always ends.
            may_wait = (
                draw.keep
                and len(draw.prompt) - length > SHARED
                and before.get(id(draw), -1) < length < limit
            )
            # Equal prompts stay together, since one pass computes them once anyway.
            if may_wait and _leader(first, draw, length + SHARED) != draw.prompt:
                before[id(draw)] = length
                behind.append(draw)
            else:
                ahead.append((len(draw.prompt) - length, draw))
        yield from _alike(ahead)
        left = behind


def _leader(first: dict[Prompt, tuple[int, ...]], draw: Draw, length: int) -> tuple[int, ...]:
    """The prompt of the first row that begins with the same `length` ids; this row's if it is."""
    return first.setdefault((draw.source, draw.prompt[:length]), draw.prompt)


def _alike(rows: list[tuple[int, Draw]]) -> Iterator[list[Draw]]:
    """Groups of rows, each with its number of new tokens, so that padding at most doubles a pass,
    short ones aside."""
    rows = sorted(rows, key=lambda row: row[0])
    while rows:
        taken = real = 0
        while taken < len(rows):
            new = rows[taken][0]
            # A pass has a price of its own, so some padding is always cheaper than a pass more.
            if (taken + 1) * new > 2 * (real + new) + 4 * SHARED:
                break
            real += new
            taken += 1
        yield [draw for _, draw in rows[:taken]]
        rows = rows[taken:]


def different(draws: Sequence[Draw]) -> dict[Prompt, Draw]:
    """The first row of each prompt. It is kept if any row of this prompt is to be kept."""
    rows: dict[Prompt, Draw] = {}
    for draw in draws:
        first = rows.setdefault((draw.source, draw.prompt), draw)
        first.keep |= draw.keep
    return rows


def feed(torch: Any, device: Any, rows: Sequence[Draw], known: Sequence[int]) -> Feed:
    """The ids of these rows behind what is `known` of each [B]."""
    new = [len(draw.prompt) - length for draw, length in zip(rows, known, strict=True)]
    before = max(known)
    width = max(new)
    ids = []
    places = []
    mask = []
    for draw, old, count in zip(rows, known, new, strict=True):
        padding = [0] * (width - count)
        ids.append(padding + list(draw.prompt[old:]))
        # Positions count the row's tokens, padding aside, or a row would depend on its batch.
        places.append(padding + list(range(old, old + count)))
        mask.append([0] * (before - old) + [1] * old + padding + [1] * count)
    return Feed(
        torch.tensor(ids, device=device),
        torch.tensor(places, device=device),
        torch.tensor(mask, device=device),
        min(known) == before and min(new) == width,
        new,
    )


def filled(paths: Sequence[Path], known: Sequence[int]) -> Any:
    """A cache [B, T] with what is kept of each row at its right end, T tokens of the longest."""
    from transformers import DynamicCache

    width = max(known)
    some = next(path[0][0].states for path in paths if path)
    parts, heads, _, size = some.shape
    # Zeros, not empty memory: the mask hides padding, but NaN times 0 would be NaN.
    states = some.new_zeros(parts, len(paths), heads, width, size)
    for row, (path, length) in enumerate(zip(paths, known, strict=True)):
        column = width - length
        for segment, count in path:
            states[:, row, :, column : column + count] = segment.states[:, :, :count]
            column += count
    cache = DynamicCache()
    for layer in range(parts // 2):
        cache.update(states[2 * layer], states[2 * layer + 1], layer)
    return cache
