"""Parity: are the log-probabilities of a sampler those of a learner's weights? A statistic over
many tokens, in units of rounding noise.

No two ways of computing agree: a pass over a whole text and a token at a time on a cache differ by
1e-6 nats in float32 and by 1e-2 in bfloat16. So the unit is measured: the learner scores the same
tokens on two ways, and the mean of their differences is what rounding does here.

What is wrong shows in one of these numbers, all divided by what is allowed for them. Differences of
unlikely tokens count less, since their rounding is larger (`evened`):

- the mean difference of all n tokens, with 1 + 3 / sqrt(n) times the bound allowed: old weights, a
  layer off, a wrong adapter;
- the mean difference of one reply of k tokens, with 1 + 9 / sqrt(k) times as much allowed: one
  cache among many that is stale;
- the difference of one token, with 10 times as much allowed;
- the slope of the differences over the log-probabilities, in standard errors: another temperature,
  of which the mean shows little;
- the part of the last step that the sampler lacks, in standard errors (`lag`): old weights show in
  the sum of many tokens where the step is smaller than the rounding of one.

A sampler in this process is held to the last bit instead, see `gem_ma.training.learner.probes`.
numpy only, without a model. Axis: n tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Sampling

Array = NDArray[np.float64]

# nats; below it a measured unit is luck
FLOOR = {"float32": 1e-6, "bfloat16": 1e-3, "float16": 1.5e-4}
# above it the second way is not a measure, but broken
CEILING = {"float32": 5e-5, "bfloat16": 0.1, "float16": 0.02}
# a slope below this is that of a temperature 2 % off at most
TILT = {"float32": 1e-4, "bfloat16": 0.02, "float16": 4e-3}
# units that the mean may be: the same code on another way; other kernels
SAME = 3.0
ELSEWHERE = 6.0
FLOOR_ELSEWHERE = 4.0  # times the floor, for other kernels
FEW = 3.0  # the mean of n tokens may be 1 + 3 / sqrt(n) times the bound
# a token of -2 nats may be off twice as far as a certain one; below -60 no further
RARE = 2.0
LEAST = 60.0
TOKEN = 10.0  # times the mean's bound, for one token
ERRORS = 6.0  # standard errors of a slope
LAG = 0.1  # of a step; what lags by less does no harm
MANY = 32  # tokens, below which the standard error of a lag is too uncertain


def unit(spread: Array, dtype: str) -> float:
    """The unit of noise in nats: the mean of the differences [n] between two ways of scoring,
    within what this dtype can mean."""
    kind = dtype.removeprefix("torch.")
    spread = spread[~np.isnan(spread)]  # what is never sampled has no probability on either way
    if not len(spread):
        return FLOOR[kind]
    return float(np.clip(np.abs(spread).mean(), FLOOR[kind], CEILING[kind]))


def evened(apart: Array, scored: Array) -> Array:
    """Differences [n] in nats, each by what its token may be off: the rounding of a log-probability
    grows with its size (-20 nats are rounded by 2e-5 in float32, others by 3e-7)."""
    return np.abs(apart) / (1 + np.abs(np.clip(scored, -LEAST, 0)) / RARE)


def few(tokens: float) -> float:
    """How many times the bound the mean of so many tokens may be: the mean of few scatters far,
    since noise has long tails."""
    return float(1 + FEW / np.sqrt(max(tokens, 1)))


@dataclass(frozen=True, slots=True)
class Gap:
    """How far sampler and learner are apart, in nats, and each number's share of what is allowed:
    above 1 it is more than rounding."""

    mean: float
    largest: float
    bound: float
    shares: dict[str, float]

    @property
    def share(self) -> float:
        return max(self.shares.values())

    @property
    def fits(self) -> bool:
        """Whether rounding may be all there is; not a number never fits."""
        return self.share <= 1

    def __str__(self) -> str:
        worst = max(self.shares, key=lambda name: self.shares[name])
        most = f"{self.mean:.3g} nats in the mean, {self.largest:.3g} at most"
        return (
            f"{most}; allowed is {self.bound:.3g} in the mean, and {worst} is {self.share:.3g}"
            " times as far off as it may be"
        )


def gap(
    sampled: Array,
    scored: Array,
    reply: NDArray[np.int64],
    bound: float,
    dtype: str,
    others: Mapping[str, float] | None = None,
) -> Gap:
    """Compares log-probabilities [n] of a sampler with the learner's, `reply` [n] saying which
    reply a token is of.

    `bound`: nats that the mean may be. `others`: shares that were found otherwise. Both must be of
    the same weights, as far as anybody knows: tokens of an older version stay out.

    >>> gap(np.full(8, -1.0), np.full(8, -1.5), np.zeros(8, np.int64), 0.1, "float32").fits
    False
    """
    if not len(sampled):
        return Gap(0.0, 0.0, bound, {"the mean": 0.0, **(others or {})})
    raw = np.abs(sampled - scored)
    if not np.isfinite(raw).all():
        return Gap(float("inf"), float("inf"), bound, {"the mean": float("inf")})
    apart = evened(raw, scored)
    _, number, length = np.unique(reply, return_inverse=True, return_counts=True)
    of_reply = np.bincount(number, apart) / length / (1 + (TOKEN - 1) / np.sqrt(length))
    shares = {
        "the mean": apart.mean() / few(len(apart)),
        "one reply": of_reply.max(),
        "one token": apart.max() / TOKEN,
    }
    shares = {name: float(value) / bound for name, value in shares.items()}
    shares["the slope"] = _slope(sampled - scored, scored, dtype)
    return Gap(float(raw.mean()), float(raw.max()), bound, shares | dict(others or {}))


def _slope(apart: Array, scored: Array, dtype: str) -> float:
    """The slope of differences [n] over log-probabilities [n], as a share of what is allowed: a
    temperature T of logits that are scored at 1 has slope 1/T - 1. Its error is that of leaving
    each token out in turn (HC3), since one unlikely token may carry the whole slope."""
    away = scored - scored.mean()
    if len(apart) < 16 or float((away**2).sum()) < 1e-2:
        return 0.0
    slope, error = _fit(away, apart - apart.mean(), 1 / len(apart))
    return abs(slope) / max(ERRORS * error, TILT[dtype.removeprefix("torch.")])


def lag(apart: Array, step: Array, scored: Array) -> float:
    """How much of the last step a sampler lacks, as a share of what is allowed.

    `apart` [n]: sampler minus learner; `step` [n]: what the step took from each log-probability.
    The difference lies along the step by 1 where the sampler has the old weights, by a part of it
    where a cache is stale. The step must be scored on another way than the differences: rounding
    that both have in common would look like a lag. Fewer than MANY tokens say nothing.
    """
    weigh = 1 + np.abs(np.clip(scored, -LEAST, 0)) / RARE  # as in `evened`
    step = step / weigh
    apart = apart / weigh
    if len(apart) < MANY or not np.isfinite(step).all() or float((step**2).sum()) == 0:
        return 0.0
    part, error = _fit(step, apart)
    return max(part, 0.0) / max(ERRORS * few(len(apart)) * error, LAG)


def _fit(over: Array, values: Array, mean: float = 0.0) -> tuple[float, float]:
    """(slope of the values [n] over these numbers [n], its standard error). `mean`: the leverage of
    a mean that was taken out of both."""
    power = float((over**2).sum())
    slope = float((over * values).sum()) / power
    left_out = (values - slope * over) / np.maximum(1 - mean - over**2 / power, 1e-9)
    return slope, float(np.sqrt(((over * left_out) ** 2).sum())) / power


# Do sampled tokens have the probabilities that the learner computes for them? They must, where they
# were sampled with the weights that an update begins with: no step of learning lies between, so the
# update would silently pull in a wrong direction. (A publication checks it on probes.)


SAMPLED = "a learned policy is sampled with temperature above 0, top_p 1 and top_k 0"
CAUSES = (
    "a behaviour that samples with legal strings, tools or options of its own",
    "an engine whose log-probabilities are not those that it drew from",
    "a chat template or tokenizer that is not the learner's",
    "weights that were changed outside of the learner",
)


def unlearnable(sampling: Sampling) -> str | None:
    """The key of a `Sampling` that a loss cannot follow, or None."""
    # truncation takes tokens out of the distribution, and the loss would not know which
    wrong = {
        "temperature": sampling.temperature <= 0,
        "top_p": sampling.top_p < 1,
        "top_k": sampling.top_k > 0,
    }
    return next((key for key, fails in wrong.items() if fails), None)


def check_sampling(policy: str, sampling: Sampling) -> None:
    """Raises ConfigError for a way of sampling that cannot be learned from."""
    if key := unlearnable(sampling):
        raise ConfigError(f"policy {policy!r}: {SAMPLED}; got {key} {getattr(sampling, key):g}")


def fresh_gap(
    sampled: NDArray[np.float64], scored: NDArray[np.float64], fresh: NDArray[np.bool_]
) -> dict[str, float]:
    """{"fresh_gap": nats} of the `fresh` tokens [n], to be held against `Learner.parity`; {} where
    none is fresh. `scored` [n] is of the learner before its update.

    The mean of |sampled - scored|, each `evened`, over what so `few` tokens may scatter. A mean,
    since single tokens of rounded weights lie far off in healthy runs. Tokens of equal probability
    count as one there: the same choice from the same view has the same rounding each time, so a
    thousand copies tell no more than one.
    """
    if not fresh.any():
        return {}
    apart = evened(sampled[fresh] - scored[fresh], scored[fresh])
    distinct = len(np.unique(scored[fresh]))
    return {"fresh_gap": float(apart.mean()) / few(distinct)}


def check_fresh(policy: str, step: int, gap: float | None, parity: float) -> None:
    """Raises EngineError where the fresh tokens of an update lie further off than `parity` nats
    on average. `step` counts from 1; `gap` None: no token is fresh."""
    # not `gap > parity`: a NaN must not pass
    if gap is None or gap <= parity:
        return
    raise EngineError(
        f"policy {policy!r}, step {step}: its tokens were sampled with probabilities that are not"
        f" the learner's: {gap:.3g} nats apart on average, {parity:g} are allowed, though no update"
        f" lies between. Nothing of this step is kept. Likely causes: {'; '.join(CAUSES)}"
    )
