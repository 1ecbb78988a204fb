"""The reference of a table that learns: the weights that `loss.kl` holds to, and how far a batch
lies from them. Knows choices; knows no update. Axis: N choices sampled in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Array, Table
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner.rows import Turns
from gem_ma.training.learner.table_rows import Batch, Path, TableRows, batch_of


class TableReference:
    """A table's learner, as far as it keeps a reference. `paths`: the choices before a view."""

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
        """See `Follows`."""
        if not isinstance(teacher.core, Table):
            raise ConfigError(
                f"train.loss.reference: policy {self.policy!r} is a table, so {teacher.name!r} has"
                f" to be one; its engine is {type(teacher.core).__name__}"
            )
        self.teacher = teacher.core, teacher.sampling.temperature

    def divergence(self, table: Turns) -> tuple[Array, int]:
        """See `Anchors`."""
        nothing = np.zeros(len(table.turns))
        batch = batch_of(self.policy, table, nothing, self.weights, self.paths)
        if batch is None:
            return nothing, 0
        away = batch.sampled - self.anchor(batch)
        return np.bincount(batch.turn, away, len(nothing)).astype(np.float64), len(away)

    def hold(self) -> None:
        """See `Anchors`."""
        self.reference = {key: row.copy() for key, row in self.weights.items()}

    def anchor(self, batch: Batch) -> Array:
        """Log-probability [N] of the choices under the teacher, or under the weights of before the
        first update that needs them; a view that the reference has not met is uniform."""
        if self.teacher is not None:
            return self._taught(batch, *self.teacher)
        if self.reference is None:
            self.hold()
        assert self.reference is not None
        held = self._rows(self.reference, batch)
        return held.logprobs(batch, self.sampling.temperature)

    def _rows(self, logits: Mapping[int, Array], batch: Batch) -> TableRows:
        held = {key: logits.get(key, np.zeros(len(self.weights[key]))) for key in batch.keys}
        return TableRows.gather(held, {}, batch)

    def _taught(self, batch: Batch, teacher: Table, temperature: float) -> Array:
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
