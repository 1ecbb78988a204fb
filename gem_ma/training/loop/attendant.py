"""What follows a training without being part of its method.

The loop of `gem_ma.training.train` plays, credits, updates, publishes and records. Everything else
(a league, a watch for collapse, averages, notes to the user) is an `Attendant`: it is called in
every step, and may add rows to the record and notes for the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.training.loop.step import Step


class Attendant:
    """Base of what attends a training; a subclass overrides what it needs. `name` is its key in
    checkpoints; "" keeps nothing there.

    The order of calls: `played`, `updated`, `examined` in every step, `updated` and `examined` for
    step 0 too; `summary` once, after the exam of the end.
    """

    name = ""
    shape: Any = dict[str, Any]  # of `state`; what a checkpoint holds is checked against it
    optional = False  # checkpoints of older versions may lack it

    def played(self, step: Step) -> None:
        """The step is played, and its metrics of play are there."""

    def updated(self, step: Step) -> None:
        """Every policy whose turn it was has learned, and its weights are published."""

    def examined(self, step: Step) -> None:
        """The step is recorded; `step.scores` is its exam, None where none was due."""

    def summary(self) -> Mapping[str, Any]:
        """Keys of summary.json."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """All that a resume needs, as JSON values."""
        return {}

    def load(self, state: Any) -> None:
        """The inverse of `state`, which is {} in a checkpoint of a version that did not have this
        attendant."""
