"""Do sampled tokens have the probabilities that the learner computes for them? They must, where
they were sampled with its present weights.

Every publication checks that on probes (`Learner.publish`). Here it is checked on the tokens of an
update, where they were sampled with the weights that the update begins with. No step of learning
lies between the two, so a difference has another cause, and the update would silently pull in a
wrong direction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Sampling

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
    """{"fresh_gap": mean |sampled - scored|} over the `fresh` tokens [n], in nats; {} where none is
    fresh.

    `sampled`, `scored` [n]: log-probabilities of the sampler and of the learner before its
    update. A mean over an update's tokens, since single tokens of rounded weights lie far off in
    healthy runs.
    """
    return {"fresh_gap": float(np.abs(sampled - scored)[fresh].mean())} if fresh.any() else {}


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
