"""The iterated prisoner's dilemma: both act at once, every round, and see afterwards what the other
did.

Type `gem-ma run dilemma agents.player_0.behaviour=random_legal`.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma import Ask, Reward, Scenario, Tell
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

CHOICES = ("cooperate", "defect")
PAYOFF = {
    ("cooperate", "cooperate"): (3, 3),
    ("cooperate", "defect"): (0, 5),
    ("defect", "cooperate"): (5, 0),
    ("defect", "defect"): (1, 1),
}


class Dilemma(Scenario):
    """Iterated prisoner's dilemma for two agents: simultaneous, mixed motives."""

    agents = ("player_0", "player_1")
    chance = False
    baselines = {"always cooperate, both": 15.0, "always defect, both": 5.0}

    def __init__(self, rounds: int = 5) -> None:
        if rounds < 1:
            raise ConfigError(f"scenario.rounds: at least one round is played; got {rounds}")
        # on the instance: both depend on the option
        self.rounds = self.ends_within = rounds
        self.baselines = {
            "always cooperate, both": 3.0 * rounds,
            "always defect, both": 1.0 * rounds,
        }

    def play(self, rng: random.Random, task: Any) -> Play:
        first, second = self.agents
        for round_ in range(self.rounds):
            actions = yield Ask(
                dict.fromkeys(
                    self.agents, f"Round {round_ + 1} of {self.rounds}: cooperate or defect?"
                ),
                legal=CHOICES,
            )
            # who says neither cooperates
            moves = actions[first].parsed or "cooperate", actions[second].parsed or "cooperate"
            # after both have acted: until then nobody knows the other's choice
            yield Tell(
                {
                    first: f"The other chose to {moves[1]}.",
                    second: f"The other chose to {moves[0]}.",
                }
            )
            yield Reward(
                dict(zip(self.agents, PAYOFF[moves], strict=True)), why=f"round {round_ + 1}"
            )
