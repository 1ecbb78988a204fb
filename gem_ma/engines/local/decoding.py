"""The token loop: ids sampled after prompts by a causal language model, with their
log-probabilities.

Knows ids, sampling and a module; knows no requests, no text and no policies. One batch runs; a row
that has ended leaves it, and a row that waits joins it at the next token. Rows are padded on the
left, with an explicit mask and position ids and a KV cache. Every row draws from a generator of its
own, one uniform number per token of its own (inverse of the cumulated distribution).

KV reuse: rows with `keep` leave what was computed for them to `Kept`, and begin from what they
find there. A row's columns in the cache are then [padding | kept | padding | new]; the mask
leaves out the padding, and positions count the row's own tokens. The last sampled token was
never fed, so it is always among the new ones. Everything kept is dropped when the weights are
not those that computed it.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from gem_ma.engines.local.constrained import Tree, Walk
from gem_ma.engines.local.kv_cache import Kept, Segment
from gem_ma.engines.local.sampling import Draw, Source, drawn, stopped
from gem_ma.errors import EngineError
from gem_ma.types import Sampling

# tokens that a row waits at most for others to join with it, where they are few beside those that
# run
HELD = 4
SHARED = 64  # new tokens that rows must begin with in common for one of them to go ahead
# on a CPU, and never more than a sixteenth of the memory; on an accelerator an eighth of its own
KEPT_BYTES = 1 << 30


@dataclass(slots=True, eq=False)
class _Batch:
    """Running rows B over T columns. `mask` [B, T]; `logits` [B, V] after each row's last token."""

    draws: list[Draw]
    lengths: list[int]  # tokens of each row in the cache
    fresh: list[int]  # how many of them are the row's last columns, without a hole
    cache: Any
    mask: Any
    logits: Any


class Decoder:
    """Samples from `model`. `banned` [vocabulary]: -inf at ids that are never sampled; `ends`: ids
    that end a row; `positions`: of the model.

    `padded_tokens` bounds the running batch, padding included. `text(ids, stop)` is used for
    stop strings only. `route(sources)` makes row k of the passes inside it see the adapter of
    source k. `kv_tokens` bounds what is kept for reuse; 0 = nothing, None = by the size of the
    memory. `weights(source)`: the parameters that compute its rows, by default all of the model.
    """

    def __init__(
        self,
        torch: Any,
        model: Any,
        *,
        banned: Any,
        ends: frozenset[int],
        positions: int,
        device: str,
        padded_tokens: int,
        text: Callable[[Sequence[int], Sequence[str]], str],
        route: Callable[[Sequence[Source]], AbstractContextManager[Any]] = nullcontext,
        kv_tokens: int | None = None,
        weights: Callable[[Source], Iterable[Any]] | None = None,
    ) -> None:
        self.torch, self.model, self.banned, self.ends, self.positions = (
            torch,
            model,
            banned,
            ends,
            positions,
        )
        self.device, self.padded_tokens, self.text, self.route, self.kv_tokens = (
            device,
            padded_tokens,
            text,
            route,
            kv_tokens,
        )
        self.kept = Kept(0)
        # the cache is plain: rows may be cut out, put together and kept; None = not looked at yet
        self.joins: bool | None = None
        self.weights = weights
        # what the weights were that computed what is kept
        self._computed: dict[Source, tuple[int, int, int]] = {}
        self._looked: set[Source] = set()

    def __copy__(self) -> Decoder:
        """Another decoder that may be given another module: what is kept is never shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.kept, other.joins, other._computed, other._looked = Kept(0), None, {}, set()
        return other

    def limit(self, kv_tokens: int | None) -> None:
        """Keeps at most so many tokens; of several wishes the smallest that is not 0 holds,
        since a policy that wants none keeps none itself."""
        if kv_tokens:
            self.kv_tokens = kv_tokens if not self.kv_tokens else min(kv_tokens, self.kv_tokens)
            self.kept.limit = min(self.kept.limit, self.kv_tokens)

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
        """A row to be sampled; finish `context_overflow` where the prompt leaves no room for a
        token."""
        if not prompt:
            raise EngineError(f"{source.where}: an empty prompt cannot be sampled from")
        draw = Draw(
            prompt,
            sampling,
            random.Random(seed),
            min(sampling.max_tokens, self.positions - len(prompt)),
            source,
            keep,
            choices,
        )
        if draw.room < 1:
            draw.room, draw.finish = 0, "context_overflow"
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
        """Samples after each prompt [B of ids] with the weights of its source; gives ids,
        log-probabilities and finish per prompt."""
        draws = [
            self.draw(*one, keep=keep)
            for one in zip(prompts, samplings, seeds, sources, strict=True)
        ]
        self.finish(draws)
        return draws

    def finish(self, draws: Sequence[Draw]) -> None:
        """Samples these rows to their ends. What runs together depends on the rows alone, never
        on timing."""
        order = sorted((draw for draw in draws if draw.room), key=lambda draw: len(draw.prompt))
        given = iter([order])
        self.run(lambda: next(given, []), lambda draw: None)

    def run(self, more: Callable[[], Sequence[Draw]], done: Callable[[Draw], None]) -> None:
        """Samples until nothing runs and nothing waits. Before every token `more()` gives what has
        come; `done` gets each row that has ended.

        Beginning costs a pass of its own, so beside sixteen or more rows a few wait for each
        other, some tokens at most.
        """
        waiting: deque[Draw] = deque()
        batch: _Batch | None = None
        held = 0
        self._looked.clear()
        with self.torch.inference_mode():
            while True:
                waiting.extend(more())
                if waiting and self.joins is None:
                    self._look()
                held = held + 1 if waiting else 0
                few = batch is not None and len(waiting) < len(batch.draws) // 16 and held <= HELD
                if not few and (fitting := self._fitting(waiting, batch)):
                    batch, held = self._admit(batch, fitting), 0
                if batch is None:
                    return
                batch, ended = self._step(batch)
                for draw in ended:
                    done(draw)

    def forget(self) -> None:
        """Drops all kept KV."""
        self.kept.clear()

    # -- who runs ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """What kind of cache this model has, and how much of it may be kept."""
        cache = self._module(
            self.torch.zeros(1, 1, dtype=self.torch.long, device=self.device),
            None,
            None,
            None,
            [Source()],
        ).past_key_values
        layers = getattr(cache, "layers", [])
        # A window that slides, a recurrent state or a quantised cache cannot be cut by columns.
        plain = bool(layers) and all(type(layer).__name__ == "DynamicLayer" for layer in layers)
        shapes = (
            {tuple(states.shape) for layer in layers for states in (layer.keys, layer.values)}
            if plain
            else set()
        )
        self.joins = len(shapes) == 1
        if self.joins:
            (_, heads, _, width), itemsize = next(iter(shapes)), layers[0].keys.element_size()
            self.kept = Kept(
                self._room(2 * len(layers) * heads * width * itemsize)
                if self.kv_tokens is None
                else self.kv_tokens
            )

    def _check(self, source: Source) -> None:
        """Drops what was computed for a source by weights that have changed since, whoever
        changed them."""
        if source in self._looked:  # they do not change while a batch runs
            return
        self._looked.add(source)
        weights = list(self.model.parameters() if self.weights is None else self.weights(source))
        now = (
            len(weights),
            sum(weight._version for weight in weights),
            sum(weight.data_ptr() for weight in weights),
        )
        for other, seen in list(self._computed.items()):
            if other.adapter == source.adapter and seen != now:
                self.kept.drop(other)
                del self._computed[other]
        self._computed[source] = now

    def _room(self, token_bytes: int) -> int:
        """Tokens that are kept by default. By the size of the memory, not by what is free now:
        what is kept must not differ from run to run."""
        if self.torch.device(self.device).type == "cuda":
            return int(
                self.torch.cuda.get_device_properties(self.device).total_memory // 8 // token_bytes
            )
        memory = (
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            if hasattr(os, "sysconf")
            else 16 * KEPT_BYTES
        )
        return int(min(KEPT_BYTES, memory // 16) // token_bytes)

    def _fitting(self, waiting: deque[Draw], batch: _Batch | None) -> list[Draw]:
        """Takes from the front what fits beside the running rows; one row always fits alone."""
        rows = len(batch.draws) if batch else 0
        widest = max((draw.longest for draw in batch.draws), default=0) if batch else 0
        taken: list[Draw] = []
        while waiting and (self.joins or not rows):
            widest = max(widest, waiting[0].longest)
            if (rows + len(taken)) and (rows + len(taken) + 1) * widest > self.padded_tokens:
                break
            taken.append(waiting.popleft())
        return taken

    def _admit(self, batch: _Batch | None, draws: list[Draw]) -> _Batch:
        parts = [batch] if batch is not None else []
        parts += [self._prefill(group) for group in self._groups(draws)]
        return self._tidy(self._join(parts)) if self.joins else parts[0]

    def _groups(self, draws: list[Draw]) -> Iterator[list[Draw]]:
        """Rows that begin in one pass: such with about as many new tokens. Of rows that share a
        long new beginning one goes ahead, and the others find it kept; equal prompts are
        computed once and stay together.
        """
        if not self.joins:
            yield draws
            return
        left, before = draws, dict[int, int]()
        while left:
            ahead: list[tuple[int, Draw]] = []
            behind: list[Draw] = []
            first: dict[tuple[Source, tuple[int, ...]], tuple[int, ...]] = {}
            for draw in left:
                known = self._known(draw)[1]
                shares = (
                    draw.keep
                    and len(draw.prompt) - known > SHARED
                    and before.get(id(draw), -1) < known < self.kept.limit
                )
                if (
                    shares
                    and first.setdefault((draw.source, draw.prompt[: known + SHARED]), draw.prompt)
                    != draw.prompt
                ):
                    before[id(draw)] = known
                    behind.append(draw)
                else:
                    ahead.append((len(draw.prompt) - known, draw))
            ahead.sort(key=lambda one: one[0])
            while ahead:
                take = real = 0
                while (
                    take < len(ahead)
                    and (take + 1) * ahead[take][0] <= 2 * (real + ahead[take][0]) + 4 * SHARED
                ):
                    real += ahead[take][0]
                    take += 1
                yield [draw for _, draw in ahead[:take]]
                ahead = ahead[take:]
            left = behind

    def _known(self, draw: Draw) -> tuple[list[tuple[Segment, int]], int]:
        """What is kept of a row's prompt; its last token is always fed, since the logits after
        it are wanted."""
        if not draw.keep:
            return [], 0
        self._check(draw.source)
        return self.kept.find(draw.source, draw.prompt, len(draw.prompt) - 1)

    # -- the batch --------------------------------------------------------------------------------

    def _prefill(self, draws: list[Draw]) -> _Batch:
        """These rows with logits after their prompts. Equal prompts are computed once, and of
        each what is not kept."""
        torch = self.torch
        different: dict[tuple[Source, tuple[int, ...]], Draw] = {}
        for draw in draws:
            one = different.setdefault((draw.source, draw.prompt), draw)
            one.keep |= draw.keep
        rows = list(different.values())
        found = [self._known(draw) for draw in rows]
        kept = [known for _, known in found]
        new = [len(draw.prompt) - known for draw, known in zip(rows, kept, strict=True)]
        before, width = max(kept), max(new)
        ids = torch.tensor(
            [
                [0] * (width - n) + list(draw.prompt[k:])
                for draw, k, n in zip(rows, kept, new, strict=True)
            ],
            device=self.device,
        )
        places = torch.tensor(
            [[0] * (width - n) + list(range(k, k + n)) for k, n in zip(kept, new, strict=True)],
            device=self.device,
        )
        shown = [
            [0] * (before - k) + [1] * k + [0] * (width - n) + [1] * n
            for k, n in zip(kept, new, strict=True)
        ]
        mask = torch.tensor(shown, device=self.device)
        full = all(k == before and n == width for k, n in zip(kept, new, strict=True))
        cache = self._filled([path for path, _ in found], kept, before) if before else None
        out = self._forward(
            ids, None if full else mask, places, cache, [draw.source for draw in rows]
        )
        batch = _Batch(
            rows,
            [len(draw.prompt) for draw in rows],
            new,
            out.past_key_values,
            mask,
            out.logits[:, -1],
        )
        for row, draw in enumerate(rows):
            draw.cached = kept[row]
            if draw.keep and self.joins:
                self.kept.keep(draw.source, draw.prompt, self._states(batch, row))
        if len(rows) == len(draws):
            return batch
        number = {key: at for at, key in enumerate(different)}
        back = [number[draw.source, draw.prompt] for draw in draws]
        for draw, row in zip(draws, back, strict=True):
            draw.cached = kept[row] if draw is rows[row] else len(draw.prompt)
        return self._selected(batch, back, draws)

    def _filled(
        self, paths: Sequence[Sequence[tuple[Segment, int]]], kept: Sequence[int], width: int
    ) -> Any:
        """A cache [B, width] with what is kept of each row at its right end."""
        from transformers import DynamicCache

        like = next(path[0][0].states for path in paths if path)
        states = like.new_zeros(like.shape[0], len(paths), like.shape[1], width, like.shape[3])
        for row, (path, length) in enumerate(zip(paths, kept, strict=True)):
            at = width - length
            for segment, count in path:
                states[:, row, :, at : at + count] = segment.states[:, :, :count]
                at += count
        cache = DynamicCache()
        for layer in range(len(states) // 2):
            cache.update(states[2 * layer], states[2 * layer + 1], layer)
        return cache

    def _states(self, batch: _Batch, row: int) -> Callable[[int], Any]:
        """Keys and values [S, H, T, D] of a row's tokens from a given one on, copied out of the
        cache."""

        def states(start: int) -> Any:
            missing = batch.lengths[row] - start
            columns: Any = slice(batch.mask.shape[1] - missing, None)
            if missing > batch.fresh[row]:
                columns = batch.mask[row].nonzero()[start:, 0]
            return self.torch.stack(
                [
                    states[row][:, columns]
                    for layer in batch.cache.layers
                    for states in (layer.keys, layer.values)
                ]
            )

        return states

    def _selected(self, batch: _Batch, rows: list[int], draws: list[Draw]) -> _Batch:
        index = self.torch.tensor(rows, device=self.device)
        batch.cache.batch_select_indices(index)
        lengths, fresh = [batch.lengths[row] for row in rows], [batch.fresh[row] for row in rows]
        return _Batch(draws, lengths, fresh, batch.cache, batch.mask[index], batch.logits[index])

    def _join(self, parts: list[_Batch]) -> _Batch:
        """One batch of all rows, padded on the left to the widest."""
        if len(parts) == 1:
            return parts[0]
        torch, pad = self.torch, self.torch.nn.functional.pad
        width = max(part.mask.shape[1] for part in parts)
        cache = parts[0].cache
        for layer, others in zip(
            cache.layers, zip(*(part.cache.layers for part in parts), strict=True), strict=True
        ):
            keys = torch.cat(
                [pad(other.keys, (0, 0, width - other.keys.shape[2], 0)) for other in others]
            )
            values = torch.cat(
                [pad(other.values, (0, 0, width - other.values.shape[2], 0)) for other in others]
            )
            layer.keys, layer.values = keys, values
        return _Batch(
            [draw for part in parts for draw in part.draws],
            [length for part in parts for length in part.lengths],
            [fresh for part in parts for fresh in part.fresh],
            cache,
            torch.cat([pad(part.mask, (width - part.mask.shape[1], 0)) for part in parts]),
            torch.cat([part.logits for part in parts]),
        )

    def _tidy(self, batch: _Batch) -> _Batch:
        """Without columns that only hold padding, where there are many."""
        width, longest = batch.mask.shape[1], max(batch.lengths)
        if width <= longest + max(32, longest // 4):
            return batch
        order = batch.mask.argsort(dim=1, stable=True)[:, width - longest :]
        for layer in batch.cache.layers:
            index = order[:, None, :, None].expand(-1, layer.keys.shape[1], -1, layer.keys.shape[3])
            layer.keys, layer.values = layer.keys.gather(2, index), layer.values.gather(2, index)
        batch.mask, batch.fresh = batch.mask.gather(1, order), list(batch.lengths)
        return batch

    def _step(self, batch: _Batch) -> tuple[_Batch | None, list[Draw]]:
        """One token for every row; the rows that go on with their next logits, and those that
        have ended."""
        torch = self.torch
        chosen, logprobs = drawn(torch, batch.logits.float() + self.banned, batch.draws)
        staying, ended = [], []
        for row, draw in enumerate(batch.draws):
            draw.ids.append(chosen[row])
            draw.logprobs.append(logprobs[row])
            draw.room -= 1
            if isinstance(draw.choices, dict):
                draw.choices = draw.choices[chosen[row]]
            elif draw.choices is not None:
                draw.choices.after(chosen[row])
            if chosen[row] in self.ends or stopped(draw, self.text):
                draw.finish = "stop"
            elif draw.room > 0:
                staying.append(row)
                continue
            ended.append(draw)
            if draw.keep and self.joins:
                self.kept.keep(
                    draw.source, (*draw.prompt, *draw.ids[:-1]), self._states(batch, row)
                )
        if not staying:
            return None, ended
        if ended:
            batch = self._selected(batch, staying, [batch.draws[row] for row in staying])
            if self.joins:
                batch = self._tidy(batch)
        batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(staying), 1)], 1)
        full = min(batch.lengths) == batch.mask.shape[1] - 1
        last = torch.tensor([[draw.ids[-1]] for draw in batch.draws], device=self.device)
        places = torch.tensor([[length] for length in batch.lengths], device=self.device)
        batch.logits = self._forward(
            last,
            None if full else batch.mask,
            places,
            batch.cache,
            [draw.source for draw in batch.draws],
        ).logits[:, -1]
        batch.lengths = [length + 1 for length in batch.lengths]
        batch.fresh = [fresh + 1 for fresh in batch.fresh]
        return batch, ended

    # -- the module -------------------------------------------------------------------------------

    def _forward(
        self, ids: Any, mask: Any, places: Any, cache: Any, sources: Sequence[Source]
    ) -> Any:
        """One pass; where the memory of the device is full, all kept KV is dropped and the pass
        is tried once more."""
        try:
            return self._module(ids, mask, places, cache, sources)
        except self.torch.OutOfMemoryError:
            if not self.kept.tokens:
                raise
            self.kept.clear()
            self.torch.cuda.empty_cache()
            # some layers may have taken the new tokens already
            for layer in cache.layers if cache is not None else ():
                before = mask.shape[1] - ids.shape[1] if mask is not None else int(places[0, 0])
                layer.keys, layer.values = layer.keys[:, :, :before], layer.values[:, :, :before]
            return self._module(ids, mask, places, cache, sources)

    def _module(
        self, ids: Any, mask: Any, places: Any, cache: Any, sources: Sequence[Source]
    ) -> Any:
        given = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": places,
            "past_key_values": cache,
        }
        with self.route(sources):
            return self.model(**given, use_cache=True, logits_to_keep=1)
