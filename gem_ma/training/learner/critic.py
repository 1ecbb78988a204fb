"""Critics: what a turn is worth before it is taken. One value per turn, read from what the agent
had seen, never from what it then said.

A critic is apart from the policy: own weights, own optimiser (a value head on a shared trunk
ruined small policies). That of language models is in `gem_ma.training.learner.torch_critic`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import CriticSettings, LossSettings
from gem_ma.credit.table import TurnTable, view_digest
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import DataError
from gem_ma.kernel.parsing.strict_json import load_json

Array = NDArray[np.float64]


class Critic(Protocol):
    """Values of turns [N], and of the views at which the driver cut plays. `reads`: the keys of
    `train.critic` that say how it learns."""

    @property
    def reads(self) -> Collection[str]: ...

    def bound(self, settings: LossSettings) -> None:
        """Takes the memory of a pass that the settings allow."""

    def values(self, table: TurnTable) -> Array: ...
    def tails(self, episodes: Sequence[Episode], policy: str) -> dict[tuple[int, str], float]: ...
    def fit(
        self, table: TurnTable, targets: Array, settings: CriticSettings, rng: random.Random
    ) -> dict[str, float]: ...
    def state(self) -> dict[str, bytes]: ...
    def load(self, files: Mapping[str, bytes]) -> None: ...


def valued(table: TurnTable, critic: Critic) -> TurnTable:
    return replace(table, value=critic.values(table))


class TableCritic:
    """One number per view, moved towards the mean of its targets; a view not met before is worth
    the mean of all targets so far."""

    reads = ("step",)

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.mean = 0.0
        self.count = 0

    def bound(self, settings: LossSettings) -> None:
        """A table has no passes."""

    def values(self, table: TurnTable) -> Array:
        return np.array(
            [self.seen.get(str(key), self.mean) for key in table.column("state_key")], np.float64
        )

    def tails(self, episodes: Sequence[Episode], policy: str) -> dict[tuple[int, str], float]:
        # the digest of the view as it stands now, which is the key of the turn that never came
        return {
            (episode, agent): self.seen.get(view_digest(episodes[episode], agent), self.mean)
            for episode, agent in cut_views(episodes, policy)
        }

    def fit(
        self, table: TurnTable, targets: Array, settings: CriticSettings, rng: random.Random
    ) -> dict[str, float]:
        """Moves each view by `step` towards the mean of its targets. Metrics: value_loss (mean
        squared error before), explained (variance)."""
        if not len(table):
            return {}
        # before the targets go in: afterwards it would know them
        quality = fit_quality(self.values(table), targets)
        keys = table.column("state_key")
        for key in dict.fromkeys(keys.tolist()):
            mine = targets[keys == key]
            # a new view starts at the mean of all, so one target does not throw it to an extreme
            old = self.seen.get(key, self.mean)
            self.seen[key] = old + settings.step * (float(np.mean(mine)) - old)
        # over all fits so far, so that a new view is worth what views have been worth
        self.mean = (self.mean * self.count + float(targets.sum())) / (self.count + len(targets))
        self.count += len(targets)
        return quality

    def state(self) -> dict[str, bytes]:
        seen = dict(sorted(self.seen.items()))  # so that the same critic is the same bytes
        state = {"seen": seen, "mean": self.mean, "count": self.count}
        return {"critic.json": json.dumps(state).encode()}

    def load(self, files: Mapping[str, bytes]) -> None:
        try:
            saved = load_json(files["critic.json"])
            self.seen = {str(view): float(value) for view, value in saved["seen"].items()}
            self.mean = float(saved["mean"])
            self.count = int(saved["count"])
        except (KeyError, ValueError, TypeError, AttributeError, OSError) as error:
            raise DataError(
                f"the checkpoint of a critic cannot be read ({type(error).__name__}: {error})"
            ) from error


def cut_views(episodes: Sequence[Episode], policy: str) -> list[tuple[int, str]]:
    """(episode, agent) of every view of the policy at which the agent's part was cut."""
    return [
        (n, agent)
        for n, e in enumerate(episodes)
        if e.end.scored
        for agent, seat in e.cast.items()
        if seat.policy == policy and e.goes_on(agent)
    ]


def fit_quality(values: Array, targets: Array) -> dict[str, float]:
    error = float(np.mean((targets - values) ** 2))
    spread = float(np.var(targets))
    # constant targets have nothing to explain; the share would be a division by rounding
    return {"value_loss": error, "explained": 1 - error / spread if spread > 1e-12 else 0.0}
