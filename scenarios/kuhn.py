"""Kuhn poker: three cards, one chip each to enter, one bet. The smallest game in which bluffing
pays.

Type `gem-ma run kuhn_poker`; `configs/kuhn_table.yaml` learns it by self-play and scores it by
exploitability. Its options are in `kuhn_prices.py`.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from gem_ma import Ask, Reward, Scenario, Tell
from gem_ma.kernel.scenario import Play

CARDS = "JQK"
ENDINGS = {"cc", "bc", "bf", "cbc", "cbf"}  # check or call, bet, fold


@cache
def asked(history: str) -> tuple[str, tuple[str, str]]:
    """(question, legal moves) after these moves, of which there are nine."""
    legal = ("fold", "call") if history.endswith("b") else ("check", "bet")
    moves = " ".join(history) or "none"
    return f"Moves so far: {moves}. Choose {legal[0]} or {legal[1]}.", legal


class Kuhn(Scenario):
    """Kuhn poker for two agents: zero-sum, private cards, one or two chips."""

    agents = ("player_0", "player_1")
    zero_sum = True
    ends_within = 3
    baselines = {
        "uniform (exploitability, milli-chips)": 458.33,
        "card-blind (exploitability, milli-chips)": 333.33,
    }

    def deal(self, rng: random.Random, task: Any) -> dict[str, str]:
        # one draw for both cards: they differ, and the kit can deal anew
        return dict(zip(self.agents, rng.sample(CARDS, 2), strict=True))

    def play(self, rng: random.Random, task: Any) -> Play:
        cards = self.deal(rng, task)
        chips = dict.fromkeys(self.agents, 1)
        history = ""
        yield Tell({agent: f"Kuhn poker. Your card is {cards[agent]}." for agent in self.agents})
        while history not in ENDINGS:
            agent = self.agents[len(history) % 2]
            question, legal = asked(history)
            actions = yield Ask({agent: question}, legal=legal)
            move = actions[agent].parsed or legal[0]  # an unreadable answer folds or checks
            # one chip stands from the ante
            chips[agent] += move in ("bet", "call")
            history += move[0]
        # who would move next wins against a fold, the higher card wins a showdown
        winner = self.agents[len(history) % 2]
        loser = self.agents[1 - len(history) % 2]
        if not history.endswith("f") and CARDS.index(cards[winner]) < CARDS.index(cards[loser]):
            winner, loser = loser, winner
        yield Reward({winner: chips[loser], loser: -chips[loser]}, why=history)
