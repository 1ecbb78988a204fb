"""A model whose weights lie in parts, one in each process (FSDP2): a layer is put together when it
is computed, and taken apart again.

Knows modules and process groups; knows no rows and no loss. Gradients are summed over the
processes, not averaged: the loss is a sum that all know the weights of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from gem_ma.training.learner.layers import layers

T = TypeVar("T")


class Whole:
    """Runs work on a sharded model. What is no layer (embeddings, head) stays together from `run`
    to `rest`, or to the end of a backward pass."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def run(self, work: Callable[[], T]) -> T:
        """The tensor that this work computes with the model; gradients go through it."""
        result: T = self.module(work)
        return result

    def rest(self) -> None:
        """Takes apart what `run` has put together: an optimiser step would not reach it."""
        self.module.reshard()


def shard(model: Any, mesh: Any, computes: Any) -> Whole:
    """Takes the model's weights apart over the processes of a mesh, in place. They are computed in
    the dtype `computes`, None = their own; gradients are float32.

    All processes call it with equal models.
    """
    import torch
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=computes, reduce_dtype=torch.float32)
    if computes is None:
        policy = MixedPrecisionPolicy()
    whole = _around()(model)
    for layer in layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(whole, mesh=mesh, mp_policy=policy)
    for module in whole.modules():
        if isinstance(module, FSDPModule):
            # each by itself: of a module that holds others they reach that module alone
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return Whole(whole)


def mesh_of(group: Any, device: str) -> Any:
    """The processes of a gloo group as a mesh of devices."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    # CUDA tensors travel by NCCL, which is the default group there
    if device.startswith("cuda"):
        import torch

        return init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    return DeviceMesh.from_group(group, "cpu")


@cache
def _around() -> Any:
    import torch

    class Around(torch.nn.Module):
        """One module around trunk and head: both are used apart, and may share their weights."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, work: Callable[[], Any]) -> Any:
            return work()

    return Around
