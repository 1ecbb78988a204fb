"""The running batch: rows that are sampled together, and their KV as one tensor per layer.

Knows rows, masks and caches; knows no module and no sampling. Rows come and go between two tokens,
so the operations here are those on whole rows: take some, put batches together, drop padding. All
of them need a plain cache (`gem_ma.engines.local.kv_cache.token_bytes`), except to take rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.engines.local.sampling import Draw


@dataclass(slots=True, eq=False)
class Batch:
    """Rows B over T columns. `mask` [B, T] is 1 where a column holds a token of the row; `logits`
    [B, V] are those after each row's last token."""

    draws: list[Draw]
    lengths: list[int]  # tokens of each row in the cache
    fresh: list[int]  # how many of them are the row's last columns, without a hole
    cache: Any
    mask: Any
    logits: Any

    def selected(self, rows: Sequence[int], draws: list[Draw]) -> Batch:
        """These rows in this order, as the batch of `draws`. A row may be taken several times.
        The cache is changed in place, so this batch is used up."""
        index = self.mask.new_tensor(rows)
        self.cache.batch_select_indices(index)
        lengths = [self.lengths[row] for row in rows]
        fresh = [self.fresh[row] for row in rows]
        return Batch(draws, lengths, fresh, self.cache, self.mask[index], self.logits[index])

    def tidy(self) -> None:
        """Drops columns of padding, where there are many."""
        width = self.mask.shape[1]
        longest = max(self.lengths)
        # Moving the whole cache costs about as much as some tokens: a few columns are left alone.
        if width <= longest + max(32, longest // 4):
            return
        # A stable sort of 0 and 1 brings the padding to the left and keeps tokens in their order.
        order = self.mask.argsort(dim=1, stable=True)[:, width - longest :]
        for layer in self.cache.layers:
            _, heads, _, size = layer.keys.shape
            index = order[:, None, :, None].expand(-1, heads, -1, size)
            layer.keys, layer.values = layer.keys.gather(2, index), layer.values.gather(2, index)
        self.mask, self.fresh = self.mask.gather(1, order), list(self.lengths)

    def states(self, torch: Any, row: int) -> Callable[[int], Any]:
        """A function from n to the keys and values [S, H, tokens, D] of a row's tokens from the
        n-th on, copied out of the cache."""

        def copied(start: int) -> Any:
            missing = self.lengths[row] - start
            columns: Any = slice(self.mask.shape[1] - missing, None)
            if missing > self.fresh[row]:  # padding stands in between, so columns are listed
                columns = self.mask[row].nonzero()[start:, 0]
            parts = [part for layer in self.cache.layers for part in (layer.keys, layer.values)]
            return torch.stack([part[row][:, columns] for part in parts])

        return copied


def joined(torch: Any, parts: Sequence[Batch]) -> Batch:
    """One batch of all rows, padded on the left to the widest. The parts are used up."""
    if len(parts) == 1:
        return parts[0]
    pad = torch.nn.functional.pad
    width = max(part.mask.shape[1] for part in parts)

    def stacked(tensors: Sequence[Any]) -> Any:  # [B, H, T, D] each
        wide = [pad(tensor, (0, 0, width - tensor.shape[2], 0)) for tensor in tensors]
        return torch.cat(wide)

    cache = parts[0].cache
    for layer, same in zip(
        cache.layers, zip(*(part.cache.layers for part in parts), strict=True), strict=True
    ):
        # Both are made before either is set: `layer` is the first of `same`.
        keys = stacked([each.keys for each in same])
        values = stacked([each.values for each in same])
        layer.keys = keys
        layer.values = values
    return Batch(
        [draw for part in parts for draw in part.draws],
        [length for part in parts for length in part.lengths],
        [fresh for part in parts for fresh in part.fresh],
        cache,
        torch.cat([pad(part.mask, (width - part.mask.shape[1], 0)) for part in parts]),
        torch.cat([part.logits for part in parts]),
    )
