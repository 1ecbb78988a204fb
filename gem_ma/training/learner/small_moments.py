"""AdamW with its two moments in 8 bits each: a quarter of the memory, and nearly the same steps.

As in arXiv 2110.02861 the numbers of a tensor are kept in blocks, each with a scale of its own, on
a grid that is finer near 0. Rounding is random, so that the mean of what is kept stays right: a
second moment that falls by less than half a place of the grid a step would never fall. What is
random follows from the number of the step, so a resumed run rounds alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

BLOCK = 256  # numbers of one scale
# a grid of q / top to a power: the first moment has a sign, the second many orders of size
FIRST = (127, 2)
SECOND = (255, 4)


def small_adamw(
    weights: Iterable[Any], lr: float, betas: tuple[float, float], weight_decay: float
) -> Any:
    """AdamW (decoupled weight decay, bias corrected) over float32 weights. State of a weight:
    `step`, `exp_avg` int8 and `exp_avg_sq` uint8 of its shape, and their scales by block."""
    usual = {"lr": lr, "betas": betas, "eps": 1e-8, "weight_decay": weight_decay}
    return _optimizer()(weights, usual)


@cache
def _optimizer() -> Any:
    import torch

    class SmallAdamW(torch.optim.Optimizer):
        """See `small_adamw`."""

        @torch.no_grad()
        def step(self) -> None:
            """One step on the gradients that are there."""
            for group in self.param_groups:
                for place, weight in enumerate(group["params"]):
                    if weight.grad is not None:
                        move(weight, self.state[weight], group, place)

    return SmallAdamW


def move(weight: Any, state: dict[str, Any], group: Mapping[str, Any], place: int) -> None:
    """One step of a weight along its gradient; `place` is its number among the weights."""
    import torch

    keep, keep_square = group["betas"]
    first = torch.zeros_like(weight)
    second = torch.zeros_like(weight)
    if state:
        first = _read(state["exp_avg"], state["exp_avg_scale"], *FIRST)
        second = _read(state["exp_avg_sq"], state["exp_avg_sq_scale"], *SECOND)
    else:
        state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
    state["step"] += 1
    count = int(state["step"])
    first.lerp_(weight.grad, 1 - keep)
    second.mul_(keep_square).addcmul_(weight.grad, weight.grad, value=1 - keep_square)
    # with the moments of before the rounding, so that the first step is that of AdamW itself
    size = (second / (1 - keep_square**count)).sqrt_().add_(group["eps"])
    weight.mul_(1 - group["lr"] * group["weight_decay"])
    weight.addcdiv_(first, size, value=-group["lr"] / (1 - keep**count))
    dice = torch.Generator(weight.device).manual_seed(1_000_003 * count + place)
    state["exp_avg"], state["exp_avg_scale"] = _rounded(first, *FIRST, dice)
    state["exp_avg_sq"], state["exp_avg_sq_scale"] = _rounded(second, *SECOND, dice)


def kept_shapes(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The tensors that are kept of a weight of this shape, besides its number of steps."""
    blocks = (math.ceil(math.prod(shape) / BLOCK),)
    scales = {"exp_avg_scale": blocks, "exp_avg_sq_scale": blocks}
    return {"exp_avg": shape, "exp_avg_sq": shape, **scales}


def _blocks(values: Any) -> Any:
    """[B, BLOCK], the last block filled up with 0."""
    import torch

    flat = values.reshape(-1)
    return torch.nn.functional.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK)


def _rounded(values: Any, top: int, power: int, dice: Any) -> tuple[Any, Any]:
    """(places on the grid, scales [B]) of some numbers."""
    import torch

    blocks = _blocks(values)
    scale = blocks.abs().amax(1)
    share = blocks.abs() / scale.clamp(min=torch.finfo(blocks.dtype).tiny)[:, None]
    drawn = torch.rand(share.shape, generator=dice, device=share.device)
    grid = (share.pow_(1 / power) * top + drawn).floor_().clamp_(max=top)
    if top == SECOND[0]:
        # a size of 0 under a first moment that is not would make a step without bound
        grid = torch.where(scale[:, None] > 0, grid.clamp(min=1), grid).to(torch.uint8)
    else:
        grid = (grid * blocks.sign()).to(torch.int8)
    return grid.view(-1)[: values.numel()].view(values.shape), scale


def _read(grid: Any, scale: Any, top: int, power: int) -> Any:
    """The numbers again."""
    blocks = _blocks(grid).float() / top
    values = blocks.abs().pow_(power).mul_(blocks.sign()).mul_(scale[:, None])
    return values.view(-1)[: grid.numel()].view(grid.shape)
