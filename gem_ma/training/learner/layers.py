"""The repeated layers of a model: most of its weights, and most of what a backward pass keeps.

Knows modules, but not rows or losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any


def layers(model: Any) -> list[Any]:
    """The layers of a model in their order: the members of its outermost lists of modules.

    Experts of a layer are such a list too, and belong to their layer.
    """
    import torch

    members: list[Any] = []
    for child in model.children():
        members += list(child) if isinstance(child, torch.nn.ModuleList) else layers(child)
    return members


@contextmanager
def recomputed(model: Any) -> Iterator[None]:
    """Inside, a layer keeps what it was given instead of what it computed, and computes that again
    when its gradient is asked for (Chen et al. 2016, arXiv 1604.06174).

    The same numbers, for one more forward pass. Passes without gradients stay as they are.
    """
    # of its own only where something has wrapped it, such as accelerate's `device_map`
    before = [(layer, vars(layer).get("forward")) for layer in layers(model)]
    for layer, _ in before:
        layer.forward = _again(layer.forward)
    try:
        yield
    finally:
        for layer, wrapped in before:
            del layer.forward  # that of its class shows again
            if wrapped is not None:
                layer.forward = wrapped


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    import torch
    from torch.utils.checkpoint import checkpoint

    def run(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        # A GPU's backward pass runs in a thread of its own, which knows nothing of the adapters
        # that are chosen here.
        here = copy_context()
        # no dropout, so there is no random state to keep
        return checkpoint(
            here.run, forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named
        )

    return run
