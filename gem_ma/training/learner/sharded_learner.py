"""A learner whose weights, gradients and moments lie in parts, one in each process of a team, and
the way from those to samplers that hold whole weights.

Every process calls the same methods with the same data: a pass is a meeting of all, also one that
only scores. What is sampled are other weights than what learns, so each publish puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import EngineError, GemMaError
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner.forward import Scorer, layers
from gem_ma.training.learner.packing import Pack, packs
from gem_ma.training.learner.rows import Row
from gem_ma.training.learner.torch_critic import TorchCritic
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.training.learner.weights import note_of
from gem_ma.training.processes.teams import Team, lost


class Whole:
    """Runs work on a sharded model (FSDP2): a layer is put together when it is computed, and taken
    apart again. All else (embeddings, head) stays together from `run` to `rest`, or to the end of a
    backward pass."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def run(self, work: Callable[[], T]) -> T:
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

    policy = MixedPrecisionPolicy()
    if computes is not None:
        policy = MixedPrecisionPolicy(param_dtype=computes, reduce_dtype=torch.float32)
    whole = _around()(model)
    for layer in layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(whole, mesh=mesh, mp_policy=policy)
    for module in whole.modules():
        if isinstance(module, FSDPModule):
            # each by itself: of a module that holds others they reach that module alone. A sum, not
            # a mean: the loss is a sum that all know the weights of
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


T = TypeVar("T")


class Drawn(NamedTuple):
    """What a sampler drew after a prompt."""

    ids: list[int]
    logprobs: list[float]


class Published:
    """The sampler of a sharded learner: in each process an engine with `whole` weights; or a
    `server`, to which the first process alone publishes what lies in its engine then.

    What is drawn for a check is what the first process draws.
    """

    def __init__(self, whole: Transformers, team: Team, server: Any = None) -> None:
        self.whole = whole
        self.team = team
        self.server = server
        self.engine: Any = whole if server is None else server
        self.parity = self.engine.parity
        self.route = self.engine.route

    @property
    def version(self) -> int:
        return int(self.engine.version)

    @version.setter
    def version(self, number: int) -> None:
        self.engine.version = number

    @property
    def unpublished(self) -> bool:
        return bool(self.engine.unpublished)

    @unpublished.setter
    def unpublished(self, doubt: bool) -> None:
        self.engine.unpublished = doubt

    @property
    def probes(self) -> Sequence[tuple[int, ...]]:
        return [tuple(probe) for probe in self._first(lambda: list(self.engine.probes))]

    def take(self, weights: Mapping[str, Any]) -> None:
        # one after the other: all of them at once would be one model more
        self.whole.take(_Together(weights))
        if self.server is not None:
            self._first(lambda: self.server.take(self.whole.weights()))

    def sample_ids(
        self,
        prompts: Sequence[tuple[int, ...]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
    ) -> Sequence[Drawn]:
        def drawn() -> list[Any]:
            draws = self.engine.sample_ids(prompts, samplings, seeds)
            return [[list(map(int, one.ids)), list(map(float, one.logprobs))] for one in draws]

        return [Drawn(*draw) for draw in self._first(drawn)]

    def _first(self, work: Callable[[], T]) -> T:
        """What the first process computes; in all of them its error, or else they would wait."""
        answer: dict[str, Any] = {}
        if self.team.first:
            try:
                answer = {"result": work()}
            except GemMaError as error:
                answer = {"fault": str(error)}
        answer = self.team.agree(answer)
        if "fault" in answer:
            raise EngineError(answer["fault"])
        result: T = answer["result"]
        return result


class _Together(Mapping[str, Any]):
    """Sharded weights by name, each put together when it is asked for. All processes ask for the
    same ones in the same order."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = weights

    def __getitem__(self, name: str) -> Any:
        return self.weights[name].detach().full_tensor()

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)


class ShardedScorer(Scorer):
    """A `Scorer` whose passes are meetings of all processes: each takes as many."""

    def __init__(
        self, engine: Transformers, temperature: float, whole: Whole, dtype: str | None
    ) -> None:
        self.whole = whole
        self.dtype = dtype or str(engine.model.dtype)
        super().__init__(engine, temperature)

    def together(self, work: Callable[[], T]) -> T:
        return self.whole.run(work)

    def rest(self) -> None:
        self.whole.rest()

    def packs(self, chosen: Sequence[Row], team: Team | None = None) -> Iterator[Pack]:
        """The share of this process, and idle passes where another one has more."""
        mine = self.team if team is None else team
        yield from super().packs(chosen, mine)
        if mine.size == 1 or not chosen:
            return
        counts = [
            sum(1 for _ in super(ShardedScorer, self).packs(chosen, Team(rank, mine.size)))
            for rank in range(mine.size)
        ]
        shortest = min(chosen, key=lambda row: len(row.ids))
        (pack,) = packs([shortest], tokens=self.pass_tokens)
        nothing = np.zeros(0, np.int64)
        for _ in range(max(counts) - counts[mine.rank]):
            yield replace(pack, token=nothing, order=nothing, used=0)


class ShardedLearner(TorchLearner):
    """A `TorchLearner` in parts. What learns is a copy of `engine` that is taken apart; `engine`
    keeps what was published, and is sampled from where there is no `server`.

    Full weights have float32 masters and are computed in the engine's dtype. Of a policy with an
    adapter the base is taken apart too, in its own dtype.
    """

    def __init__(
        self, engine: Transformers, sampling: Sampling, team: Team, server: Any = None
    ) -> None:
        learned = engine.alone()
        self.team = team
        self.computes = None
        if learned.adapter is None and learned.model.dtype != engine.torch.float32:
            self.computes = learned.model.dtype
            learned.model.float()
        # before it is taken apart: a part that is frozen then stays so
        for weight in learned.weights().values():
            weight.requires_grad_(True)
        self.mesh = mesh_of(team.group, learned.device)
        self.whole = shard(learned.model, self.mesh, self.computes)
        learned.base.adapters.renew()
        super().__init__(learned, sampling, Published(engine, team, server))
        self.sampled = engine
        self.group = team.group
        if self.computes is not None:
            self.dtype = str(self.computes).removeprefix("torch.")

    def new_scorer(self) -> Scorer:
        dtype = None if self.computes is None else str(self.computes)
        return ShardedScorer(self.engine, self.temperature, self.whole, dtype)

    def critic(self) -> TorchCritic:
        """A copy of the whole model, in every process."""
        return TorchCritic(self.sampled)

    @contextmanager
    def holding(self, weights: Mapping[str, Any]) -> Iterator[None]:
        # copied: what is gathered is read from where the parts lie
        now = {name: weight.detach().clone() for name, weight in self.parameters.items()}
        try:
            self._put(weights)
            yield
        finally:
            self._put(now)

    def _put(self, weights: Mapping[str, Any]) -> None:
        with self.torch.no_grad():
            for name, weight in self.parameters.items():
                weight.copy_(weights[name].to(weight.device))

    def stamp(self) -> tuple[float, ...]:
        """Nothing: what is sampled are other weights, which are looked at apart."""
        return ()

    def fingerprint(self) -> str:
        """SHA-256 of the weights as they were published last."""
        return str(self.sampled.fingerprint())

    def sum_gradients(self) -> None:
        """Each backward pass has done so."""

    def clip(self, grad_clip: float) -> float:
        norm = self.torch.nn.utils.clip_grad_norm_(self.masters.values(), grad_clip)
        return float(norm.full_tensor())

    def placed(self, name: str, whole: Any) -> Any:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if isinstance(whole, DTensor):
            return whole
        device = self.masters[name].device
        placements = self.masters[name].placements
        # each takes its part of what all have read: files give their tensors in any order, so an
        # exchange of them would mix them up
        return distribute_tensor(whole.to(device), self.mesh, placements, src_data_rank=None)

    # these raise LostError where another process has ended

    def update(self, *work: Any, **how: Any) -> dict[str, float]:
        with lost():
            return super().update(*work, **how)

    def divergence(self, *work: Any) -> Any:
        with lost():
            return super().divergence(*work)

    def clone(self, *work: Any) -> dict[str, float]:
        with lost():
            return super().clone(*work)

    def publish(self) -> dict[str, float]:
        with lost():
            return super().publish()

    def state(self) -> dict[str, bytes]:
        """What all processes have alike; the rest is in `tensors`."""
        return {"learner.json": note_of(self)}
