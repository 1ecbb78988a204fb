"""Weights that are being trained: those of an engine, their float32 masters, an optimiser, and
where they are sampled from.

Knows weights and passes; knows neither losses nor what a step is for. The learner is made of it,
and what looks at a learner (its files, its parity checks, cloning) asks for no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.models.sight import Picture
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Sampling, Tool
from gem_ma.training.learner import Turns
from gem_ma.training.learner.forward import Scorer
from gem_ma.training.learner.parity import check_sampling
from gem_ma.training.learner.rows import Row, pictures_of
from gem_ma.training.learner.table_rows import BETAS

PROBES = 4  # different prompts that a publish is checked on
REMEMBERED = 1 << 30  # bytes of the weights of the last publish; larger ones are not copied
NAMED = 8  # episodes that a refusal names


class Sampler(Protocol):
    """Where the weights of a learner are sampled from: the module that it trains, a copy, a server.

    `parity`: the largest mean log-prob gap to the learner that is allowed, in nats; None = as large
    as the measured noise (`gem_ma.training.learner.parity`). `unpublished`: its weights are in
    doubt, and nothing may be sampled. `probes`: further prompts to check parity on, such as fill
    its caches. `route`: how weights get there, for messages; "" = in this process.
    """

    version: int
    unpublished: bool

    @property
    def parity(self) -> float | None: ...
    @property
    def route(self) -> str: ...
    @property
    def probes(self) -> Sequence[tuple[int, ...]]: ...
    def take(self, weights: Mapping[str, Any]) -> None: ...
    def sample_ids(
        self,
        prompts: Sequence[tuple[int, ...]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
    ) -> Sequence[Any]: ...


@runtime_checkable
class Spares(Protocol):
    """A sampler of several servers. `spare()`: another one answers the next check, False where none
    is left that says otherwise; `numbers()`: what is logged of them."""

    def spare(self) -> bool: ...
    def numbers(self) -> dict[str, float]: ...


class Trained:
    """The weights of a `transformers` engine under training, and their `sampler`: by default that
    engine itself, so nothing is copied.

    Of an engine with a LoRA adapter the adapter is all that is trained; the base may serve others.
    Raises ConfigError for a way of sampling that cannot be trained.
    """

    def __init__(
        self, engine: Transformers, sampling: Sampling | None = None, sampler: Sampler | None = None
    ) -> None:
        how = sampling or Sampling()
        self.engine = engine
        self.policy = engine.policy
        self.torch = engine.torch
        self.sampler: Sampler = engine if sampler is None else sampler
        check_sampling(self.policy, how)
        self.temperature = how.temperature
        self.longest = how.max_tokens
        engine.unshare()  # all weights of its base will change
        self.parameters = engine.weights()
        if any(weight.dtype == self.torch.float16 for weight in self.parameters.values()):
            raise ConfigError(
                f"policy {self.policy!r}: float16 loses small gradients, so it is not trained; set"
                " dtype: bfloat16 or float32"
            )
        for weight in self.parameters.values():
            weight.requires_grad_(True)
        full = self.torch.float32
        # what the optimiser moves: the weights themselves, or float32 copies of rounded ones
        self.masters = {
            name: weight if weight.dtype == full else weight.detach().to(full).requires_grad_(True)
            for name, weight in self.parameters.items()
        }
        self.rounded = [name for name, weight in self.parameters.items() if weight.dtype != full]
        self.optimizer = self.new_optimizer(0.0)
        self.probes: list[tuple[int, ...]] = []
        # what images in the rows and probes of now stand for
        self.sight = engine.vocabulary.sight
        self.pictures = list[Picture]()
        # the processes among which a weight is divided; None = none is
        self.group: Any = None
        # the weights that loss.kl holds to; taken before the first update that needs them
        self.reference: dict[str, Any] = {}
        with engine.lock:
            self.scorer = self.new_scorer()
        self.dtype = str(engine.model.dtype).removeprefix("torch.")
        # unit of noise in nats, as the last parity check measured it
        self.noise: float | None = None
        # share of the positions of the last update's passes that held nothing
        self.padding: float | None = None
        # whether sampler and learner agree to the last bit here, which is tried when all is made
        self.repeats = False
        self.before: dict[str, Any] = {}  # the weights of the last publish, where they are few
        self.published: tuple[float, ...] = ()  # their `stamp`

    def new_scorer(self) -> Scorer:
        return Scorer(self.engine, self.temperature)

    @property
    def version(self) -> int:
        """Number of publishes of these weights."""
        return self.sampler.version

    @contextmanager
    def holding(self, weights: Mapping[str, Any]) -> Iterator[None]:
        """Inside, the learner computes with these weights instead of its own."""
        # `.data` is exchanged, not copied into: optimiser and masters keep their tensors
        now = {name: weight.data for name, weight in self.parameters.items()}
        try:
            for name, weight in self.parameters.items():
                weight.data = weights[name].to(weight.device)
            yield
        finally:
            for name, weight in self.parameters.items():
                weight.data = now[name]

    def gather(self) -> None:
        """Adds the gradients of a pass to those of the step, in float32, whatever the weights
        are rounded to."""
        for name in self.rounded:
            weight = self.parameters[name]
            master = self.masters[name]
            if weight.grad is not None:
                full = weight.grad.to(master.dtype)
                master.grad = full if master.grad is None else master.grad.add_(full)
                weight.grad = None

    def forget(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def sum_gradients(self) -> None:
        self.scorer.team.sum_gradients(self.masters.values())

    def clip(self, grad_clip: float) -> float:
        """Bounds the gradients; their norm before."""
        return float(self.torch.nn.utils.clip_grad_norm_(self.masters.values(), grad_clip))

    def placed(self, name: str, whole: Any) -> Any:
        """A tensor of the size of a weight, as this learner holds that weight."""
        return whole.to(self.engine.device)

    def step(self, grad_clip: float, loss: float, chosen: Sequence[Row]) -> float:
        """One optimiser step on the gradients that have gathered in all processes; their norm
        before clipping. Raises EngineError where a number is not finite."""
        # summed before the norm is taken, which is that of the whole step
        self.sum_gradients()
        norm = self.clip(grad_clip)
        # before the step: one NaN in the moments of Adam stays there for good
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.forget()
            self.finite(np.zeros(1, np.bool_), "the loss or its gradient", chosen)
        # what is sampled is what learns, so from here on its version would be a lie
        if self.sampler is self.engine:
            self.engine.unpublished = True
        self.optimizer.step()
        # torch does not count what the fused kernel writes, and by that count a sampler knows
        # that what it has kept is stale
        self.torch.autograd.graph.increment_version(list(self.masters.values()))
        self.forget()
        with self.torch.no_grad():
            for name in self.rounded:
                self.parameters[name].copy_(self.masters[name])
        return norm

    def score(
        self,
        sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
        legal: Sequence[Sequence[str] | None] | None = None,
        tools: Sequence[Sequence[Tool]] | None = None,
    ) -> list[NDArray[np.float64]]:
        """See `Scorer.score`. `legal`, `tools`: per sequence the legal strings and the tools of its
        turn, to which a constrained policy is bound."""
        count = len(sequences)
        asked = zip(sequences, legal or [None] * count, tools or [()] * count, strict=True)
        allowed = self.engine.binding.allowed
        with self.engine.lock:  # the same module may be sampling
            bounds = [allowed(choices, ids, offered) for (_, ids), choices, offered in asked]
            return self.scorer.score(sequences, bounds)

    def look(self, table: Turns) -> None:
        """Opens the images of these turns, and holds them until the next call: the ids of rows and
        probes are of them."""
        if self.sight is not None:
            self.pictures = pictures_of(table, self.policy, self.sight)

    def with_pictures(
        self, prompt: tuple[int, ...], messages: Sequence[Message]
    ) -> tuple[int, ...]:
        """The prompt of these messages as rows have it; its images are held until `look`."""
        if self.sight is None:
            return prompt
        prompt, pictures = self.sight.with_pictures(prompt, messages)
        self.pictures += pictures
        return prompt

    def probe_with(self, chosen: Sequence[Row]) -> None:
        """Takes the prompts of the next parity checks from these rows: the first of each row, and
        where few of these differ, what later turns were asked."""
        different = dict.fromkeys(
            tuple(row.ids[: int(row.mask.argmax())].tolist()) for row in chosen
        )
        if len(different) < PROBES:
            # one opening of all talks says little of how far rounding goes
            for row in chosen[: PROBES**2]:
                begins = np.flatnonzero(row.mask[1:] & ~row.mask[:-1]) + 1
                different |= dict.fromkeys(tuple(row.ids[:begin].tolist()) for begin in begins)
        self.probes = list(different)[:PROBES]

    def remember(self) -> None:
        """Remembers the present weights as those of the last publish; a copy is needed only where
        no draw can be repeated."""
        self.published = self.stamp()
        weights = self.parameters.items()
        size = sum(weight.numel() * weight.element_size() for _, weight in weights)
        if not self.repeats and size <= REMEMBERED:
            self.before = {name: weight.detach().cpu().clone() for name, weight in weights}

    def stamp(self) -> tuple[float, ...]:
        """Sums of the weights: equal only where nothing has changed them, in whatever way."""
        # in float64: a step of bfloat16 weights vanishes in a sum of their own precision
        sums = [
            weight.detach().sum(dtype=self.torch.float64).cpu()
            for weight in self.parameters.values()
        ]
        return tuple(self.torch.stack(sums).tolist())

    def fingerprint(self) -> str:
        """SHA-256 of the weights."""
        return self.engine.fingerprint()

    def new_optimizer(self, weight_decay: float) -> Any:
        """AdamW over what is learned, without moments."""
        return self.torch.optim.AdamW(
            # the rate is set before every step; fused: one kernel instead of one per weight
            self.masters.values(),
            lr=1e-3,
            betas=BETAS,
            weight_decay=weight_decay,
            fused=True,
        )

    def tensor(self, values: NDArray[np.float64]) -> Any:
        """Numbers as a float32 tensor where the weights are."""
        return self.torch.from_numpy(values.astype(np.float32)).to(self.engine.device)

    def finite(self, good: NDArray[np.bool_], what: str, chosen: Sequence[Row]) -> None:
        """Raises EngineError, with the episodes, where not all is good: [n] of the trained tokens
        of these rows, or [1] of all together."""
        if good.all():
            return
        counts = [int(row.mask.sum()) for row in chosen]
        if len(good) == sum(counts):
            owner = np.repeat(np.arange(len(chosen)), counts)
            chosen = [chosen[row] for row in dict.fromkeys(owner[~good].tolist())]
        names = list(dict.fromkeys(str(row.episode) for row in chosen))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        raise EngineError(
            f"policy {self.policy!r}: {what} is not finite, so this update is refused; episodes"
            f" {', '.join(names[:NAMED])}{more}"
        )
