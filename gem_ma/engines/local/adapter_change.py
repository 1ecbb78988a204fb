"""What an adapter adds to the output of its layer, and the gradients of that.

Knows tensors; knows neither adapters by name nor which row sees which. An adapter of rank r is two
thin matrices: left to the library, their products cost as much time as those of the layer itself,
which are r times as wide. So a processor takes a block of rows at a time, that stays in its cache
between the products, and the gradients are products of the shapes that its kernels are fast in.

Axes: N rows, I inputs and O outputs of the layer, r the rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

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
