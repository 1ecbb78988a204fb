"""Stop or go: one agent decides at every step whether to take another. The smallest scenario in
which a play is as long as its player wants.

It shows what centring does to an estimator where the agent ends its own episodes. Type `gem-ma
train stop_or_go.yaml`.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma import Ask, Reward, Scenario
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

STOP = "stop"
GO = "go"


class StopOrGo(Scenario):
    """One agent may stop at every step; each further step pays, and the last one a prize."""

    agents = ("walker",)
    chance = False
    default_cast = {"walker": "random_legal"}

    def __init__(self, steps: int = 6, pay: float = 1.0, prize: float = 0.0) -> None:
        """`pay` for each step taken (below 0: what it costs), `prize` on top for having taken
        all of them."""
        if steps < 1:
            raise ConfigError(f"scenario.steps: at least one step can be taken; got {steps}")
        self.steps = self.ends_within = steps
        self.pay = pay
        self.prize = prize
        # of this object: both numbers depend on its options
        self.baselines = {
            "always goes (return)": steps * pay + prize,
            "stops at once (return)": 0.0,
        }

    def play(self, rng: random.Random, task: Any) -> Play:
        for taken in range(self.steps):
            actions = yield Ask(
                {"walker": f"Steps taken: {taken} of {self.steps}. Stop or go?"}, legal=(STOP, GO)
            )
            if actions["walker"].parsed != GO:  # who says neither stays where it is
                return
            yield Reward({"walker": self.pay}, why="step")
        yield Reward({"walker": self.prize}, why="prize")
