"""The parity check of a publish: does the sampler say what the learner's weights say, on tokens
that it samples now?

Knows a learner and its sampler; the statistic is that of `gem_ma.training.parity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.base import stable_seed
from gem_ma.errors import EngineError
from gem_ma.training.parity import ELSEWHERE, FLOOR, FLOOR_ELSEWHERE, SAME, Gap, gap
from gem_ma.training.rows import Row
from gem_ma.types import Message, Sampling

if TYPE_CHECKING:
    from gem_ma.training.learner import TorchLearner

# prompts of a check, replies that are sampled in all, tokens of each
PROBES, DRAWS, PROBE_TOKENS = 4, 8, 16
# tokens at the end of a prompt that noise is measured on too: a reply may be of one token
HEARD = 32
Pair = tuple[Sequence[int], Sequence[int]]  # prompt, sampled ids


def check(learner: TorchLearner) -> dict[str, float]:
    """parity_gap and parity_mean (nats, largest and mean), parity_noise (nats, between two ways
    that the learner computes them on) and parity_share (of what is allowed).

    Raises EngineError where that is more than noise explains; the sampler then refuses to
    sample.
    """
    _same_weights(learner)
    found = measure(learner)
    if not found.fits:
        learner.sampler.unpublished = True
        by = f", published by {learner.sampler.route}" if hasattr(learner.sampler, "route") else ""
        raise EngineError(
            f"policy {learner.policy!r}: sampler and learner differ by {found.mean:.3g} nats at"
            f" version {learner.version}{by} ({found}); the weights are not published. Where the"
            " sampler's kernels are to blame, allow more: policies.NAME.parity, in nats"
        )
    return {
        "parity_gap": found.largest,
        "parity_mean": found.mean,
        "parity_noise": learner.noise or 0.0,
        "parity_share": found.share,
    }


def measure(learner: TorchLearner) -> Gap:
    """The gap over tokens that are sampled now, after a few prompts. The noise is measured on
    them too, and the learner remembers it."""
    sampler = learner.sampler
    different = learner.probes or [learner.engine.chat.render("x", (Message("hello"),))]
    prompts = [
        *getattr(sampler, "probes", ()),
        *(different[at % len(different)] for at in range(max(DRAWS, len(different)))),
    ]
    how = Sampling(temperature=learner.temperature, max_tokens=PROBE_TOKENS)
    with learner.engine.lock:
        draws = sampler.sample_ids(
            prompts,
            [how] * len(prompts),
            [stable_seed("probe", learner.version, at) for at in range(len(prompts))],
        )
        asked = [(prompt, draw) for prompt, draw in zip(prompts, draws, strict=True) if draw.ids]
        if not asked:
            return Gap(0.0, 0.0, 0.0, {"the mean": 0.0})
        scored, learner.noise = _scored(learner, [(prompt, draw.ids) for prompt, draw in asked])
    reply = np.repeat(np.arange(len(asked)), [len(draw.ids) for _, draw in asked])
    sampled = np.concatenate([np.array(draw.logprobs, np.float64) for _, draw in asked])
    return gap(sampled, np.concatenate(scored), reply, allowed_gap(learner), learner.dtype)


def noise_of(learner: TorchLearner, rows: Sequence[Row]) -> float:
    """The unit of noise on the first replies of these rows, in nats."""
    pairs: list[Pair] = []
    for row in rows:
        first = int(row.mask.argmax())
        length = int((~row.mask[first:]).argmax()) or len(row.ids) - first
        pairs.append(
            (row.ids[:first].tolist(), row.ids[first : first + min(length, PROBE_TOKENS)].tolist())
        )
    return _scored(learner, pairs)[1]


def _scored(
    learner: TorchLearner, pairs: Sequence[Pair]
) -> tuple[list[NDArray[np.float64]], float]:
    """(log-probabilities of the ids of each pair, unit of noise in nats). The noise is measured
    on the end of each prompt too, once a prompt."""
    cuts = [max(1, len(prompt) - HEARD) for prompt, _ in pairs]
    longer: list[Pair] = [
        (prompt[:cut], [*prompt[cut:], *ids])
        for (prompt, ids), cut in zip(pairs, cuts, strict=True)
    ]
    found = learner.scorer.score(longer)
    once = list({tuple(prompt): at for at, (prompt, _) in enumerate(pairs)}.values())
    noise = learner.scorer.noise([longer[at] for at in once], [found[at] for at in once])
    return [one[len(one) - len(ids) :] for one, (_, ids) in zip(found, pairs, strict=True)], noise


def allowed_gap(learner: TorchLearner) -> float:
    """Nats that sampler and learner may differ in, in the mean over tokens: as set, or so many
    units of noise."""
    if learner.sampler.parity is not None:
        return learner.sampler.parity
    floor = FLOOR[learner.dtype]
    noise = floor if learner.noise is None else learner.noise
    if isinstance(learner.sampler, type(learner.engine)):
        return SAME * noise
    return ELSEWHERE * max(noise, FLOOR_ELSEWHERE * floor)


def _same_weights(learner: TorchLearner) -> None:
    """Of a sampler in this process the weights are compared bit for bit, so old ones are found
    however little they differ."""
    sampler = learner.sampler
    if sampler is learner.engine or not isinstance(sampler, type(learner.engine)):
        return
    theirs = sampler.weights()
    odd = [
        name
        for name, weight in learner.parameters.items()
        if not learner.torch.equal(weight, theirs[name])
    ]
    if odd:
        sampler.unpublished = True
        many = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        raise EngineError(
            f"policy {learner.policy!r}: sampler and learner differ in {odd[0]}{many} at version"
            f" {learner.version}; not published"
        )
