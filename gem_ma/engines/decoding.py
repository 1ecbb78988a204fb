"""The token loop: ids sampled after prompts by a causal language model, with their log-probabilities.

Knows ids, sampling and a module; knows no requests, no text and no policies. A batch is left-padded, with an explicit mask and position ids and a
KV cache. Every row draws from a generator of its own, one uniform number per token of its own (inverse of the cumulated distribution).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from gem_ma.errors import EngineError
from gem_ma.types import Sampling


@dataclass(frozen=True, slots=True)
class Source:
    """Whose weights sample a row: an adapter of the module (None: the module as it is), at a version; `where` begins messages about it.

    What was computed for one source may be used again for an equal one only.
    """

    adapter: str | None = None
    version: int = 0
    where: str = "the model"


@dataclass(slots=True)
class Draw:
    """One row of a running batch: what was sampled so far, and what is left."""

    sampling: Sampling
    rng: random.Random
    room: int  # tokens that may still be sampled
    ids: list[int]
    logprobs: list[float]
    source: Source = Source()
    finish: str = "length"


class Decoder:
    """Samples from `model`. `banned` [vocabulary]: -inf at ids that are never sampled; `ends`: ids that end a row; `positions`: of the model.

    `padded_tokens` bounds one forward pass, padding included. `text(ids, stop)` is used for stop strings only. `route(sources)` makes row k of
    the passes inside it see the adapter of source k.
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
    ) -> None:
        self.torch, self.model, self.banned, self.ends, self.positions = torch, model, banned, ends, positions
        self.device, self.padded_tokens, self.text, self.route = device, padded_tokens, text, route

    def sample(
        self, prompts: Sequence[tuple[int, ...]], samplings: Sequence[Sampling], seeds: Sequence[int], sources: Sequence[Source]
    ) -> list[Draw]:
        """Samples after each prompt [B of ids] with the weights of its source; gives ids, log-probabilities and finish per prompt."""
        draws = [
            Draw(sampling, random.Random(seed), min(sampling.max_tokens, self.positions - len(prompt)), [], [], source)
            for prompt, sampling, seed, source in zip(prompts, samplings, seeds, sources, strict=True)
        ]
        waiting = []
        for row, draw in enumerate(draws):
            if draw.room < 1:
                draw.finish = "context_overflow"
            elif prompts[row]:
                waiting.append(row)
            else:
                raise EngineError(f"{draw.source.where}: an empty prompt cannot be sampled from")
        waiting.sort(key=lambda row: (len(prompts[row]), row))
        with self.torch.inference_mode():
            while waiting:
                take = 1
                while take < len(waiting) and (take + 1) * (len(prompts[waiting[take]]) + draws[waiting[take]].room) <= self.padded_tokens:
                    take += 1
                rows, waiting = waiting[:take], waiting[take:]
                self._loop([prompts[row] for row in rows], [draws[row] for row in rows])
        return draws

    def _loop(self, prompts: list[tuple[int, ...]], draws: list[Draw]) -> None:
        torch = self.torch
        logits, cache, mask = self._prefill(prompts, [draw.source for draw in draws])
        alive = list(range(len(draws)))
        while True:
            chosen, logprobs = self._draw(logits, [draws[row] for row in alive])
            staying = []
            for at, row in enumerate(alive):
                draw = draws[row]
                draw.ids.append(chosen[at])
                draw.logprobs.append(logprobs[at])
                draw.room -= 1
                if chosen[at] in self.ends or self._stopped(draw):
                    draw.finish = "stop"
                elif draw.room > 0:
                    staying.append(at)
            if not staying:
                return
            if len(staying) < len(alive):  # rows that have ended leave the batch
                keep = torch.tensor(staying, device=self.device)
                cache.batch_select_indices(keep)
                mask, alive = mask[keep], [alive[at] for at in staying]
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], 1)
            last = torch.tensor([[draws[row].ids[-1]] for row in alive], device=self.device)
            logits = self._forward(last, mask, cache, [draws[row].source for row in alive]).logits[:, -1]

    def _prefill(self, prompts: list[tuple[int, ...]], sources: Sequence[Source]) -> tuple[Any, Any, Any]:
        """(logits [B, V] after the last prompt token, KV cache, mask [B, T]); equal prompts of one source are computed once.

        The seam for keeping KV across turns: a caller that holds a cache would feed only what is new here.
        """
        torch = self.torch
        different: dict[tuple[tuple[int, ...], Source], int] = {}
        back = [different.setdefault(one, len(different)) for one in zip(prompts, sources, strict=True)]
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt, _ in different], device=self.device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, _ in different], device=self.device)
        out = self._forward(ids, mask, None, [source for _, source in different])
        logits, cache = out.logits[:, -1], out.past_key_values
        if len(different) < len(prompts):
            rows = torch.tensor(back, device=self.device)
            cache.batch_select_indices(rows)
            logits, mask = logits[rows], mask[rows]
        return logits, cache, mask

    def _forward(self, ids: Any, mask: Any, cache: Any, sources: Sequence[Source]) -> Any:
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        with self.route(sources):
            return self.model(
                input_ids=ids,
                attention_mask=None if bool(mask.all()) else mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )

    def _draw(self, logits: Any, draws: list[Draw]) -> tuple[list[int], list[float]]:
        """One id per row [B] and its log-probability, by inverse of the cumulated distribution in float64."""
        torch = self.torch
        scores = logits.float() + self.banned
        temperature = [draw.sampling.temperature for draw in draws]
        if any(t != 1.0 for t in temperature):
            scores = scores / torch.tensor([[t or 1.0] for t in temperature], dtype=torch.float32, device=self.device)
        if any(draw.sampling.top_k > 0 or draw.sampling.top_p < 1 for draw in draws):
            scores = self._filtered(scores, draws)
        logprobs = scores.log_softmax(-1)
        mass = logprobs.double().exp().cumsum(-1)
        total = mass[:, -1:]
        if not bool(total.isfinite().all()):
            bad = int((~total[:, 0].isfinite()).nonzero()[0])
            raise EngineError(f"{draws[bad].source.where}: its weights give no probabilities but NaN; go back to a checkpoint")
        uniform = torch.tensor([[draw.rng.random()] for draw in draws], dtype=torch.float64, device=self.device)
        point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
        chosen = torch.searchsorted(mass, point, right=True)
        taken = logprobs.gather(1, chosen)
        if any(t == 0 for t in temperature):
            greedy = torch.tensor([[t == 0] for t in temperature], device=self.device)
            chosen = torch.where(greedy, scores.argmax(-1, keepdim=True), chosen)
            taken = torch.where(greedy, torch.zeros_like(taken), taken)
        return chosen[:, 0].tolist(), taken[:, 0].tolist()

    def _filtered(self, scores: Any, draws: list[Draw]) -> Any:
        """Scores with -inf outside top_k, and outside the smallest set whose mass reaches top_p; the likeliest id always stays."""
        torch = self.torch
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(scores.shape[1], device=self.device)[None]
        top_k = torch.tensor([[draw.sampling.top_k or scores.shape[1]] for draw in draws], device=self.device)
        top_p = torch.tensor([[draw.sampling.top_p] for draw in draws], dtype=torch.float64, device=self.device)
        kept = ordered.masked_fill(rank >= top_k, -torch.inf)
        mass = kept.double().softmax(-1)
        before = mass.cumsum(-1) - mass
        kept = kept.masked_fill((before >= top_p) & (top_p < 1) & (rank > 0), -torch.inf)
        return torch.empty_like(scores).scatter_(1, order, kept)

    def _stopped(self, draw: Draw) -> bool:
        return any(mark and mark in self.text(draw.ids, ()) for mark in draw.sampling.stop)
