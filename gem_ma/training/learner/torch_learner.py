"""A learner: turns with advantages -> gradient steps on the weights of one policy; and the protocol
that every learner follows.

Knows weights, optimiser and loss; knows neither scenarios nor how advantages came about. A learner
publishes to a sampler: mostly the very module that it trains, so nothing is copied. Publishing
checks that the sampler and the learner's forward pass give the same log-probabilities, and only
then raises the version. A module that was updated and not published refuses to sample.

Dropout is off, so no random state hides here: what is drawn comes from `rng`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.errors import ConfigError, EngineError
from gem_ma.training.learner import replay
from gem_ma.training.learner.forward import Scorer
from gem_ma.training.learner.losses import k3
from gem_ma.training.learner.mismatch import fresh_gap
from gem_ma.training.learner.objective import Objective
from gem_ma.training.learner.parity import few
from gem_ma.training.learner.probes import PROBES, allowed_gap, check, noise_of
from gem_ma.training.learner.rows import Demonstration, Row, Tokens, Turns, minibatches, rows
from gem_ma.types import Sampling, Tool

if TYPE_CHECKING:
    from gem_ma.engines.local.transformers import Transformers

BETAS = (0.9, 0.95)
REMEMBERED = 1 << 30  # bytes of the weights of the last publish; larger ones are not copied


class Learner(Protocol):
    """Whatever learns one policy from turns: a language model, a table, anything with a version.

    `parity`: nats that its log-probabilities may lie away from those of its sampler.
    """

    policy: str

    @property
    def version(self) -> int: ...
    @property
    def parity(self) -> float: ...
    def bound(self, settings: LossSettings) -> None: ...
    def update(
        self,
        table: Turns,
        advantages: NDArray[np.float64],
        *,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]: ...
    def clone(
        self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
    ) -> dict[str, float]: ...
    def publish(self) -> dict[str, float]: ...
    def state(self) -> dict[str, bytes]: ...
    def load(self, files: Mapping[str, bytes]) -> None: ...
    def fingerprint(self) -> str: ...


class Sampler(Protocol):
    """Where the weights of a learner are sampled from: the module that it trains itself, a copy of
    it, or a server.

    `parity`: nats that it may differ from the learner in, in the mean; None = as many as the
    measured noise allows (`gem_ma.training.learner.parity`). `unpublished`: its weights are in doubt,
    and nothing may be sampled from it. Optional are `probes`, further prompts to check parity on
    (such as fill its caches), and `route`, how weights get there, for messages.
    """

    version: int
    unpublished: bool

    @property
    def parity(self) -> float | None: ...
    def take(self, weights: Mapping[str, Any]) -> None: ...
    def sample_ids(
        self,
        prompts: Sequence[tuple[int, ...]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
    ) -> Sequence[Any]: ...


class TorchLearner:
    """Learns the weights of a `transformers` engine, and publishes them to `sampler`: by default
    that engine itself, so nothing is copied.

    Of an engine with a LoRA adapter the adapter is all that learns, is published and stands in
    checkpoints; the base may serve others. `sampling`: how the policy is sampled; only
    temperature > 0 without top_p and top_k can be trained, since the loss must see the
    distribution that was sampled from. Raises ConfigError for anything else.
    """

    def __init__(
        self, engine: Transformers, sampling: Sampling | None = None, sampler: Sampler | None = None
    ) -> None:
        how = sampling or Sampling()
        self.engine, self.policy, self.torch = engine, engine.policy, engine.torch
        self.sampler: Sampler = engine if sampler is None else sampler
        if how.top_p < 1 or how.top_k > 0 or how.temperature <= 0:
            raise ConfigError(
                f"policy {self.policy!r}: a learned policy is sampled with temperature above 0,"
                f" top_p 1 and top_k 0; got temperature {how.temperature}, top_p {how.top_p}, top_k"
                f" {how.top_k}"
            )
        self.temperature, self.longest = how.temperature, how.max_tokens
        engine.own()
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
        # the weights that loss.kl holds to; taken before the first update that needs them
        self.reference: dict[str, Any] = {}
        with engine.lock:
            self.scorer = Scorer(engine, how.temperature)
        self.dtype = str(engine.model.dtype).removeprefix("torch.")
        # unit of noise in nats, as the last parity check measured it
        self.noise: float | None = None
        self.tokens = 0  # of the last update
        # share of the positions of the last update's passes that held nothing
        self.padding: float | None = None
        self.repeats = replay.repeats(self)  # sampler and learner agree to the last bit here
        self.before: dict[str, Any] = {}  # the weights of the last publish, where they are few
        self.remember()

    @property
    def version(self) -> int:
        """Number of publishes of these weights."""
        return self.sampler.version

    @property
    def parity(self) -> float:
        """Nats that the tokens of the last update may lie away from those of the sampler, in the
        mean: twice what probes may, which are shorter."""
        return 2 * allowed_gap(self) * few(self.tokens)

    # -- learning ---------------------------------------------------------------------------------

    def update(
        self,
        table: Turns,
        advantages: NDArray[np.float64],
        *,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """Gradient steps on the turns [N] with these advantages [N]; minibatches are cut by
        episode, in an order drawn from `rng`.

        Metrics: loss, entropy (nats a token), kl (mean k3 of old to new over minibatches before
        their step), clip_fraction, grad_norm (before clipping), kl_reference (with loss.kl: mean
        k3 to the weights at the start), logprob_gap and mismatch_kl (sampler to learner before
        the update), fresh_gap (see `gem_ma.training.learner.mismatch`), zero_advantage (share of turns),
        lag (publishes since the oldest token), forks, rows, turns, tokens, optimizer_steps,
        stopped (1 where target_kl ended the update). Raises EngineError, with the weights of
        before the failing step, where a number is not finite.
        """
        made = rows(
            table, advantages, self.policy, self.engine.allowed if self.engine.constrain else None
        )
        if not made.rows:
            return {"turns": 0.0, "tokens": 0.0, "rows": 0.0, "optimizer_steps": 0.0}
        self.bound(settings)
        self.probe_with(made.rows)
        every = Tokens.of(made.rows)
        self.tokens = len(every.turn)
        self._finite(
            np.isfinite(every.advantage) & np.isfinite(every.logprob),
            "an advantage or a sampled log-probability",
            made.rows,
        )
        with self.engine.lock:
            if self.noise is None:  # nothing was published yet
                self.noise = noise_of(self, made.rows[:PROBES])
            self.scorer.fed = self.scorer.used = 0
            anchor = self._anchor(made.rows) if settings.kl else None
            _, parts = np.unique(
                [f"{e.id}/{t.agent}" for e, t in zip(table.episodes, table.turns, strict=True)],
                return_inverse=True,
            )
            steps, old = self._steps(made.rows, every, parts[every.turn], anchor, lr, settings, rng)
            self.padding = 1 - self.scorer.used / max(self.scorer.fed, 1)
        gap = np.abs(old - every.logprob)
        mismatch = k3(self.torch.from_numpy(every.logprob), self.torch.from_numpy(old))
        _, first = np.unique(every.turn, return_index=True)
        return {
            **steps,
            "logprob_gap": float(gap.max()),
            "mismatch_kl": float(mismatch.mean()),
            **fresh_gap(every.logprob, old, every.version == self.version),
            "zero_advantage": float((every.advantage[first] == 0).mean()),
            "lag": float(self.version - every.version.min()),
            "forks": float(made.forks),
            "rows": float(len(made.rows)),
            "turns": float(len(first)),
            "tokens": float(len(every.turn)),
        }

    def bound(self, settings: LossSettings) -> None:
        """Takes how much memory a pass may have."""
        self.scorer.pass_tokens, self.scorer.pass_logits = (
            settings.pass_tokens,
            settings.pass_logits,
        )

    def _anchor(self, chosen: Sequence[Row]) -> NDArray[np.float64]:
        """Log-probability [n] of every trained token under the reference weights."""
        if not self.reference:
            self.reference = {
                name: weight.detach().clone() for name, weight in self.parameters.items()
            }
        with self.holding(self.reference):
            return self.scorer.logprobs(chosen)

    @contextmanager
    def holding(self, weights: Mapping[str, Any]) -> Iterator[None]:
        """Inside, the learner computes with these weights instead of its own."""
        now = {name: weight.data for name, weight in self.parameters.items()}
        try:
            for name, weight in self.parameters.items():
                weight.data = weights[name].to(weight.device)
            yield
        finally:
            for name, weight in self.parameters.items():
                weight.data = now[name]

    def _steps(
        self,
        all_rows: tuple[Row, ...],
        every: Tokens,
        parts: NDArray[np.int64],  # [n] the agent's part in an episode that a token belongs to
        anchor: NDArray[np.float64] | None,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> tuple[dict[str, float], NDArray[np.float64]]:
        """(metrics, log-probabilities [n] before the update). A ratio of tokens needs no pass
        ahead for the first minibatch: its own is of before."""
        cuts = np.split(
            np.arange(len(every.turn)), np.cumsum([int(row.mask.sum()) for row in all_rows])[:-1]
        )
        old = np.zeros(len(every.turn))
        seen: list[tuple[float, ...]] = []
        stopped = False
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        for number, chosen in enumerate(minibatches(all_rows, settings, rng)):
            fresh = number == 0 and settings.ratio == "token"
            if number == 0:
                ahead = sorted(set(range(len(all_rows))) - set(chosen if fresh else ()))
                if ahead:
                    old[np.concatenate([cuts[at] for at in ahead])] = self._before(
                        [all_rows[at] for at in ahead]
                    )
            tokens = np.concatenate([cuts[at] for at in chosen])
            before = old[tokens]
            anchored = anchor[tokens] if anchor is not None else None
            measured = self._minibatch(
                [all_rows[at] for at in chosen],
                every.take(tokens),
                parts[tokens],
                before,
                fresh,
                anchored,
                settings,
            )
            if measured is None:
                stopped = True
                break
            old[tokens] = before
            seen.append(measured)
        mean = np.mean(seen, axis=0)
        names = ("loss", "entropy", "kl", "clip_fraction", "grad_norm", "kl_reference")[: len(mean)]
        return {
            **dict(zip(names, map(float, mean), strict=True)),
            "optimizer_steps": float(len(seen)),
            "stopped": float(stopped),
        }, old

    def _before(self, chosen: Sequence[Row]) -> NDArray[np.float64]:
        old = self.scorer.logprobs(chosen)
        self._finite(np.isfinite(old), "a log-probability", chosen)
        return old

    def _minibatch(
        self,
        chosen: list[Row],
        tokens: Tokens,
        part: NDArray[np.int64],
        old: NDArray[np.float64],
        fresh: bool,  # `old` is not known yet: this very pass gives it
        anchor: NDArray[np.float64] | None,
        settings: LossSettings,
    ) -> tuple[float, ...] | None:
        """One optimiser step; None, without a step, where the policy has moved further than
        target_kl."""
        count, team = len(tokens.turn), self.scorer.team
        goal = Objective(
            tokens,
            part,
            old,
            settings,
            self._tensor,
            fresh=fresh,
            anchor=anchor,
            longest=self.longest,
        )
        if settings.ratio != "token":
            goal.pull_units(self.scorer.logprobs(chosen))
        for pack in self.scorer.packs(chosen):
            self.scorer.learn(pack, goal, spread=bool(settings.entropy), added=self.gather)
        loss_sum, entropy_sum, kl_sum, clipped_sum, away_sum = (
            team.sum(goal.sums) + goal.whole
        ).tolist()
        if fresh:
            old[:] = team.sum(old)
            if not np.isfinite(old).all():
                self.forget()
            self._finite(np.isfinite(old), "a log-probability", chosen)
        if settings.target_kl is not None and kl_sum / count > settings.target_kl:
            self.forget()
            return None
        norm = self.step(settings.grad_clip, loss_sum, chosen)
        found = (loss_sum, entropy_sum / count, kl_sum / count, clipped_sum / count, norm)
        return (*found, away_sum / count) if anchor is not None else found

    def gather(self) -> None:
        """Adds the gradients of a pass to those of the step, in float32, whatever the weights
        are rounded to."""
        for name in self.rounded:
            weight, master = self.parameters[name], self.masters[name]
            if weight.grad is not None:
                full = weight.grad.to(master.dtype)
                master.grad = full if master.grad is None else master.grad.add_(full)
                weight.grad = None

    def forget(self) -> None:
        """Drops the gradients that have gathered."""
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, grad_clip: float, loss: float, chosen: Sequence[Row]) -> float:
        """One optimiser step on the gradients that have gathered in all processes; their norm
        before clipping.

        Raises EngineError where a number is not finite.
        """
        self.scorer.team.sum_gradients(self.masters.values())
        norm = float(self.torch.nn.utils.clip_grad_norm_(self.masters.values(), grad_clip))
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.forget()
            self._finite(np.zeros(1, np.bool_), "the loss or its gradient", chosen)
        if self.sampler is self.engine:
            self.engine.unpublished = True
        self.optimizer.step()
        self.forget()
        with self.torch.no_grad():
            for name in self.rounded:
                self.parameters[name].copy_(self.masters[name])
        return norm

    def clone(
        self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
    ) -> dict[str, float]:
        """Behaviour cloning, see `gem_ma.training.learner.cloning`."""
        from gem_ma.training.learner.cloning import clone

        return clone(self, demonstrations, settings)

    # -- weights ----------------------------------------------------------------------------------

    def score(
        self,
        sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
        legal: Sequence[Sequence[str] | None] | None = None,
        tools: Sequence[Sequence[Tool]] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Log-probabilities of given ids after their prompts, as the loss sees them: [(prompt,
        ids)] -> one [len(ids)] each.

        `legal`, `tools`: per sequence the legal strings and the tools of its turn, to which a
        constrained policy is bound.
        """
        asked = zip(
            sequences, legal or [None] * len(sequences), tools or [()] * len(sequences), strict=True
        )
        with self.engine.lock:
            return self.scorer.score(
                sequences,
                [
                    self.engine.allowed(choices, ids, offered)
                    for (_, ids), choices, offered in asked
                ],
            )

    def probe_with(self, chosen: Sequence[Row]) -> None:
        """Takes the prompts of the next parity checks from these rows."""
        self.probes = list(
            dict.fromkeys(tuple(row.ids[: int(row.mask.argmax())].tolist()) for row in chosen)
        )[:PROBES]

    def publish(self) -> dict[str, float]:
        """Gives the weights to the sampler, checks it against the learner on a few prompts, then
        raises the version.

        Raises EngineError where they differ; the sampler then refuses to sample.
        """
        with self.engine.lock:
            if self.sampler is not self.engine:
                self.sampler.unpublished = True
                self.sampler.take(self.parameters)
            found = self.check()
            self.sampler.version += 1
            self.sampler.unpublished = False
            self.remember()
        return {**found, "version": float(self.version)}

    def remember(self) -> None:
        """Takes the weights of now for those of the last publish; a copy is needed only where no
        draw can be repeated."""
        self.published = self.stamp()
        if (
            not self.repeats
            and sum(weight.numel() * weight.element_size() for weight in self.parameters.values())
            <= REMEMBERED
        ):
            self.before = {
                name: weight.detach().cpu().clone() for name, weight in self.parameters.items()
            }

    def stamp(self) -> tuple[float, ...]:
        """Sums of the weights: equal only where nothing has changed them, in whatever way."""
        sums = [
            weight.detach().sum(dtype=self.torch.float64).cpu()
            for weight in self.parameters.values()
        ]
        return tuple(self.torch.stack(sums).tolist())

    def check(self) -> dict[str, float]:
        """How far sampler and learner are apart, see `gem_ma.training.learner.probes`. Raises
        EngineError where that is more than rounding."""
        return check(self)

    def fingerprint(self) -> str:
        """SHA-256 of the weights."""
        return self.engine.fingerprint()

    def state(self) -> dict[str, bytes]:
        """Files of a checkpoint, see `gem_ma.training.learner.weights`."""
        from gem_ma.training.learner.weights import saved

        return saved(self)

    def load(self, files: Mapping[str, bytes]) -> None:
        """Puts weights, optimiser and version back. Raises DataError, with nothing changed,
        where a file is missing, damaged or of another model."""
        from gem_ma.training.learner.weights import restore

        restore(self, files)

    def new_optimizer(self, weight_decay: float) -> Any:
        """AdamW over what is learned, without moments."""
        return self.torch.optim.AdamW(
            self.masters.values(), lr=1e-3, betas=BETAS, weight_decay=weight_decay, fused=True
        )

    def _tensor(self, values: NDArray[np.float64]) -> Any:
        return self.torch.from_numpy(values.astype(np.float32)).to(self.engine.device)

    def _finite(self, good: NDArray[np.bool_], what: str, chosen: Sequence[Row]) -> None:
        if good.all():
            return
        if len(good) == sum(int(row.mask.sum()) for row in chosen):
            owner = np.repeat(np.arange(len(chosen)), [int(row.mask.sum()) for row in chosen])
            chosen = [chosen[at] for at in dict.fromkeys(owner[~good].tolist())]
        names = list(dict.fromkeys(str(row.episode) for row in chosen))
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise EngineError(
            f"policy {self.policy!r}: {what} is not finite, so this update is refused; episodes"
            f" {shown}"
        )
