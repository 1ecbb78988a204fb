"""The three edges of the loop: who plays, who learns, and who brings weights to their samplers; and
what a learner may do besides.

The loop knows these protocols alone, so a role may run elsewhere. What crosses a role are plans,
episodes (as lines of `gem_ma.record.codec`) and weights by name.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.episode import Episode
from gem_ma.training.learner import Demonstration, Turns
from gem_ma.training.learner.critic import Critic
from gem_ma.training.processes.teams import Team


class Players(Protocol):
    """Plays plans with the weights that are published now."""

    async def play(
        self, plans: Sequence[Plan], *, learning: bool = False, temperature: float | None = None
    ) -> list[Episode]:
        """The episodes of these plans, in their order.

        `learning`: the plays are learned from, so the policies that learn are drawn as their
        config says, and seats may name members of the league. `temperature`: of every policy,
        instead of its own. A failed episode is data; raises BudgetError where a limit ended one.
        """
        ...

    def pinned(self) -> Players | None:
        """Players of the policies that learn as they are published now, whatever is published
        later; None where an engine of theirs cannot stay as it is."""
        ...


@runtime_checkable  # asked when a training opens: an engine may bring a learner of its own
class Learner(Protocol):
    """Learns one policy from turns: a language model, a table, anything with a version."""

    policy: str

    @property
    def version(self) -> int: ...  # the number of times that its weights were published

    @property
    def parity(self) -> float:
        """The largest gap to its sampler's log-probabilities that is allowed, in nats."""
        ...

    def bound(self, settings: LossSettings) -> None: ...  # takes how much memory a pass may have

    def update(
        self,
        table: Turns,
        advantages: NDArray[np.float64],
        *,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """Gradient steps on turns [N] with these advantages [N]; gives what is logged. Raises
        EngineError, with the weights of before the failing step, where a number is not finite."""
        ...

    def clone(
        self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
    ) -> dict[str, float]: ...  # the warm start; gives what is logged

    def publish(self) -> dict[str, float]: ...  # see `Publisher.publish`

    def state(self) -> dict[str, bytes]:
        """The files of a checkpoint: all that a resume needs, bit for bit."""
        ...

    def load(self, files: Mapping[str, bytes]) -> None:
        """The inverse of `state`. Raises DataError where a file is missing or damaged."""
        ...

    def fingerprint(self) -> str: ...  # SHA-256 of the weights


class Publisher(Protocol):
    """Brings the weights of a learner to its sampler."""

    def version(self, policy: str) -> int: ...

    def publish(self, policy: str) -> dict[str, float]:
        """Publishes the present weights, and gives the numbers of its parity check. Raises
        EngineError where sampler and learner disagree."""
        ...


# What a learner may do besides learning; callers ask `isinstance(learner, KeepsAverage)`.


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
