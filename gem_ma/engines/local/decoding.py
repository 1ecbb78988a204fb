"""The token loop: ids sampled after prompts by a causal language model, with their
log-probabilities.

One batch runs. A row that has ended leaves it, and a row that waits joins it at the next token.
Rows are padded on the left, with an explicit mask, position ids and a KV cache.

KV reuse: rows with `keep` leave what was computed for them to `KVCache`, and begin from what it has
of their prompts. A row's columns in the cache are then [padding | kept | padding | new]. The mask
leaves out the padding, and positions count the row's tokens alone. The last sampled token was never
fed, so it is always among the new ones. Everything kept is dropped when the weights are not those
that computed it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from gem_ma.engines.local.kv_cache import (
    KVCache,
    Path,
    grow_in_place,
    stamp,
    token_bytes,
    usual_limit,
)
from gem_ma.engines.local.sampling import Draw, Source, Tree, Walk, drawn, stopped
from gem_ma.engines.models.settings import Memory
from gem_ma.engines.models.vocabulary import Vocabulary
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Sampling

# How rows begin. What is kept is not computed again, equal prompts are computed once, and of rows
# that share a long new beginning one goes ahead and the others find it kept.
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
    `known(draw)` is how much of a row's prompt is kept, more after each group; `limit`: may be."""
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
    return first.setdefault((draw.source, draw.prompt[:length]), draw.prompt)


def _alike(rows: list[tuple[int, Draw]]) -> Iterator[list[Draw]]:
    """Groups of (number of new tokens, row): padding at most doubles a pass, short ones aside."""
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


@dataclass(slots=True, eq=False)
class Batch:
    """Rows B over T columns that are sampled together, with their KV as one tensor per layer.
    `mask` [B, T] is 1 where a column holds a token of the row; `logits` [B, V] are those after each
    row's last token. All but `selected` needs a plain cache (`kv_cache.token_bytes`)."""

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


# While few rows wait, they are held back for so many tokens at most, to begin together with others.
HELD = 4
FEW = 16  # few: fewer than one that waits for so many that run


class Decoder:
    """Samples from `model`, on the device of `banned`: the mask [V] of the vocabulary, which is
    added to the logits. `positions`: tokens that prompt and answer may have together.

    `route(sources)`: inside it, row k of every pass sees the adapter of source k.
    `weights(source)`: the parameters that compute its rows, by default all of the model.
    """

    def __init__(
        self,
        torch: Any,
        model: Any,
        vocabulary: Vocabulary,
        banned: Any,
        memory: Memory,
        *,
        positions: int,
        route: Callable[[Sequence[Source]], AbstractContextManager[Any]] = nullcontext,
        weights: Callable[[Source], Iterable[Any]] | None = None,
    ) -> None:
        self.torch = torch
        self.model = model
        self.vocabulary = vocabulary
        self.banned = banned
        self.device = banned.device
        self.ends = vocabulary.ends
        self.text = vocabulary.cut
        self.positions = positions
        self.padded_tokens = memory.padded_tokens
        self.kv_tokens = memory.kv_tokens
        self.route = route
        self.weights = weights
        self.sight = vocabulary.sight
        self.packs = self.sight is None and _packs(model, self.device)
        self._nothing_kept()

    def _nothing_kept(self) -> None:
        self.kv_cache = KVCache(0)
        # Rows may be cut out of the cache, put together and kept; None = not looked at yet.
        self.joins: bool | None = None
        # The stamp of the weights that computed what is kept.
        self._computed: dict[Source, tuple[int, int, int]] = {}
        self._looked: set[Source] = set()

    def __copy__(self) -> Decoder:
        """Another decoder that may get another module: what is kept is never shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._nothing_kept()
        return other

    def limit(self, kv_tokens: int | None) -> None:
        """Keeps at most so many tokens. Of several wishes the smallest that is not 0 holds, since
        a policy that wants none marks its rows so."""
        if kv_tokens:
            self.kv_tokens = kv_tokens if not self.kv_tokens else min(kv_tokens, self.kv_tokens)
            self.kv_cache.limit = min(self.kv_cache.limit, self.kv_tokens)

    def draw(
        self,
        prompt: tuple[int, ...],
        sampling: Sampling,
        seed: int,
        source: Source,
        *,
        keep: bool = False,
        choices: Tree | Walk | None = None,
    ) -> Draw:
        """A row to be sampled; its finish is `context_overflow` without room for a token.
        Raises EngineError for an empty prompt."""
        if not prompt:
            raise EngineError(f"{source.where}: an empty prompt cannot be sampled from")
        room = min(sampling.max_tokens, self.positions - len(prompt))
        shift = 0 if self.sight is None else self.sight.shift(prompt)
        draw = Draw(prompt, sampling, random.Random(seed), room, source, keep, choices, shift=shift)
        if draw.room < 1:
            draw.room = 0
            draw.finish = "context_overflow"
        return draw

    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
        sources: Sequence[Source],
        *,
        keep: bool = False,
    ) -> list[Draw]:
        """Samples after each prompt [B of ids] with the weights of its source."""
        asked = zip(prompts, samplings, seeds, sources, strict=True)
        draws = [self.draw(*row, keep=keep) for row in asked]
        self.finish(draws)
        return draws

    def finish(self, draws: Sequence[Draw]) -> None:
        """Samples these rows to their ends."""
        # By length, whoever came first: which rows run together changes the last bits.
        order = sorted((draw for draw in draws if draw.room), key=lambda draw: len(draw.prompt))
        waves = iter([order])
        self.run(lambda: next(waves, []), lambda draw: None)

    def run(self, more: Callable[[], Sequence[Draw]], done: Callable[[Draw], None]) -> None:
        """Samples until nothing runs and nothing waits. Before every token `more()` gives the rows
        that have come, and `done` gets each row that has ended."""
        waiting: deque[Draw] = deque()
        batch: Batch | None = None
        held = 0
        self._looked.clear()
        with self.torch.inference_mode():
            while True:
                waiting.extend(more())
                if waiting and self.joins is None:
                    self._look()
                held = held + 1 if waiting else 0
                if waiting and self._may_begin(len(waiting), batch, held):
                    rows = fitting(waiting, batch.draws if batch else [], self.padded_tokens)
                    if rows:
                        batch = self._admit(batch, rows)
                        held = 0
                if batch is None:
                    return
                batch, ended = self._step(batch)
                for draw in ended:
                    done(draw)

    def forget(self) -> None:
        """Drops all kept KV."""
        self.kv_cache.clear()

    # -- what is kept -----------------------------------------------------------------------------

    def _look(self) -> None:
        """Finds out by a pass over one token what cache the model has, and how much may be kept."""
        token = self.torch.zeros(1, 1, dtype=self.torch.long, device=self.device)
        cache = self._module(token, None, None, None, [Source()]).past_key_values
        size = token_bytes(cache)
        self.joins = size is not None
        if size is not None:
            wanted = self.kv_tokens
            self.kv_cache = KVCache(
                usual_limit(self.torch, self.device, size) if wanted is None else wanted
            )

    def _check(self, source: Source) -> None:
        """Drops what was computed for a source by weights that have changed since."""
        if source in self._looked:  # weights do not change while a batch runs
            return
        self._looked.add(source)
        now = stamp(self.model.parameters() if self.weights is None else self.weights(source))
        for other, before in list(self._computed.items()):
            # What older versions of the same adapter have computed is stale as well.
            if other.adapter == source.adapter and before != now:
                self.kv_cache.drop(other)
                del self._computed[other]
        self._computed[source] = now

    def _known(self, draw: Draw) -> tuple[Path, int]:
        if not draw.keep:
            return [], 0
        self._check(draw.source)
        # The last token is always fed, since the logits after it are wanted.
        return self.kv_cache.find(draw.source, draw.prompt, len(draw.prompt) - 1)

    # -- rows that begin --------------------------------------------------------------------------

    def _may_begin(self, waiting: int, batch: Batch | None, held: int) -> bool:
        if batch is None:
            return True
        # To begin costs a pass that all others wait for: a few rows are held back until more come.
        # Where rows cannot join a running batch, all wait until it has ended.
        return bool(self.joins) and (waiting >= len(batch.draws) // FEW or held > HELD)

    def _admit(self, batch: Batch | None, draws: list[Draw]) -> Batch:
        if not self.joins:  # `_may_begin` has waited for the end of the batch, and nothing is kept
            return self._prefill(draws)
        parts = [] if batch is None else [batch]
        # One by one: what a group leaves behind is used by the next.
        for group in groups(draws, lambda draw: self._known(draw)[1], self.kv_cache.limit):
            parts.append(self._prefill(group))
        whole = joined(self.torch, parts)
        whole.tidy()
        grow_in_place(whole.cache)
        return whole

    def _prefill(self, draws: list[Draw]) -> Batch:
        """These rows with the logits after their prompts, in one pass."""
        prompts = different(draws)
        rows = list(prompts.values())
        paths, known = zip(*map(self._known, rows), strict=True)
        fed = feed(self.torch, self.device, rows, known)
        cache = filled(paths, known) if any(known) else None
        # Without a mask the faster kernels of attention are taken.
        mask = None if fed.full else fed.mask
        out = self._forward(fed.ids, mask, fed.places, cache, [draw.source for draw in rows])
        lengths = [len(draw.prompt) for draw in rows]
        batch = Batch(rows, lengths, fed.new, out.past_key_values, fed.mask, out.logits[:, -1])
        for row, draw in enumerate(rows):
            draw.cached = known[row]
            if draw.keep and self.joins:
                self.kv_cache.keep(draw.source, draw.prompt, batch.states(self.torch, row))
        if len(rows) == len(draws):
            return batch
        number = {prompt: row for row, prompt in enumerate(prompts)}
        places = [number[draw.source, draw.prompt] for draw in draws]
        for draw, row in zip(draws, places, strict=True):
            # What was computed for an equal prompt cost the others nothing.
            draw.cached = known[row] if draw is rows[row] else len(draw.prompt)
        return batch.selected(places, draws)

    # -- one token --------------------------------------------------------------------------------

    def _step(self, batch: Batch) -> tuple[Batch | None, list[Draw]]:
        """One token for every row: those that go on, with their next logits, and the ended ones."""
        torch = self.torch
        chosen, logprobs = drawn(torch, batch.logits.float() + self.banned, batch.draws)
        staying, ended = self._taken(batch, chosen, logprobs)
        if not staying:
            return None, ended
        if ended:
            batch = batch.selected(staying, [batch.draws[row] for row in staying])
            if self.joins:
                batch.tidy()
        batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(staying), 1)], 1)
        full = min(batch.lengths) == batch.mask.shape[1] - 1
        last = torch.tensor([[draw.ids[-1]] for draw in batch.draws], device=self.device)
        places = torch.tensor(
            [
                [length + draw.shift]
                for length, draw in zip(batch.lengths, batch.draws, strict=True)
            ],
            device=self.device,
        )
        mask = self._unmasked(batch.mask) if full else batch.mask
        sources = [draw.source for draw in batch.draws]
        batch.logits = self._forward(last, mask, places, batch.cache, sources).logits[:, -1]
        batch.lengths = [length + 1 for length in batch.lengths]
        batch.fresh = [fresh + 1 for fresh in batch.fresh]
        return batch, ended

    def _unmasked(self, mask: Any) -> Any:
        """What goes with one token a row where `mask` [B, T] hides nothing."""
        # In full shape, or the library would see through it. A window that slides would take it
        # as it is too, but rows of such a model never join.
        return mask.bool()[:, None, None] if self.packs and self.joins else None

    def _taken(
        self, batch: Batch, chosen: Sequence[int], logprobs: Sequence[float]
    ) -> tuple[list[int], list[Draw]]:
        """Writes each row's new token down: numbers of those that go on, and the ended ones."""
        staying: list[int] = []
        ended: list[Draw] = []
        for row, draw in enumerate(batch.draws):
            draw.take(chosen[row], logprobs[row])
            if chosen[row] in self.ends or stopped(draw, self.text):
                draw.finish = "stop"
            elif draw.room > 0:
                staying.append(row)
                continue
            ended.append(draw)
            if draw.keep and self.joins:
                # Less the last id: it was sampled and never fed, so the cache has no column of it.
                ids = (*draw.prompt, *draw.ids[:-1])
                self.kv_cache.keep(draw.source, ids, batch.states(self.torch, row))
        return staying, ended

    # -- the module -------------------------------------------------------------------------------

    def _forward(
        self, ids: Any, mask: Any, places: Any, cache: Any, sources: Sequence[Source]
    ) -> Any:
        """One pass; where memory is full, all kept KV is dropped and it is tried once more."""
        try:
            return self._module(ids, mask, places, cache, sources)
        except self.torch.OutOfMemoryError:
            if not self.kv_cache.tokens:
                raise
            self.kv_cache.clear()
            self.torch.cuda.empty_cache()
            # Some layers may have taken the new tokens already.
            before = mask.shape[1] - ids.shape[1] if mask is not None else int(places[0, 0])
            for layer in cache.layers if cache is not None else ():
                layer.keys = layer.keys[:, :, :before]
                layer.values = layer.values[:, :, :before]
            return self._module(ids, mask, places, cache, sources)

    def _module(
        self, ids: Any, mask: Any, places: Any, cache: Any, sources: Sequence[Source]
    ) -> Any:
        inputs = {"input_ids": ids, "position_ids": places}
        if self.sight is not None:
            rows = ids.cpu().numpy()
            counted = None if places is None else places.cpu().numpy()
            inputs = self.sight.inputs(self.torch, rows, counted)
        inputs |= {"attention_mask": mask, "past_key_values": cache}
        last: Any = 1
        if self.device.type == "cpu" and len(ids) > 1:
            # A number would cut a view, and by rows that lie apart torch multiplies one by one,
            # each with a copy of the whole head; an index gives rows that lie together.
            last = self.torch.tensor([ids.shape[1] - 1])
        with self.route(sources):
            return self.model(**inputs, use_cache=True, logits_to_keep=last)


def _packs(model: Any, device: Any) -> bool:
    """Whether one token a row is computed faster beside a mask that hides nothing than without: on
    a processor in half precision, where several queries share keys, which only then are packed."""
    config = getattr(model, "config", None)
    heads = getattr(config, "num_attention_heads", 0)
    return (
        device.type == "cpu"
        and getattr(config, "_attn_implementation", "") == "sdpa"
        and 0 < (getattr(config, "num_key_value_heads", None) or heads) < heads
        and next(model.parameters()).element_size() == 2
        # code that a folder brings may know no mask of this shape
        and type(model).__module__.startswith("transformers.")
    )
