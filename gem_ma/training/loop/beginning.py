"""Scores and weights before the first step, to compare with those at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.errors import EngineError
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.step import Step


def fingerprints(policies: Mapping[str, Policy]) -> dict[str, str]:
    """SHA-256 of the weights of every policy whose engine holds weights."""
    engines = {name: policy.core for name, policy in policies.items()}
    return {
        name: engine.fingerprint() for name, engine in engines.items() if isinstance(engine, Weighs)
    }


class BeginningState(TypedDict):
    """The entry `first` of a checkpoint."""

    scores: dict[str, Any]
    weights: dict[str, str]


class Beginning(Attendant):
    """Keeps the scores of the first exam and the digests of all weights. At the end only the
    digests of policies that learn may differ."""

    name = "first"
    shape = BeginningState

    def __init__(self, policies: Mapping[str, Policy], learned: Sequence[str]) -> None:
        self.policies = policies
        self.learned = learned
        self.scores: Mapping[str, Any] = {}
        self.weights: Mapping[str, str] = {}

    def examined(self, step: Step) -> None:
        """Takes the first exam."""
        # `weights` is empty only here: a run without learners holds its last exam at step 0 too
        if step.number == 0 and step.scores is not None and not self.weights:
            self.scores, self.weights = step.scores, fingerprints(self.policies)

    def summary(self) -> Mapping[str, Any]:
        """`before`, and whose weights changed. Raises EngineError where a frozen policy's did."""
        # policies may share a base: a step of one that reached another would go unseen otherwise
        after = fingerprints(self.policies)
        changed = [name for name, digest in after.items() if digest != self.weights.get(name)]
        moved = [name for name in changed if name not in self.learned]
        if moved:
            raise EngineError(
                f"the weights of {', '.join(moved)} changed although only"
                f" {', '.join(self.learned) or 'none'} learn"
            )
        unchanged = [name for name in after if name not in changed]
        return {
            "before": self.scores,
            "changed": changed,
            "unchanged": unchanged,
            "weights": after,
        }

    def state(self) -> Mapping[str, Any]:
        """See `Attendant.state`."""
        return {"scores": self.scores, "weights": self.weights}

    def load(self, state: Any) -> None:
        """See `Attendant.load`."""
        self.scores = state["scores"]
        self.weights = state["weights"]
