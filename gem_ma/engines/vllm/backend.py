"""What the vllm engine asks of a vLLM, wherever it runs: draws, with their sampling parameters, and
the prompts of parity checks.

Every field is sent, since a server takes what is missing from the model's
generation_config.json. Ids that are never sampled get a bias of -100 before the temperature,
which leaves them less than e^-50 of the mass at temperature 2, the highest that vLLM takes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeVar

from gem_ma.engines.models.vocabulary import Vocabulary
from gem_ma.kernel.types import Reply, Sampling

# the most that vLLM takes off a logit; its highest temperature
BIAS = -100.0
HOTTEST = 2.0


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA in a folder, under the one name that it is ever loaded by."""

    name: str
    folder: str


@dataclass(frozen=True, slots=True)
class Draw:
    """One thing to sample: after these ids, so many tokens at most, with the weights of `adapter`
    (None: the base alone). `conversation`: whose next turn it is; of several servers, the same one
    is asked."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    room: int
    adapter: Adapter | None = None
    conversation: str = ""


class Parameters:
    """Sampling parameters under the names that vLLM has for them. `banned`: ids that are never
    sampled; `ends`: those that end a turn."""

    def __init__(self, banned: Sequence[int], ends: frozenset[int]) -> None:
        self.ends = sorted(ends)
        self.bias = {int(token): BIAS for token in banned}

    def of(self, wanted: Draw) -> dict[str, Any]:
        """Keywords of `SamplingParams`, and fields of a completion request."""
        how = wanted.sampling
        return {
            "max_tokens": wanted.room,
            # plain numbers: an unset value is of a class of its own, which vLLM cannot hand over to
            # the process of its engine
            "temperature": float(how.temperature),
            "top_p": float(how.top_p),
            "top_k": int(how.top_k),
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": wanted.seed,
            "stop": list(how.stop),
            "stop_token_ids": self.ends,
            "logprobs": 0,  # of the sampled id alone
            "skip_special_tokens": False,
            "logit_bias": self.bias,
        }


T = TypeVar("T")
# Prompts of a parity check, and ids of each: more than three of the largest cache blocks. They run
# together; more would be cut in two, and vLLM's CPU build dies of a seeded request that is cut.
PROBES = 4
PROBE_IDS = 3 * 128 + 36


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
    for first in range(0, len(wanted), PROBES):
        some = wanted[first : first + PROBES]
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

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(whole())).result()
