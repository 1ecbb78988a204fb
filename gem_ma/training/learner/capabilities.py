"""What a learner may do besides learning. As for engines (`gem_ma.engines.capabilities`), callers
ask `isinstance(learner, KeepsAverage)`. `Learner` itself is in `gem_ma.training.loop.roles`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gem_ma.engines.capabilities import Weighs
from gem_ma.training.learner.critic import Critic
from gem_ma.training.processes.teams import Team


@runtime_checkable
class Values(Protocol):
    """Has a critic for what it learns. Asked when a training opens and its estimator needs one."""

    def critic(self) -> Critic: ...


@runtime_checkable
class KeepsAverage(Protocol):
    """Averages all that it published. Asked by the exams, which score the average too, and at the
    end of a training, which writes it as a model."""

    def average(self) -> Weighs: ...


@runtime_checkable
class Joins(Protocol):
    """Shares its passes among several processes. Asked once, when a training opens. A learner
    without it computes the same update in each of them."""

    def join(self, team: Team) -> None: ...


# `isinstance` may read a property, so it must cost nothing
@runtime_checkable
class Pads(Protocol):
    """Computes padded passes. Asked after each update for the share of positions that held
    padding; None = not known yet."""

    @property
    def padding(self) -> float | None: ...
