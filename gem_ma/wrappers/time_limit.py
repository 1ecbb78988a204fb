"""A time limit of a scenario's own, around any rules."""

from __future__ import annotations

from gem_ma.kernel.effects import Scenario
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ConfigError
from gem_ma.wrappers.around import Around, layers_of


class TimeLimit(Around):
    """Cuts a play after `steps` decision points, retries included. That is a truncation: the value
    of what would follow still counts. A shorter limit of the rules' own stays."""

    def __init__(self, inner: Scenario, steps: int) -> None:
        if type(steps) is not int or steps < 1:
            raise ConfigError(f"time_limit: 1 decision point or more; got {steps!r}")
        if any(isinstance(layer, TimeLimit) for layer in layers_of(inner)):
            raise ConfigError("time_limit stands around time_limit: write the shorter one")
        super().__init__(inner)
        self.limits = Limits(max_steps=steps).narrowed(inner.limits)
        # what a limit cuts has not ended by the rules
        if inner.ends_within is not None and inner.ends_within > steps:
            self.ends_within = None
