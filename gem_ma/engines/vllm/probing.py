"""Parity checks of a served policy: which prompts vLLM is asked, and what a learner reads of the
answers.

The prompts are long enough to meet what is stale in a cache, and are asked before and after every
publish. Knows ids and replies; knows no server.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gem_ma.engines.local.vocabulary import Vocabulary
from gem_ma.types import Reply, Sampling

T = TypeVar("T")

# Prompts of a parity check, and ids of each: more than three of the largest cache blocks.
PROBES, PROBE_IDS = 4, 3 * 128 + 36
# Requests of a parity check that run together. More prompts than fit into one of vLLM's batches are
# cut in two there, and its CPU build dies of a seeded request that is cut.
PROBES_AT_ONCE = 4

Ask = Callable[[tuple[int, ...], Sampling, int], Awaitable[Reply]]  # prompt, sampling, seed


@dataclass(frozen=True, slots=True)
class Sampled:
    """One answer of `sample_ids`."""

    ids: list[int]
    logprobs: list[float]
    finish: str


def probe_prompts(vocabulary: Vocabulary, context: int) -> tuple[tuple[int, ...], ...]:
    """Prompts of usual ids, always the same for one vocabulary; half of a short context."""
    rng = random.Random("probes")
    never = vocabulary.banned | vocabulary.ends
    usual = [token for token in range(vocabulary.size) if token not in never]
    length = max(1, min(PROBE_IDS, context // 2))
    return tuple(tuple(rng.choice(usual) for _ in range(length)) for _ in range(PROBES))


async def sampled(
    ask: Ask,
    prompts: Sequence[tuple[int, ...]],
    samplings: Sequence[Sampling],
    seeds: Sequence[int],
) -> list[Sampled]:
    """The answers to these prompts [B], a few at once."""
    draws = list(zip(prompts, samplings, seeds, strict=True))
    replies: list[Reply] = []
    for first in range(0, len(draws), PROBES_AT_ONCE):
        some = draws[first : first + PROBES_AT_ONCE]
        replies += await asyncio.gather(*(ask(*draw) for draw in some))
    return [Sampled(list(reply.token_ids), list(reply.logprobs), reply.finish) for reply in replies]


def blocking(make: Callable[[], Awaitable[T]]) -> T:
    """Runs a coroutine to its end on a loop and thread of its own. A learner calls from anywhere,
    also from a thread that runs a loop."""

    async def whole() -> T:
        return await make()

    results: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(whole()))
        except BaseException as error:  # raised again where it was asked for
            failed.append(error)

    thread = threading.Thread(target=run, name="vllm sampler")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return results[0]
