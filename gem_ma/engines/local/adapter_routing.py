"""Which row of a batch sees which adapter: set for a forward pass (`route`), followed by a hook.

Knows modules that hold adapters by name; makes and stores none (`gem_ma.engines.local.adapters`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

# What an adapter adds to the output of its layer, and the gradients of that.
# Knows tensors; knows neither adapters by name nor which row sees which. An adapter of rank r is
# two thin matrices: left to the library, their products cost as much time as those of the layer
# itself, which are r times as wide. So a processor takes a block of rows at a time, that stays in
# its cache between the products, and the gradients are products of the shapes that its kernels are
# fast in.
# Axes: N rows, I inputs and O outputs of the layer, r the rank.

BLOCK = 256  # rows; 128 to 1024 were alike on two processors, all rows at once took twice as long


def changed(output: Any, inputs: Any, down: Any, up: Any, scaling: float) -> Any:
    """`output` [..., O] with `scaling * inputs @ down.T @ up.T` added, given `inputs` [..., I],
    `down` [r, I] and `up` [O, r].

    Computed in the dtype of the adapter, mostly float32, and added in that of the output.
    """
    flat = inputs.reshape(-1, inputs.shape[-1])
    before = output.reshape(-1, output.shape[-1])
    return _function().apply(before, flat, down, up, scaling).reshape(output.shape)


def _blocks(tensor: Any) -> Iterator[slice]:
    """The rows [N] of a tensor in pieces of `BLOCK`; in one piece on a GPU, where each piece would
    cost kernels of its own."""
    size = BLOCK if tensor.device.type == "cpu" else max(1, len(tensor))
    for start in range(0, len(tensor), size):
        yield slice(start, start + size)


@cache
def _function() -> Any:
    import torch

    linear = torch.nn.functional.linear

    class Changed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, output: Any, inputs: Any, down: Any, up: Any, scaling: float) -> Any:
            result = torch.empty_like(output)
            narrow = inputs.new_empty(len(inputs), len(down), dtype=down.dtype)
            for rows in _blocks(inputs):
                # scaled while it is narrow: r numbers a row instead of O
                narrow[rows] = linear(inputs[rows].to(down.dtype), down) * scaling
                change = linear(narrow[rows], up).to(output.dtype)
                torch.add(output[rows], change, out=result[rows])
            # the inputs as they came: a wider copy of them would be kept for each layer
            ctx.save_for_backward(inputs, narrow, down, up)
            ctx.scaling = scaling
            return result

        @staticmethod
        def backward(ctx: Any, pull: Any) -> tuple[Any, ...]:
            inputs, narrow, down, up = ctx.saved_tensors
            back = torch.empty_like(inputs) if ctx.needs_input_grad[1] else None
            learns = ctx.needs_input_grad[2] or ctx.needs_input_grad[3]
            to_down = torch.zeros_like(down)
            to_up = torch.zeros_like(up.t())
            for rows in _blocks(inputs):
                wide = pull[rows].to(down.dtype)
                # [r, n]: the thin side first, which the kernels take four times as fast
                thin = (up.t() @ wide.t()).mul_(ctx.scaling)
                if back is not None:
                    back[rows] = (thin.t() @ down).to(inputs.dtype)
                # a frozen adapter passes gradients on and has none
                if learns:
                    to_up += narrow[rows].t() @ wide
                    to_down += thin @ inputs[rows].to(down.dtype)
            return (pull, back, to_down, to_up.t(), None) if learns else (pull, back, *(None,) * 3)

    return Changed


Division = tuple[tuple[str, Any], ...]  # (adapter, its rows [n], or None where all rows are its)
# A context variable, so that threads that run batches at the same time do not mix their divisions.
_DIVISION: ContextVar[Division] = ContextVar("gem_ma_adapters", default=())


@contextmanager
def route(adapters: Sequence[str | None], torch: Any, device: Any) -> Iterator[None]:
    """Row k of every forward pass inside sees `adapters[k]`; None is the base. One adapter alone
    is for any number of rows."""
    different = list(dict.fromkeys(adapters))
    if len(different) == 1:
        division: Division = () if different[0] is None else ((different[0], None),)
    else:
        rows = {
            name: [row for row, other in enumerate(adapters) if other == name] for name in different
        }
        division = tuple(
            (name, torch.tensor(rows[name], device=device))
            for name in different
            if name is not None
        )
    token = _DIVISION.set(division)
    try:
        yield
    finally:
        _DIVISION.reset(token)


def add_adapters(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    """The layer's output with what the adapters of its rows add; runs after the base layer."""
    for name, rows in _DIVISION.get():
        if name in layer.lora_A:
            if rows is None:
                output = _added(layer, name, inputs[0], output)
            else:
                part = _added(layer, name, inputs[0][rows], output[rows])
                output = output.index_copy(0, rows, part)
    return output


def _added(layer: Any, name: str, inputs: Any, output: Any) -> Any:
    """The output of a layer with what one adapter adds to all its rows."""
    down = layer.lora_A[name]
    up = layer.lora_B[name]
    scaling = layer.scaling[name]
    if down.weight.dim() == 2:
        # weights alone: plain LoRA has no bias and no dropout here
        return changed(output, inputs, down.weight, up.weight, scaling)
    # A target is a name, and in a model that sees, a convolution over patches may share its name
    # with a linear layer (`proj` of Qwen2-VL). Its thin layers are convolutions, no products.
    change = up(down(inputs.to(down.weight.dtype))) * scaling
    return output + change.to(output.dtype)
