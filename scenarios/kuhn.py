"""Kuhn poker: three cards, one chip each to enter, one bet. The smallest game in which bluffing
pays.

Type `gem-ma run kuhn_poker`; `configs/kuhn_table.yaml` learns it by self-play and scores it by
exploitability.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma import Ask, Reward, Scenario, Tell
from gem_ma.errors import ConfigError
from gem_ma.scenario import Play

CARDS = "JQK"
ENDINGS = {"cc", "bc", "bf", "cbc", "cbf"}  # check or call, bet, fold


class Kuhn(Scenario):
    """Kuhn poker for two agents: zero-sum, private cards, one or two chips."""

    agents = ("player_0", "player_1")
    zero_sum = True
    ends_within = 3
    baselines = {
        "uniform (exploitability, milli-chips)": 458.33,
        "card-blind (exploitability, milli-chips)": 333.33,
    }

    def __init__(self, offset: float = 0.0, foul: float = 0.0) -> None:
        """`offset` is what player_1 pays player_0 at the end of every hand, whoever wins: it
        changes no decision.

        `foul` is what an answer costs its agent that is not one of the two words and nothing
        else; it is played as check or fold, and the other gets the chips, since the game is
        zero-sum. Without a foul words around the move are forgiven, and an unreadable answer is
        as good as check or fold: a language model that learns has no reason to keep to the
        format. Raises ConfigError for a foul below 0.
        """
        if (
            isinstance(foul, bool)
            or not isinstance(foul, (int, float))
            or not 0 <= foul < float("inf")
        ):
            raise ConfigError(f"scenario.foul: chips of 0 or more; got {foul!r}")
        self.offset, self.foul = offset, foul

    def deal(self, rng: random.Random, task: Any) -> dict[str, str]:
        return dict(zip(self.agents, rng.sample(CARDS, 2), strict=True))

    def play(self, rng: random.Random, task: Any) -> Play:
        cards, chips, history = self.deal(rng, task), dict.fromkeys(self.agents, 1), ""
        yield Tell({agent: f"Kuhn poker. Your card is {cards[agent]}." for agent in self.agents})
        while history not in ENDINGS:
            agent = self.agents[len(history) % 2]
            legal = ("fold", "call") if history.endswith("b") else ("check", "bet")
            said = yield Ask(
                {
                    agent: (
                        f"Moves so far: {' '.join(history) or 'none'}. Choose {legal[0]} or"
                        f" {legal[1]}."
                    )
                },
                legal=legal,
            )
            fouled = bool(self.foul) and said[agent].text.strip() not in legal
            # an unreadable answer folds or checks
            move = legal[0] if fouled else said[agent].parsed or legal[0]
            chips[agent] += move in ("bet", "call")
            history += move[0]
            if fouled:
                other = next(one for one in self.agents if one != agent)
                yield Reward({agent: -self.foul, other: self.foul}, why="foul")
        winner = (
            self.agents[len(history) % 2]
            if history.endswith("f")
            else max(self.agents, key=lambda a: CARDS.index(cards[a]))
        )
        loser = next(agent for agent in self.agents if agent != winner)
        yield Reward({winner: chips[loser], loser: -chips[loser]}, why=history)
        if self.offset:
            yield Reward({"player_0": self.offset, "player_1": -self.offset}, why="offset")
