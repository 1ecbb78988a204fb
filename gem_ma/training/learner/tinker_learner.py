"""A learner whose weights lie at a server of the Tinker API: turns with advantages -> gradient
steps on one adapter there.

The losses are ours: the server scores the rows, the slope of the loss at each token is computed
here (`losses.pull`), and the server is given a loss with that slope. What the API cannot give is
refused when a training opens (`refuse`).

An update begins from weights that are saved at the server. A gradient or a step whose answer was
lost may have been taken or not; then training goes on from the saved weights, and the update is
done again from its rows, which gives the same.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import stable_seed
from gem_ma.engines.tinker.client import Adam, Lost, Pull
from gem_ma.engines.tinker.engine import TRAINED, Tinker, run_of
from gem_ma.engines.tinker.settings import adapter_of
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner import Demonstration, Turns
from gem_ma.training.learner.losses import PAIRED, Sampled, pull
from gem_ma.training.learner.parity import check_sampling
from gem_ma.training.learner.rows import Row, Tokens, minibatches, rows, told_of, units_of
from gem_ma.training.learner.server_checks import Checks, habits_of

FILE = "tinker.json"
SCHEMA = 1
Array = NDArray[np.float64]


def refuse(settings: LossSettings, where: str) -> None:
    """Raises ConfigError for a part of the loss that the API has no place for."""
    if settings.entropy:
        raise ConfigError(
            f"{where}: the Tinker API gives probabilities of the sampled tokens alone, so no"
            " entropy bonus; set loss.entropy: 0"
        )
    beside = "needs the weights of the start beside those that learn"
    unscored = f"{beside}, which the Tinker API does not score"
    if settings.surrogate in PAIRED:
        raise ConfigError(f"{where}: loss.surrogate {settings.surrogate} {unscored}; take clipped")
    if settings.kl:
        raise ConfigError(f"{where}: loss.kl {unscored}; set loss.kl: 0, or loss.target_kl")


class TinkerLearner:
    """Learns an adapter at a server from turns, and publishes it to a sampling client. `apart`: the
    engine is sampled from while this learns.

    Raises ConfigError for what the API cannot do, EngineError where the server refuses.
    """

    def __init__(self, engine: Tinker, sampling: Sampling, *, apart: bool = False) -> None:
        self.engine = engine
        self.policy = engine.policy
        self.where = engine.where
        self.clients = engine.clients
        self.longest = sampling.max_tokens
        self._check(sampling)
        adapter = adapter_of(engine.wanted.lora, engine.policy)
        seed = stable_seed(engine.policy) if adapter.seed is None else adapter.seed
        self.clients.context(engine.name)  # another base is refused before it is waited for
        self.habits = habits_of(engine, adapter.rank)
        self.scale = self.habits.scale()
        if apart and not self.keeps_versions():
            raise ConfigError(
                f"{self.where}: {self.clients.host} samples an old version with new weights, so"
                " nothing can be played ahead; remove train.overlap"
            )
        self.trainer = self.clients.trainer(engine.name, adapter.rank, seed)
        self.checks = Checks(self)
        self._saved: str | None = None  # the path of a state with exactly the present weights
        self._publish()

    def _check(self, sampling: Sampling) -> None:
        """Raises ConfigError for what cannot be learned from, or paid for."""
        check_sampling(self.policy, sampling)
        if sampling.temperature != 1:
            raise ConfigError(
                f"{self.where}: the Tinker API learns at temperature 1 alone; got"
                f" {sampling.temperature:g}"
            )
        budget = self.engine.budget
        if budget is not None and budget.most_usd is not None:
            raise ConfigError(
                f"{self.where}: the price of a trained token is not known here, so limits.usd"
                " cannot be kept; use limits.tokens, which counts them"
            )

    def keeps_versions(self) -> bool:
        return self.habits.keeps_versions()

    @property
    def version(self) -> int:
        return self.engine.version

    @property
    def parity(self) -> float:
        """See `Learner.parity`: of the tokens of an update."""
        return self.checks.of_update

    def bound(self, settings: LossSettings) -> None:
        """Takes nothing, since passes are the server's; refuses what it cannot learn by."""
        refuse(settings, self.where)

    def update(
        self,
        table: Turns,
        advantages: Array,
        *,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """See `TorchLearner.update`: the same minibatches and the same numbers, without entropy.
        `grad_norm` where the server tells it; `repeated`: updates that were lost and done again."""
        refuse(settings, self.where)
        made = rows(table, advantages, self.policy)
        if not made.rows:
            return {"turns": 0.0, "tokens": 0.0, "rows": 0.0, "optimizer_steps": 0.0}
        every = Tokens.of(made.rows)
        good = np.isfinite(every.advantage) & np.isfinite(every.logprob)
        if not good.all():
            raise EngineError(
                f"{self.where}: an advantage or a sampled log-probability is not finite, so this"
                " update is refused"
            )
        self.checks.look(made.rows)
        part = units_of(table)[0, every.turn]
        sampled = Sampled(every.advantage, every.logprob, every.turn, part)
        steps, old, repeated = self._surely(made.rows, sampled, lr, settings, rng)
        told = told_of(made, every, old, self.version)
        return {**steps, "repeated": float(repeated), **told}

    def _surely(
        self,
        made: Sequence[Row],
        sampled: Sampled,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> tuple[dict[str, float], Array, int]:
        """(metrics, log-probabilities [n] before, repeats): the update, done again from saved
        weights where an answer was lost."""
        begin = self._state_path()
        drawn = rng.getstate()
        for repeated in range(self.clients.attempts):
            try:
                return (*self._steps(made, sampled, lr, settings, rng), repeated)
            except Lost as error:
                if repeated + 1 == self.clients.attempts:
                    raise EngineError(str(error), retryable=True) from error
                time.sleep(min(0.5 * 2.0**repeated, 30.0))
                rng.setstate(drawn)
                # a new client: the old one may hold gradients that nobody asked for
                self.trainer = self.clients.restored(begin)
                self._saved = begin
        raise AssertionError("attempts is above 0")

    def _steps(
        self,
        made: Sequence[Row],
        sampled: Sampled,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> tuple[dict[str, float], Array]:
        """(metrics, log-probabilities [n] before the update)."""
        cuts = np.split(
            np.arange(len(sampled.turn)), np.cumsum([int(row.mask.sum()) for row in made])[:-1]
        )
        before = self._scored(made)
        old = np.concatenate([new[row.mask] for new, row in zip(before, made, strict=True)])
        first, second = settings.betas
        decay = settings.weight_decay
        adam = Adam(lr, (first, second), settings.eps, decay, settings.grad_clip)
        seen: list[dict[str, float]] = []
        stopped = False
        for number, chosen in enumerate(minibatches(made, settings, rng)):
            picked = [made[n] for n in chosen]
            # scored before the step, since the slope is that of now; the first one is already
            now = [before[n] for n in chosen] if number == 0 else self._scored(picked)
            places = np.concatenate([cuts[n] for n in chosen])
            new = np.concatenate([s[row.mask] for s, row in zip(now, picked, strict=True)])
            whole = pull(new, old[places], sampled.take(places), settings, self.longest)
            drift = new - old[places]
            moved = float((np.expm1(drift) - drift).mean())
            if settings.target_kl is not None and moved > settings.target_kl:
                stopped = True
                break
            norm = self._step(picked, now, whole.slope, adam)
            clipped = float(whole.clipped.mean())
            seen.append({"loss": whole.loss, "kl": moved, "clip_fraction": clipped, **norm})
        names = sorted({name for measures in seen for name in measures})
        mean = {name: float(np.mean([m[name] for m in seen if name in m])) for name in names}
        return {**mean, "optimizer_steps": float(len(seen)), "stopped": float(stopped)}, old

    def _scored(self, chosen: Sequence[Row]) -> list[Array]:
        """Log-probabilities of all ids of these rows, as the weights are now."""
        self.pay(sum(len(row.ids) for row in chosen))
        scores = self.clients.forward(self.trainer, [row.ids for row in chosen])
        if not all(np.isfinite(score).all() for score in scores):
            names = ", ".join(dict.fromkeys(str(row.episode) for row in chosen[:8]))
            raise EngineError(
                f"{self.where}: a log-probability of the server is not finite, so this update is"
                f" refused; episodes {names}"
            )
        return scores

    def _step(
        self, chosen: Sequence[Row], now: Sequence[Array], slope: Array, adam: Adam
    ) -> dict[str, float]:
        """One optimiser step along minus the slopes [n]; the norm of the gradient, where the
        server tells it."""
        factors = self.scale.factors([len(row.ids) - 1 for row in chosen])
        ends = np.cumsum([int(row.mask.sum()) for row in chosen])[:-1]
        pulls = []
        for row, scores, part, factor in zip(
            chosen, now, np.split(slope, ends), factors, strict=True
        ):
            wanted = np.zeros(len(row.ids))
            wanted[row.mask] = -part * factor
            pulls.append(Pull(row.ids, scores, wanted))
        self.pay(sum(len(row.ids) for row in chosen))
        self._saved = None
        self.clients.gradient(self.trainer, pulls)
        told = self.clients.step(self.trainer, adam)
        norms = [value for name, value in told.items() if "grad_norm" in name]
        return {"grad_norm": norms[0]} if norms else {}

    def pay(self, tokens: int) -> None:
        """Counts tokens that a server reads to score or to learn. Raises BudgetError before it
        does, where they do not fit."""
        if self.engine.budget is not None:
            self.engine.budget.spend(tokens)

    def clone(
        self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
    ) -> dict[str, float]:
        """Raises ConfigError."""
        raise ConfigError(
            f"{self.where}: no warm start at a server of the Tinker API; clone a local model"
            " (transformers/), or remove train.warm_start"
        )

    def publish(self) -> dict[str, float]:
        """Writes the weights at the server, samples them, checks them against the learner on a few
        prompts, then raises the version. Raises EngineError where they differ; the engine then
        refuses to sample."""
        metrics = self._publish()
        self.engine.version += 1
        return {**metrics, "version": float(self.version)}

    def _publish(self) -> dict[str, float]:
        path = self.clients.published(self.trainer, self._name("sampler"))
        before = self.engine.take(path)
        TRAINED[str(self.engine.base_url), run_of(path)] = self
        self.engine.unpublished = True
        metrics = self.checks.check()
        self.engine.unpublished = False
        # the one before is still sampled from, by plays that run ahead; one older is not
        self.checks.replaced(before)
        return metrics

    def _name(self, kind: str) -> str:
        plain = "".join(char if char.isalnum() and char.isascii() else "-" for char in self.policy)
        return f"{plain or 'policy'}-{kind}-{self.version}"

    def _state_path(self) -> str:
        """A path at the server with the present weights and optimiser."""
        if self._saved is None:
            self._saved = self.clients.saved(self.trainer, self._name("state"))
        return self._saved

    def state(self) -> dict[str, bytes]:
        """One small file: the weights and the optimiser stay at the server, and this names them."""
        note = {
            "schema": SCHEMA,
            "base": self.engine.name,
            "server": self.engine.base_url,
            "state": self._state_path(),
            "version": self.version,
            **self.checks.state(),
        }
        return {FILE: json.dumps(note, sort_keys=True).encode()}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Goes on from the state at the server. Raises DataError where the file is damaged or of
        another base, or the server has the state no more."""
        try:
            note: dict[str, Any] = json.loads(files[FILE])
            path = str(note["state"])
            version = int(note["version"])
            base = str(note["base"])
            if note["schema"] != SCHEMA:
                raise ValueError(f"schema {note['schema']}")
            self.checks.load(note)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.where}: its checkpoint cannot be read ({type(error).__name__}: {error})"
            ) from error
        if base != self.engine.name:
            raise DataError(f"{self.where}: its checkpoint is of the base {base}")
        try:
            trainer = self.clients.restored(path)
        except EngineError as error:
            if error.retryable:
                raise
            raise DataError(
                f"{self.where}: the server has the state {path} of this checkpoint no more"
                f" ({error}); go on from another checkpoint, or start anew with --fresh"
            ) from error
        self.trainer = trainer
        self._saved = path
        self.engine.version = version
        self._publish()

    def fingerprint(self) -> str:
        return self.engine.fingerprint()
