"""The same draws again: does a sampler of this process say, number for number, what the learner's
weights say on the same way?

Rounding hides a small step of learning from every statistic. But the same prompts, seeds and
weights on the same way round alike, so the learner draws once more with its own weights, its own
adapter and nothing kept: what differs is a fault, however small. It finds what is stale in a cache,
another adapter and weights that are changed while they are sampled from.

Not every machine repeats itself to the last bit. So that is tried when a learner is made, and
before a fault is reported. Knows decoders, but not statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gem_ma.engines.local.decoding import Decoder
from gem_ma.engines.local.sampling import Source
from gem_ma.engines.local.settings import Memory
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner.trained import Trained

# nats; numbers that differ, differ by more
LAST_BIT = {"float32": 1e-8, "bfloat16": 1e-5, "float16": 1e-6}
TRIED = 24  # ids of the prompts that a machine is tried on
# tokens of each reply that are drawn again: what is wrong with a prompt or with weights shows in
# the first
REPEATED = 4
# prompts, samplings, seeds
Asked = tuple[Sequence[tuple[int, ...]], Sequence[Sampling], Sequence[int]]


def cold(engine: Transformers, asked: Asked) -> list[Any]:
    """The draws of an engine's weights and adapter [B], by a token loop of their own.

    It has kept nothing, and takes nothing from the loop that is looked at but its bounds. The
    adapter is chosen around it, as for the learner's passes: a loop that takes another is found.
    """
    bounds = engine.decoder
    loop = Decoder(
        engine.torch,
        engine.model,
        engine.vocabulary,
        engine.banned,
        Memory(bounds.padded_tokens, bounds.kv_tokens),
        positions=engine.positions,
    )
    source = Source(engine.adapter, engine.version, f"policy {engine.policy!r}")
    with engine.lock, engine.active():
        return loop.sample(*asked, [source] * len(asked[0]), keep=engine.kv_tokens != 0)


def apart(draws: Sequence[Any], others: Sequence[Any]) -> float:
    """The largest difference of draws in nats, as far as both go; infinity where they chose
    different ids."""
    largest = 0.0
    for draw, other in zip(draws, others, strict=True):
        both = min(len(draw.ids), len(other.ids))
        if list(draw.ids[:both]) != list(other.ids[:both]):
            return float("inf")
        pairs = zip(draw.logprobs[:both], other.logprobs[:both], strict=True)
        largest = max([largest, *(abs(mine - theirs) for mine, theirs in pairs)])
    return largest


def _memory(learner: Trained) -> Transformers | None:
    """Whose weights draw again: the learner's where it shares the module of its sampler, or else
    the sampler's own.

    A copy of a module may round otherwise by where it lies in memory, and its weights are
    compared bit for bit anyway. None: the sampler is elsewhere.
    """
    sampler: Any = learner.sampler
    if not isinstance(sampler, type(learner.engine)):
        return None
    return learner.engine if sampler.model is learner.engine.model else sampler


def repeats(learner: Trained) -> bool:
    """Whether sampler and learner agree to the last bit on this machine, as they stand when a
    learner is made."""
    engine = _memory(learner)
    sampler = learner.sampler
    if engine is None or not isinstance(sampler, type(engine)):
        return False
    usual = (engine.banned == 0).nonzero()[:, 0].tolist()
    ids = tuple(usual[at % len(usual)] for at in range(2, TRIED + 2))
    how = Sampling(temperature=learner.temperature, max_tokens=3)
    asked: Asked = ((ids, ids[: TRIED // 2]), (how, how), (0, 1))
    try:
        return apart(cold(sampler, asked), cold(engine, asked)) == 0
    except EngineError:  # weights that give no numbers: the check itself says so
        return False


def _crowded(engine: Transformers, prompts: Sequence[tuple[int, ...]], longest: int) -> bool:
    """Whether these prompts are cut into batches, or what is kept of them is dropped, by what
    else there is."""
    decoder = engine.decoder
    tokens = len(prompts) * (longest + max(map(len, prompts)))
    return tokens > decoder.padded_tokens or 2 * tokens > decoder.kv_cache.limit > 0


def share(learner: Trained, asked: Asked, draws: Sequence[Any]) -> float | None:
    """How far draws of the sampler are from those drawn again, in parts of a last bit; above 1
    there is a fault.

    None where nothing can be said: the sampler is elsewhere, this machine does not repeat
    itself, or the weights are those of the last publish, so that what is kept may rightly be
    used.
    """
    engine = _memory(learner)
    if engine is None or not learner.repeats:
        return None
    untouched = learner.sampler is learner.engine and learner.stamp() == learner.published
    prompts, how, seeds = asked
    if untouched or _crowded(engine, prompts, max(one.max_tokens for one in how)):
        return None
    short = [replace(one, max_tokens=min(one.max_tokens, REPEATED)) for one in how]
    again = cold(engine, (prompts, short, seeds))
    gap = apart(draws, again) / LAST_BIT[learner.dtype]
    if gap > 1 and apart(cold(engine, (prompts, short, seeds)), again) > 0:
        learner.repeats = False
        return None
    return gap
