"""Does a vLLM read out with the embeddings that are published to it?

In a model with tied embeddings one matrix embeds and reads out. A build of vLLM that keeps a packed
copy of the output head (its CPU build does) takes new weights without a word and goes on with the
old head. Which builds do is not known here, so it is tried before anything is learned: embeddings
are published that no head of before fits, and the parity check looks at what is sampled then.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gem_ma.kernel.errors import ConfigError, EngineError

PARTS = (
    "a learner in parts cannot try whether vLLM keeps the old output head of a model with tied"
    " embeddings"
)


def try_head(learner: Any) -> None:
    """Publishes other embeddings, checks parity, and publishes those of the learner again. Raises
    ConfigError where the head did not follow. Nothing of the learner is changed."""
    sampler = learner.sampler
    model = learner.engine.model
    shared = model.get_input_embeddings().weight
    name = next(name for name, weight in learner.parameters.items() if weight is shared)
    own = {each: weight.data for each, weight in learner.parameters.items()}
    # each token gets the embedding of its neighbour: under the old head every answer is another
    with learner.holding({**own, name: own[name].roll(1, 0)}):
        sampler.take(learner.parameters)
        try:
            learner.check()
        except EngineError as error:
            failed: EngineError | None = error
        else:
            failed = None
    if failed is not None:
        with suppress(EngineError):  # a server goes on with what it had; what matters is said below
            sampler.take(learner.parameters)
        raise ConfigError(
            f"{sampler.where}: this vLLM keeps the old output head of a model with tied embeddings,"
            f" as was tried; add lora: {{rank: 8}} ({failed})"
        ) from failed
    sampler.take(learner.parameters)
    sampler.unpublished = False
