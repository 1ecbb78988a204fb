"""Behind the trunk: hidden states -> log-probabilities of given ids, and their gradients, with as
few copies of the logits as can be.

Knows tensors and a causal language model; knows no rows and no loss. Axes: c places of one
chunk, D width of the trunk, V ids.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

# score of an id that may not be chosen: its probability is 0, and finite, so that 0 * NEVER is 0
# and no NaN
NEVER = -1e30
REFUSED = -1e20  # a log-probability below this is that of such an id


class _Hidden:
    """What a trunk gives, and None for all else that a model may ask of it."""

    def __init__(self, states: Any) -> None:
        self.last_hidden_state = states

    def __getitem__(self, index: int) -> Any:
        return self.last_hidden_state if index == 0 else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` and `pickle` look for these, and None is no method
            raise AttributeError(name)
        return None


@cache
def _trunk() -> Any:
    """A module that stands where the trunk was, and hands on what it gets."""
    import torch

    class PassThrough(torch.nn.Module):
        def forward(self, *_: Any, inputs_embeds: Any = None, **__: Any) -> Any:
            return _Hidden(inputs_embeds)

    return PassThrough()


def behind(model: Any) -> Callable[[Any], Any]:
    """What a causal language model does behind its trunk: hidden states [c, D] -> logits [c, V].

    It is the model's own code, with another module in the place of its trunk: so its head with
    bias, adapter and tied weights counts, and whatever scales or caps logits after it. The model
    itself stays as it is.
    """
    shell = copy.copy(model)  # shallow: it shares all weights
    shell.__dict__["_modules"] = {**model._modules, model.base_model_prefix: _trunk()}
    shell.__dict__.pop("forward", None)  # bound to the whole model where something has wrapped it
    return lambda hidden: shell(inputs_embeds=hidden[None], use_cache=False).logits[0]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """How ids were chosen: `banned` [b] never; `may` [c, V] where places were bound to some ids;
    after division by the temperature."""

    banned: Any
    may: Any = None
    temperature: float = 1.0


def chosen(logits: Any, target: Any, how: Choice, spread: bool | None = False) -> tuple[Any, Any]:
    """(log-probability [c] of the ids `target` [c], entropy [c] in nats) under logits [c, V] of any
    dtype, which are used up.

    `spread`: True = gradients go through the entropy too; False = it is measured only; None = it
    is not computed (0). Softmax is in float32.
    """
    # float() copies rounded logits, and not those in float32: then the caller's are overwritten
    logprobs, entropy = _function().apply(logits.float(), target, how, spread)
    return logprobs, entropy


@cache
def _function() -> Any:
    import torch

    class Chosen(torch.autograd.Function):
        """Works in the memory of the scores: one copy more for the log-softmax is all that ever
        stands beside them."""

        @staticmethod
        def forward(
            ctx: Any, scores: Any, target: Any, how: Choice, spread: bool | None
        ) -> tuple[Any, Any]:
            scores = scores.detach()
            if len(how.banned):
                scores.index_fill_(1, how.banned, NEVER)
            if how.may is not None:
                scores.masked_fill_(~how.may, NEVER)
            if how.temperature != 1:
                scores.div_(how.temperature)
            # in float32 whatever the weights are: bfloat16 has three digits
            logs = scores.log_softmax(-1)
            logprob = logs.gather(1, target[:, None])[:, 0]
            entropy = torch.zeros_like(logprob)
            if ctx.needs_input_grad[0] or spread is not None:
                chances = torch.exp(logs, out=scores)  # the scores are needed no more
                if spread is not None:
                    # a product of matrices: elementwise, p log p would be one more [c, V]
                    entropy = -torch.bmm(chances[:, None], logs[:, :, None])[:, 0, 0]
                ctx.chances = chances
                ctx.logs = logs if spread else None
                ctx.target = target
                ctx.temperature = how.temperature
                ctx.save_for_backward(entropy)
            if not spread:
                ctx.mark_non_differentiable(entropy)
            return logprob.masked_fill(logprob < REFUSED, -torch.inf), entropy

        @staticmethod
        def backward(ctx: Any, pull: Any, pull_entropy: Any) -> tuple[Any, ...]:
            chances = ctx.chances
            (entropy,) = ctx.saved_tensors
            through = None
            if ctx.logs is not None:  # d entropy / d score = - p (log p + entropy)
                through = ctx.logs.add_(entropy[:, None]).mul_(chances).mul_(pull_entropy[:, None])
            # d logprob / d score = onehot(target) - p
            grad = chances.mul_(-pull[:, None])
            grad[torch.arange(len(grad), device=grad.device), ctx.target] += pull
            if through is not None:
                grad.sub_(through)
            ctx.chances = ctx.logs = None  # overwritten by now, so a second backward must fail
            return (grad.div_(ctx.temperature) if ctx.temperature != 1 else grad), None, None, None

    return Chosen
