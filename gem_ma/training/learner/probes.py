"""The parity check of a publish: does the sampler say what the learner's weights say, on tokens
that it samples now?

Knows a learner and its sampler; the statistic is that of `gem_ma.training.learner.parity`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gem_ma.engines.base import stable_seed
from gem_ma.engines.local.decoding import Decoder
from gem_ma.engines.local.sampling import Source
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.models.settings import Memory
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Message, Sampling
from gem_ma.training.learner.parity import (
    ELSEWHERE,
    FLOOR,
    FLOOR_ELSEWHERE,
    SAME,
    Array,
    Gap,
    gap,
    lag,
)
from gem_ma.training.learner.rows import Row
from gem_ma.training.learner.trained import PROBES, Spares, Trained

# The same draws again. Rounding hides a small step of learning from every statistic, but the same
# prompts, seeds and weights on the same way round alike. So the learner draws once more with its
# own weights, its own adapter and nothing kept: what differs is a fault, however small, such as a
# stale cache, another adapter, or weights that change while they are sampled from. Not every
# machine repeats itself to the last bit; that is tried when a learner is made, and before a fault
# is told.

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
    """Whose weights draw again: the learner's where it shares the module of its sampler, else the
    sampler's own, since a copy may round otherwise by where it lies in memory, and its weights are
    compared bit for bit anyway. None: the sampler is elsewhere."""
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
    there is a fault. None where nothing can be said: the sampler is elsewhere, this machine does
    not repeat itself, or the weights are those of the last publish, so that what is kept may
    rightly be used."""
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


# replies of a check that are sampled in all, tokens of each
DRAWS = 8
PROBE_TOKENS = 16
# times as many replies where draws cannot be repeated, so that a small step shows in their sum
MORE = 4
# a sampler that is held to the last bit is looked at in full at every eighth publish; between them
# a glance at so few prompts, in turn, is enough: a fifth of the cost on a model of 135M parameters
FULL_EVERY = 8
GLANCES = 2
GLANCE_TOKENS = 2  # of each: the second is drawn from what was kept of the first
# tokens at the end of a prompt that noise is measured on too: a reply may be of one token
HEARD = 32
Pair = tuple[Sequence[int], Sequence[int]]  # prompt, sampled ids


def check(learner: Trained) -> dict[str, float]:
    """parity_gap and parity_mean (nats, largest and mean), parity_noise (nats, between two ways
    that the learner computes them on) and parity_share (of what is allowed). Raises EngineError
    where that is more than noise explains; the sampler then refuses to sample."""
    if odd := _unequal(learner):
        learner.sampler.unpublished = True
        many = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        raise EngineError(
            f"policy {learner.policy!r}: sampler and learner differ in {odd[0]}{many} at version"
            f" {learner.version}; not published"
        )
    # by the version alone, so that a resumed training looks as one that was never interrupted
    rarely = learner.repeats and learner.version % FULL_EVERY and learner.noise is not None
    measured = (glance(learner) if rarely else None) or measure(learner)
    servers = learner.sampler if isinstance(learner.sampler, Spares) else None
    while not measured.fits and servers is not None and servers.spare():
        measured = measure(learner)
    if not measured.fits:
        learner.sampler.unpublished = True
        by = f", published by {learner.sampler.route}" if learner.sampler.route else ""
        raise EngineError(
            f"policy {learner.policy!r}: sampler and learner differ by {measured.mean:.3g} nats at"
            f" version {learner.version}{by} ({measured}); the weights are not published. Where the"
            " sampler's kernels are to blame, allow more: policies.NAME.parity, in nats"
        )
    return {
        "parity_gap": measured.largest,
        "parity_mean": measured.mean,
        "parity_noise": learner.noise or 0.0,
        "parity_share": measured.share,
        **(servers.numbers() if servers is not None else {}),
    }


def measure(learner: Trained) -> Gap:
    """The gap over tokens that are sampled now, after a few prompts; the noise is measured on them
    too. Weights and draws of a sampler in this process are compared to the last bit besides; of one
    elsewhere it is looked whether it lacks the last step. `policies.NAME.parity` bends neither."""
    count = max(DRAWS if learner.repeats else MORE * DRAWS, len(_prompts(learner)))
    asked = _asked(learner, count, PROBE_TOKENS)
    with learner.engine.lock:
        draws, shares = _draws(learner, asked)
        spoken = _spoken(asked, draws)
        scored: list[Array] = []
        if spoken:
            elsewhere = "the same draws again" not in shares
            scored, learner.noise, steps = _scored(learner, spoken, stepped=elsewhere)
            if steps is not None:
                sampled = [np.array(draw.logprobs, np.float64) for draw in draws if draw.ids]
                shares["what the last step moved"] = _lag(spoken, sampled, scored, steps)
    return _gap(learner, draws, scored, shares)


def glance(learner: Trained) -> Gap | None:
    """The gap over the first tokens after two of the prompts, others at each version, in the noise
    that was measured last. None where nothing can be drawn again: only the last bit shows a fault
    on so few tokens."""
    asked = _asked(learner, GLANCES, GLANCE_TOKENS, learner.version * GLANCES)
    with learner.engine.lock:
        draws, shares = _draws(learner, asked)
        if "the same draws again" not in shares:
            return None
        spoken = _spoken(asked, draws)
        looked = _gap(learner, draws, learner.scorer.score(spoken), shares)
        if looked.fits or not spoken:
            return looked
        # noise may have grown since it was measured, as a policy becomes sharp
        scored, learner.noise, _ = _scored(learner, spoken)
    return _gap(learner, draws, scored, shares)


def _prompts(learner: Trained) -> Sequence[tuple[int, ...]]:
    return learner.probes or [learner.engine.chat.render("x", (Message("hello"),))]


def _asked(learner: Trained, count: int, tokens: int, start: int = 0) -> Asked:
    """So many draws of so many tokens, after the prompts in turn from `start` on."""
    different = _prompts(learner)
    prompts = [
        *learner.sampler.probes,
        *(different[(start + number) % len(different)] for number in range(count)),
    ]
    how = Sampling(temperature=learner.temperature, max_tokens=tokens)
    seeds = [stable_seed("probe", learner.version, number) for number in range(len(prompts))]
    return prompts, [how] * len(prompts), seeds


def _draws(learner: Trained, asked: Asked) -> tuple[Sequence[Any], dict[str, float]]:
    """The sampler's draws [B], and the shares of what is compared bit for bit."""
    draws = learner.sampler.sample_ids(*asked)
    again = share(learner, asked, draws)
    shares = {"the weights": float("inf") if _unequal(learner) else 0.0}
    if again is not None:
        shares["the same draws again"] = again
    return draws, shares


def _spoken(asked: Asked, draws: Sequence[Any]) -> list[Pair]:
    return [(prompt, draw.ids) for prompt, draw in zip(asked[0], draws, strict=True) if draw.ids]


def _gap(
    learner: Trained, draws: Sequence[Any], scored: Sequence[Array], shares: dict[str, float]
) -> Gap:
    """The statistic over all draws that have a token; `scored` is in their order."""
    spoken = [draw for draw in draws if draw.ids]
    if not spoken:
        return gap(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), 0.0, learner.dtype, shares)
    return gap(
        np.concatenate([np.array(draw.logprobs, np.float64) for draw in spoken]),
        np.concatenate(list(scored)),
        np.repeat(np.arange(len(spoken)), [len(draw.ids) for draw in spoken]),
        allowed_gap(learner),
        learner.dtype,
        shares,
    )


def noise_of(learner: Trained, rows: Sequence[Row]) -> float:
    pairs: list[Pair] = []
    for row in rows:
        first = int(row.mask.argmax())
        length = int((~row.mask[first:]).argmax()) or len(row.ids) - first
        end = first + min(length, PROBE_TOKENS)
        pairs.append((row.ids[:first].tolist(), row.ids[first:end].tolist()))
    return _scored(learner, pairs)[1]


def _scored(
    learner: Trained, pairs: Sequence[Pair], *, stepped: bool = False
) -> tuple[list[Array], float, list[Array] | None]:
    """(log-probabilities of the ids of each pair, unit of noise in nats, steps).

    The noise is measured on the end of each prompt too, see `_looked`. Steps: with `stepped`, where
    the weights of before are known, what the last step took from each of those log-probabilities;
    scored on the second way alone, see `lag`.
    """
    cuts = [max(1, len(prompt) - HEARD) for prompt, _ in pairs]
    if learner.sight is not None:  # the second way takes no images behind a cut
        images = [learner.sight.behind(prompt) for prompt, _ in pairs]
        cuts = [max(pair) for pair in zip(cuts, images, strict=True)]
    longer: list[Pair] = [
        (prompt[:cut], [*prompt[cut:], *ids])
        for (prompt, ids), cut in zip(pairs, cuts, strict=True)
    ]
    scores = learner.scorer.score(longer)
    looked = _looked([prompt for prompt, _ in pairs])
    again = learner.scorer.score_again([longer[number] for number in looked])
    noise = learner.scorer.noise(again, [scores[number] for number in looked])
    steps = None
    if stepped and learner.before and (now := learner.scorer.score_again(pairs)) is not None:
        with learner.holding(learner.before):
            old = learner.scorer.score_again(pairs) or now
        steps = [then - values for then, values in zip(old, now, strict=True)]
    ends = [one[len(one) - len(ids) :] for one, (_, ids) in zip(scores, pairs, strict=True)]
    return ends, noise, steps


def _looked(prompts: Sequence[Sequence[int]]) -> list[int]:
    """On which pairs noise is measured, by the prompts of all: one of each prompt, and where these
    are fewer than probes may be, others of the same prompts."""
    once = {tuple(prompt): number for number, prompt in enumerate(prompts)}
    rest = sorted(set(range(len(prompts))) - set(once.values()))
    return [*once.values(), *rest[: max(0, PROBES - len(once))]]


def _lag(
    pairs: Sequence[Pair], sampled: Sequence[Array], scored: Sequence[Array], steps: Sequence[Array]
) -> float:
    """The share of a lag. Each token counts once: equal ones after an equal text are off by the
    same."""
    places = [(prompt, tuple(ids[: at + 1])) for prompt, ids in pairs for at in range(len(ids))]
    once = list({place: number for number, place in enumerate(places)}.values())
    theirs, mine, step = (np.concatenate(list(values))[once] for values in (sampled, scored, steps))
    return lag(theirs - mine, step, mine)


def allowed_gap(learner: Trained) -> float:
    """Nats that sampler and learner may differ in, in the mean over tokens: as set, or so many
    units of noise."""
    if learner.sampler.parity is not None:
        return learner.sampler.parity
    floor = FLOOR[learner.dtype]
    noise = floor if learner.noise is None else learner.noise
    if isinstance(learner.sampler, type(learner.engine)):
        return SAME * noise
    return ELSEWHERE * max(noise, FLOOR_ELSEWHERE * floor)


def _unequal(learner: Trained) -> list[str]:
    """Names of the weights that a sampler in this process has not as the learner has them: copies
    bit for bit; what they share must be the very weights that learn, not another adapter's."""
    sampler = learner.sampler
    if not isinstance(sampler, type(learner.engine)):
        return []
    theirs = sampler.weights()
    equal = operator.is_ if sampler is learner.engine else learner.torch.equal
    pairs = ((name, mine, theirs.get(name)) for name, mine in learner.parameters.items())
    return [name for name, mine, other in pairs if other is None or not equal(mine, other)]
