"""The learner of the table engine: updates, cloning and the averaged policy, in numpy. No torch.

A reply of the table engine is one choice: its key names a row of logits, its token the index
(`gem_ma.engines.small.table`). The gradient is that of `gem_ma.training.learner.table_rows`.
Axis: N choices sampled in a batch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Array, Table, decode, encode, fingerprint, softmax, view_key
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.legal import parse_legal
from gem_ma.kernel.parsing.strict_json import load_json
from gem_ma.kernel.spelling import in_quotes
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner import Demonstration, Turns
from gem_ma.training.learner.critic import TableCritic
from gem_ma.training.learner.losses import PAIRED, Slope, k3, ranking
from gem_ma.training.learner.parity import check_sampling, fresh_gap
from gem_ma.training.learner.table_rows import (
    ChoiceBatch,
    Moment,
    Path,
    TableRows,
    accumulate,
    averaged,
    batch_of,
    checked_advantages,
)


class TableReference:
    """A table's learner, as far as it keeps a reference: the weights that `loss.kl` holds to, and
    how far a batch lies from them. `paths`: the choices before a view."""

    def __init__(self, policy: str, sampling: Sampling) -> None:
        self.policy = policy
        self.sampling = sampling
        self.weights: dict[int, Array] = {}
        self.paths: dict[int, Path] = {}
        # None until the first update that needs it, which then takes the weights of before
        self.reference: dict[int, Array] | None = None
        # whose table is the reference in place of weights of its own, and its temperature
        self.teacher: tuple[Table, float] | None = None

    def follow(self, teacher: Policy) -> None:
        if not isinstance(teacher.core, Table):
            raise ConfigError(
                f"train.loss.reference: policy {self.policy!r} is a table, so {teacher.name!r} has"
                f" to be one; its engine is {type(teacher.core).__name__}"
            )
        self.teacher = teacher.core, teacher.sampling.temperature

    def divergence(self, table: Turns) -> tuple[Array, int]:
        nothing = np.zeros(len(table.turns))
        batch = batch_of(self.policy, table, nothing, self.weights, self.paths)
        if batch is None:
            return nothing, 0
        away = batch.sampled - self.anchor(batch)
        return np.bincount(batch.turn, away, len(nothing)).astype(np.float64), len(away)

    def hold(self) -> None:
        self.reference = {key: row.copy() for key, row in self.weights.items()}

    def anchor(self, batch: ChoiceBatch) -> Array:
        """Log-probability [N] of the choices under the teacher, or under the weights of before the
        first update that needs them; a view that the reference has not met is uniform."""
        if self.teacher is not None:
            return self._taught(batch, *self.teacher)
        if self.reference is None:
            self.hold()
        assert self.reference is not None
        held = self._rows(self.reference, batch)
        return held.logprobs(batch, self.sampling.temperature)

    def _rows(self, logits: Mapping[int, Array], batch: ChoiceBatch) -> TableRows:
        held = {key: logits.get(key, np.zeros(len(self.weights[key]))) for key in batch.keys}
        return TableRows.gather(held, {}, batch)

    def _taught(self, batch: ChoiceBatch, teacher: Table, temperature: float) -> Array:
        """The same under a teacher. Raises EngineError where a choice has no probability there."""
        # its rows are read now: one that was cloned before the first step has others since
        scaled = self._rows(teacher.logits, batch).logits / temperature
        # no logarithm of a probability: a teacher that is sure has some that are 0 in floats
        with np.errstate(invalid="ignore"):  # of infinite logits, which are told below
            logs = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
        logprobs = np.asarray(logs[batch.view, batch.choice])
        if not np.isfinite(logprobs).all():
            raise EngineError(
                f"train.loss.reference: policy {teacher.policy!r} gives a choice of"
                f" {self.policy!r} no probability at all (a logit of it is not finite)"
            )
        return logprobs


class TableState(NamedTuple):
    """Everything that a resume needs, by view, as JSON files of a checkpoint; floats survive bit
    for bit. See `TableLearner`."""

    weights: dict[int, Array]
    moments: dict[int, Moment]
    reference: dict[int, Array] | None
    paths: dict[int, Path]
    sums: dict[int, Array]
    version: int


def saved(state: TableState) -> dict[str, bytes]:
    """Files of a checkpoint: table.json, learner.json and, where the loss holds to one,
    reference.json."""
    # sorted, so that the same table is the same bytes; `tolist` writes every float in full
    moments = {
        str(key): [m.tolist(), v.tolist(), n] for key, (m, v, n) in sorted(state.moments.items())
    }
    rest = {
        "version": state.version,
        "moments": moments,
        "paths": {str(key): path for key, path in sorted(state.paths.items())},
        "sums": {str(key): row.tolist() for key, row in sorted(state.sums.items())},
    }
    # a file of its own, since most losses hold to nothing
    held = {"reference.json": encode(state.reference)} if state.reference is not None else {}
    learner = json.dumps(rest).encode()
    return {**held, "table.json": encode(state.weights), "learner.json": learner}


def loaded(files: Mapping[str, bytes], policy: str) -> TableState:
    """The inverse of `saved`. Raises ValueError or DataError for what is damaged, KeyError for a
    missing file."""
    weights = decode(files["table.json"], f"policy {policy!r}: table.json")
    rest = load_json(files["learner.json"])
    held = files.get("reference.json")
    reference = decode(held, f"policy {policy!r}: reference.json") if held is not None else None
    moments = {int(key): (_row(m), _row(v), float(n)) for key, (m, v, n) in rest["moments"].items()}
    paths = {
        int(key): tuple((int(view), int(choice)) for view, choice in path)
        for key, path in rest["paths"].items()
    }
    sums = {int(key): _row(row) for key, row in rest["sums"].items()}
    rows = [*sums.items(), *((key, row) for key, (*pair, _) in moments.items() for row in pair)]
    # files of two checkpoints, each whole in itself, must not be mixed
    shapes = {key: row.shape for key, row in weights.items()}
    if any(row.shape != shapes.get(key) for key, row in rows):
        raise ValueError("learner.json: its rows are not those of table.json")
    return TableState(weights, moments, reference, paths, sums, int(rest["version"]))


def _row(values: Any) -> Array:
    return np.array(values, np.float64)


def shares_of_choices(
    demonstrations: Sequence[Demonstration],
) -> tuple[dict[int, Array], dict[str, float]]:
    """Cloning in closed form: (logits by view, the log of each choice's share with one uniform
    choice added; metrics). Texts that name no legal string are counted in `unreadable`."""
    counts: dict[int, Array] = {}
    unreadable = 0
    for demonstration in demonstrations:
        request = demonstration.request
        choice = parse_legal(demonstration.text, request.legal) if request.legal else None
        if request.legal is None or choice is None:
            unreadable += 1
            continue
        key = view_key(request.agent, request.messages, request.legal)
        # without the added choice one that nobody showed would have a logit of minus infinity
        counts.setdefault(key, np.full(len(request.legal), 1 / len(request.legal)))[
            request.legal.index(choice)
        ] += 1
    logits = {}
    loss = 0.0
    for key, row in counts.items():
        logits[key] = np.log(row / row.sum())
        # the added choice was not demonstrated, so it is taken off again
        loss -= float(((row - 1 / len(row)) * logits[key]).sum())
    cloned = len(demonstrations) - unreadable
    return logits, {
        "demonstrations": float(cloned),
        "unreadable": float(unreadable),
        "views": float(len(counts)),
        "nll": loss / max(1, cloned),
    }


PROBED = 256  # views that a publish compares; a table may have millions
PARITY = 1e-5  # nats; both sides are float64 softmaxes of the same numbers


class TableLearner(TableReference):
    """Owns a second copy of the logits, which reaches the engine in `publish`. It averages what
    it published, see `average`."""

    def __init__(self, engine: Table, sampling: Sampling | None = None) -> None:
        super().__init__(engine.policy, sampling or Sampling())
        self.engine = engine
        check_sampling(self.policy, self.sampling)
        self.version = engine.version
        self.parity = PARITY
        self.weights = {key: row.copy() for key, row in engine.logits.items()}
        self.moments: dict[int, Moment] = {}
        # version times reach times probabilities, over all published versions
        self.sums: dict[int, Array] = {}

    def critic(self) -> TableCritic:
        """See `Values`: one number per view."""
        return TableCritic()

    def bound(self, settings: LossSettings) -> None:
        """A table has no passes whose memory could be bounded. Raises ConfigError for a key that
        would change nothing."""
        for key in ("betas", "eps") if self.engine.optimizer == "sgd" else ():
            if getattr(settings, key) != LossSettings.model_fields[key].default:
                raise ConfigError(
                    f"train.loss.{key}: is of Adam, and policy {self.policy!r} learns by sgd; set"
                    f" policies.{in_quotes(self.policy)}.optimizer=adam, or remove it"
                )

    def update(
        self,
        table: Turns,
        advantages: NDArray[np.float64],
        *,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """Optimiser steps on the choices of these turns; minibatches are cut by episode. Gives the
        statistics of the last pass.

        Raises EngineError for a reply that the table engine did not sample, ValueError for
        advantages [N] that are not finite or do not fit.
        """
        # checked before a row is touched, so that a refused update leaves nothing behind
        worth = checked_advantages(self.policy, table, advantages)
        batch = batch_of(self.policy, table, worth, self.weights, self.paths)
        if batch is None:
            return {"turns": 0.0, "tokens": 0.0, "optimizer_steps": 0.0}
        rows = TableRows.gather(self.weights, self.moments, batch)
        old = rows.logprobs(batch, self.sampling.temperature)
        stats = {
            "turns": float(len(table.turns)),
            "tokens": float(len(batch.choice)),
            "logprob_gap": float(np.abs(old - batch.sampled).max()),
            "mismatch_kl": float(k3(Slope.of(batch.sampled), old).value.mean()),
            **fresh_gap(batch.sampled, old, batch.version == self.version),
            "zero_advantage": float(np.mean(np.asarray(advantages) == 0)),
        }
        paired = settings.surrogate in PAIRED
        anchor = self.anchor(batch) if settings.kl or paired else None
        if paired and anchor is not None:
            stats |= ranking(old - anchor, batch.tokens().pairs())
        stats |= self._steps(rows, batch, old, anchor, lr, settings, rng)
        rows.scatter(self.weights, self.moments, batch)
        return stats

    def _steps(
        self,
        rows: TableRows,
        batch: ChoiceBatch,
        old: Array,
        anchor: Array | None,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """The optimiser steps of an update; metrics of the last one."""
        metrics: dict[str, float] = {}
        steps = 0
        # cut by episode: turns of one play lean on each other, so half of it is not a sample. Pairs
        # are of one start, so that all its plays stay together
        unit = batch.start if settings.surrogate in PAIRED else batch.episode
        for _ in range(settings.epochs):
            shuffled = np.unique(unit).tolist()
            rng.shuffle(shuffled)
            parts = min(settings.minibatches, len(shuffled))
            for part in np.array_split(np.array(shuffled), parts):
                chosen = np.isin(unit, part)
                gradient, measured = rows.gradient(
                    batch, chosen, old, anchor, self.sampling.temperature, settings
                )
                metrics |= measured
                # before the step: the gradient was measured where the policy has moved too far
                if settings.target_kl is not None and measured["kl"] > settings.target_kl:
                    return {**metrics, "optimizer_steps": float(steps), "stopped": 1.0}
                rows.step(gradient, lr, self.engine.optimizer, settings)
                steps += 1
        return {**metrics, "optimizer_steps": float(steps), "stopped": 0.0}

    def clone(
        self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
    ) -> dict[str, float]:
        """See `shares_of_choices`. A table needs no gradient steps for it, so `steps`, `batch` and
        `lr` of the settings are not used."""
        shares, numbers = shares_of_choices(demonstrations)
        self.weights |= shares
        return numbers

    def publish(self) -> dict[str, float]:
        """Hands the weights to the engine, checks that its log-probabilities are ours, then
        raises the version. Raises EngineError."""
        self.engine.publish(self.weights, self.version)
        gap = 0.0
        for key in list(self.weights)[:PROBED]:
            ours = softmax(self.weights[key], self.sampling)
            theirs = softmax(self.engine.logits[key], self.sampling)
            possible = ours > 0  # a choice of probability 0 has no logarithm to compare
            apart = np.log(ours[possible]) - np.log(theirs[possible])
            gap = max(gap, float(np.abs(apart).max()))
        if not gap < PARITY:  # so that a NaN is refused too
            raise EngineError(
                f"policy {self.policy!r}: after publishing, engine and learner differ by {gap} in"
                f" log-probability (limit {PARITY})"
            )
        # only now: a version stands for weights that passed the check
        self.version += 1
        self.engine.version = self.version
        accumulate(self.sums, self.weights, self.paths, self.version, self.sampling)
        return {"parity_gap": gap}

    def average(self) -> Table:
        """An engine that plays the average of all published versions, see `table_average`."""
        table = Table(policy=self.policy, optimizer=self.engine.optimizer)
        table.logits = averaged(self.weights, self.sums)
        table.version = self.version
        return table

    def state(self) -> dict[str, bytes]:
        past = (self.weights, self.moments, self.reference, self.paths, self.sums, self.version)
        return saved(TableState(*past))

    def load(self, files: Mapping[str, bytes]) -> None:
        """The inverse of `state`; the engine gets the weights too."""
        state = loaded(files, self.policy)
        self.weights = state.weights
        self.moments = state.moments
        self.reference = state.reference
        self.paths = state.paths
        self.sums = state.sums
        self.version = state.version
        self.engine.publish(self.weights, self.version)  # its copy is in no checkpoint

    def fingerprint(self) -> str:
        """SHA-256 of the weights, the engine's after `publish`."""
        return fingerprint(self.weights)
