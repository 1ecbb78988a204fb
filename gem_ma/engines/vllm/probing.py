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
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from gem_ma.engines.local.vocabulary import Vocabulary
from gem_ma.engines.vllm.backend import Draw
from gem_ma.kernel.types import Reply

T = TypeVar("T")

# Prompts of a parity check, and ids of each: more than three of the largest cache blocks.
PROBES = 4
PROBE_IDS = 3 * 128 + 36
# Requests of a parity check that run together. More prompts than fit into one of vLLM's batches are
# cut in two there, and its CPU build dies of a seeded request that is cut.
PROBES_AT_ONCE = 4


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


async def a_few_at_once(
    ask: Callable[[Draw], Awaitable[Reply]], wanted: Sequence[Draw]
) -> list[Reply]:
    """The answers to these draws [B], in their order."""
    replies: list[Reply] = []
    for first in range(0, len(wanted), PROBES_AT_ONCE):
        some = wanted[first : first + PROBES_AT_ONCE]
        replies += await asyncio.gather(*map(ask, some))
    return replies


def apart(replies: Sequence[Reply], others: Sequence[Reply]) -> float:
    """How far two servers are apart in nats, on the same draws [B]: of each draw the mean over the
    tokens that both sampled after the same text, of these the largest.

    Other weights draw other tokens, after which nothing can be compared: infinity where less than a
    quarter of all tokens can be.
    """
    gaps = [0.0]
    compared = 0
    for reply, other in zip(replies, others, strict=True):
        pairs = zip(reply.token_ids, other.token_ids, strict=False)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        compared += same
        if same:
            both = zip(reply.logprobs[:same], other.logprobs[:same], strict=True)
            gaps.append(sum(abs(one - two) for one, two in both) / same)
    whole = sum(len(reply.token_ids) for reply in replies)
    return max(gaps) if 4 * compared >= whole else float("inf")


def recorded(wanted: Draw, drawn: Reply) -> Reply:
    """A reply as it is recorded."""
    if drawn.finish == "context_overflow":
        return replace(drawn, prompt_ids=wanted.prompt)
    if wanted.sampling.temperature == 0:  # the likeliest id is certain
        return replace(drawn, logprobs=(0.0,) * len(drawn.token_ids))
    return drawn


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
