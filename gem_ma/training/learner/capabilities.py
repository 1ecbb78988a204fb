"""What a learner may do besides learning. As for engines (`gem_ma.engines.capabilities`), callers
ask `isinstance(learner, KeepsAverage)`. `Learner` itself is in `gem_ma.training.loop.roles`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.training.learner.critic import Critic
from gem_ma.training.learner.rows import Turns
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
class Anchors(Protocol):
    """Has the reference of `loss.kl` at hand. Asked where the divergence is a part of the reward,
    or the reference is renewed.

    `divergence`: log p sampled less log p reference of each turn [N], summed over its tokens, and
    the number of all these tokens. `hold`: the weights of now are the reference from here on.
    """

    def divergence(self, table: Turns) -> tuple[NDArray[np.float64], int]: ...
    def hold(self) -> None: ...


@runtime_checkable
class Follows(Protocol):
    """Can take another policy for the reference of `loss.kl`. Asked once, when a training opens
    with `loss.reference`; ConfigError where the two do not speak of the same choices."""

    def follow(self, teacher: Policy) -> None: ...


@runtime_checkable
class Joins(Protocol):
    """Shares its passes among several processes. Asked once, when a training opens. A learner
    without it computes the same update in each of them."""

    def join(self, team: Team) -> None: ...


@runtime_checkable
class Shards(Protocol):
    """Has tensors that may lie in parts in several processes. Asked by a checkpoint: files that
    all processes have written are read by any number of them (`gem_ma.training.learner.shards`).

    `group`: the processes that write, None = this one has them whole. `tensors` are parts by name.
    """

    group: Any

    def tensors(self) -> Mapping[str, Any]: ...
    def load(self, files: Mapping[str, bytes], shards: Sequence[Path] = ()) -> None: ...


# `isinstance` may read a property, so it must cost nothing
@runtime_checkable
class Pads(Protocol):
    """Computes padded passes. Asked after each update for the share of positions that held
    padding; None = not known yet."""

    @property
    def padding(self) -> float | None: ...
