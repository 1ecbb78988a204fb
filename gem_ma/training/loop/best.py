"""Keeps the weights of the best exam so far as models of the run folder
(`train.checkpoints.best`), beside those of the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import RunFolder
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.exports import write_model
from gem_ma.training.loop.step import Step

# scores that say how far from an equilibrium
FALLING = ("nash_conv", "exploitability")


class Best(Attendant):
    """Writes `models/NAME.best` of each policy that learns, whenever an exam is better than all
    before. `measure`: a score of exams, dots between its words; of equals the first stays."""

    name = "best"
    shape = dict[str, float]
    optional = True  # of a run that was begun without it: the best from here on

    def __init__(
        self, measure: str, policies: Mapping[str, Policy], folder: RunFolder | None
    ) -> None:
        self.measure = measure
        self.policies = policies
        self.folder = folder
        self.exam: dict[str, float] = {}  # `step` and `score`

    def examined(self, step: Step) -> None:
        """Compares an exam, and writes the weights where it is the best so far."""
        if step.scores is None:
            return
        score = self._score(step.scores)
        # what is no number compares with none, and would stay or go by chance
        if score is None or math.isnan(score):
            return
        falls = self.measure.startswith(FALLING)
        if self.exam and (score >= self.exam["score"] if falls else score <= self.exam["score"]):
            return
        self.exam = {"step": float(step.number), "score": score}
        # a run that was killed after this exam holds it once more, and writes the same
        for name, policy in self.policies.items():
            if self.folder is not None and isinstance(policy.core, Weighs):
                write_model(self.folder, f"{name}.best", policy.core)

    def _score(self, scores: Mapping[str, Any]) -> float | None:
        """None where every play of the exam failed: that says nothing of the weights."""
        value: Any = scores
        for word in self.measure.split("."):
            value = value.get(word) if isinstance(value, Mapping) else None
            if isinstance(value, Mapping) and value.get("ok") == 0:
                return None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            exams = [key for key in scores if key.startswith(("sampled", "greedy"))]
            # of a game without success, or of one agent's, there is none
            known = [f"{key}.success" for key in exams if scores[key]["success"] is not None]
            known += [f"{key}.return.{agent}" for key in exams for agent in scores[key]["return"]]
            known += [key for key in scores if key.startswith(FALLING)]
            raise ConfigError(
                f"train.checkpoints.best: exams of this run have no score {self.measure!r}; such as"
                f" {', '.join(known)}"
            )
        return float(value)

    def summary(self) -> Mapping[str, Any]:
        """Its step and score, and where the weights lie."""
        names = [n for n, policy in self.policies.items() if isinstance(policy.core, Weighs)]
        models = {name: f"models/{name}.best" for name in names}
        return {"best": {"measure": self.measure, **self.exam, "models": models}}

    def state(self) -> Mapping[str, Any]:
        """See `Attendant.state`."""
        return self.exam

    def load(self, state: Any) -> None:
        """See `Attendant.load`."""
        self.exam = dict(state)
