"""What a scenario says about a finished play: three functions of the record, and what kind of numbers they give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gem_ma.evaluation.groups import Labels, Measures
from gem_ma.evaluation.kinds import Kinds
from gem_ma.evaluation.metrics import Success, summarise
from gem_ma.scenario import Scenario
from gem_ma.types import Episode


@dataclass(frozen=True, slots=True)
class Judge:
    """Each function is None where the scenario has no such notion."""

    success: Success | None = None
    measures: Measures | None = None
    labels: Labels | None = None
    kinds: Kinds = Kinds()

    @classmethod
    def of(cls, scenario: Scenario) -> Judge:
        """The hooks that the scenario's class overrides."""
        own = type(scenario)
        return cls(
            scenario.success if own.success is not Scenario.success else None,
            scenario.measures if own.measures is not Scenario.measures else None,
            scenario.labels if own.labels is not Scenario.labels else None,
            Kinds(scenario.rates, scenario.more_is_better, scenario.less_is_better),
        )

    def summarise(self, episodes: Iterable[Episode]) -> dict[str, Any]:
        """The summary of these episodes."""
        return summarise(episodes, self.success, self.measures, self.labels, self.kinds)
