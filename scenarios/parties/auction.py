"""An auction of one thing: first price, second price or ascending; each bidder knows what it is
worth to itself.

Type `gem-ma run auction 'agents.player_*=auction_equilibrium'`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import comb
from typing import Any

from gem_ma.scenarios.parties.checked import one_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell, dealt
from gem_ma.kernel.scenario import Play

FORMS = ("first price", "second price", "ascending")
STAY = ("stay", "leave")
SEARCHED = 200  # best answers to best answers that are looked at
EXACT = 1e-9


class Auction(Scenario):
    """Bidders with private values of a grid bid for one thing: first price, second price or
    ascending."""

    rates = ("efficiency", "highest wins")
    more_is_better = ("efficiency", "highest wins")

    def __init__(
        self, agents: int = 3, form: str = "first price", top: int = 7, rounds: int = 1
    ) -> None:
        """`agents` from 2 to 8. Values are drawn from 0 to `top`, alike and apart, anew in each of
        `rounds`; bids are of the same grid. Raises ConfigError."""
        self.agents = tuple(f"player_{number}" for number in range(whole("agents", agents, 2, 8)))
        self.form = one_of("form", form, FORMS)
        self.top = whole("top", top, 1, 200)
        self.rounds = whole("rounds", rounds, 1, 100)
        self.bids = tuple(map(str, range(top + 1)))
        self.ends_within = rounds * (top if form == "ascending" else 1)

    def deal(self, rng: random.Random, task: Any) -> dict[str, tuple[int, ...]]:
        return {
            agent: tuple([rng.randint(0, self.top) for _ in range(self.rounds)])
            for agent in self.agents
        }

    def play(self, rng: random.Random, task: Any) -> Play:
        values = self.deal(rng, task)
        yield Tell(dict.fromkeys(self.agents, self._rules()))
        for round_ in range(self.rounds):
            worth = {agent: values[agent][round_] for agent in self.agents}
            if self.form == "ascending":
                winner, price = yield from self._ascending(rng, worth)
            else:
                winner, price = yield from self._sealed(rng, worth)
            # what it is worth to the winner stays its own
            sold = f"{winner} gets it and pays {price}."
            yield Tell(dict.fromkeys(self.agents, sold))
            yield Reward({winner: worth[winner] - price}, why=f"sold at {price}")

    def _sealed(self, rng: random.Random, worth: Mapping[str, int]) -> Any:
        asked = {agent: f"It is worth {worth[agent]} to you. Your bid?" for agent in self.agents}
        answers = yield Ask(asked, legal=self.bids)
        bids = {agent: int(answers[agent].parsed or "0") for agent in self.agents}
        *_, second, highest = sorted(bids.values())
        winner = rng.choice([agent for agent in self.agents if bids[agent] == highest])
        return winner, highest if self.form == "first price" else second

    def _ascending(self, rng: random.Random, worth: Mapping[str, int]) -> Any:
        yield Tell({agent: f"It is worth {worth[agent]} to you." for agent in self.agents})
        staying = list(self.agents)
        for price in range(1, self.top + 1):
            question = f"{len(staying)} bidders are in. Do you stay at {price}?"
            answers = yield Ask(dict.fromkeys(staying, question), legal=STAY)
            stay = [agent for agent in staying if answers[agent].parsed == "stay"]
            if len(stay) < 2:
                # the last price at which two were in; by lot where all left at once
                return rng.choice(stay or staying), price - 1
            staying = stay
        return rng.choice(staying), self.top

    def _rules(self) -> str:
        how = {
            "first price": "All bid at once; the highest bid wins and pays itself.",
            "second price": "All bid at once; the highest bid wins and pays the second highest.",
            "ascending": "The price rises by 1; who leaves is out. The last one in wins, and pays"
            " the highest price at which another was in.",
        }[self.form]
        return (
            f"{len(self.agents)} bidders, rounds: {self.rounds}. {how} Ties are broken by lot."
            f" Values are drawn from 0 to {self.top}, each as likely, apart for each bidder."
        )

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        values = dealt(self, episode)
        sales = [entry for entry in episode.ledger if entry.why.startswith("sold at ")]
        if not sales:
            return dict.fromkeys(("revenue", "efficiency", "highest wins", "bid of value"))
        revenue = 0
        most = 0
        got = 0
        highest = 0
        for round_, entry in enumerate(sales):
            best = max(values[agent][round_] for agent in self.agents)
            own = values[entry.agent][round_]
            revenue += int(entry.why.removeprefix("sold at "))
            most += best
            got += own
            highest += own == best
        return {
            "revenue": revenue / len(sales),
            "efficiency": got / most if most else None,
            "highest wins": highest / len(sales),
            "bid of value": self._bid_of_value(episode, values),
        }

    def _bid_of_value(self, episode: Episode, values: Mapping[str, Sequence[int]]) -> float | None:
        """What was bid by all, as a part of what it was worth to them; None where nobody bids."""
        if self.form == "ascending":
            return None
        bid = 0
        worth = 0
        for agent in self.agents:
            # by their order: what stands around the rules may ask in between
            turns = [turn for turn in episode.turns if turn.agent == agent]
            bid += sum(int(turn.action.parsed or "0") for turn in turns)
            worth += sum(values[agent][: len(turns)])
        return bid / worth if worth else None


# -- exact, by enumeration ------------------------------------------------------------------------


def chances(bids: Sequence[int], agents: int) -> list[float]:
    """For each bid of the grid how likely it wins, where the `agents - 1` others bid `bids[value]`
    and ties are broken by lot."""
    top = len(bids) - 1
    won = []
    for bid in range(top + 1):
        below = sum(other < bid for other in bids) / len(bids)
        same = sum(other == bid for other in bids) / len(bids)
        others = agents - 1
        won.append(
            sum(
                comb(others, ties) * same**ties * below ** (others - ties) / (ties + 1)
                for ties in range(agents)
            )
        )
    return won


@lru_cache(maxsize=64)
def equilibrium(agents: int, top: int) -> tuple[tuple[int, ...], float]:
    """(bid of each value from 0 to `top` in a first-price auction, the most that a bidder gains by
    another bid while all others keep to it).

    The gain is 0 where an equilibrium in pure bids was found; else these are the bids that gain
    least, of those that best answers to best answers lead to.
    """
    least = (tuple(range(top + 1)), float("inf"))
    for start in (
        [0] * (top + 1),
        list(range(top + 1)),
        [value * (agents - 1) // agents for value in range(top + 1)],
    ):
        bids = tuple(start)
        seen: set[tuple[int, ...]] = set()
        while bids not in seen and len(seen) < SEARCHED:
            seen.add(bids)
            won = chances(bids, agents)
            answer = []
            gain = 0.0
            for value in range(top + 1):
                paid = [(value - bid) * won[bid] for bid in range(top + 1)]
                most = max(paid)
                gain = max(gain, most - paid[bids[value]])
                answer.append(max(bid for bid in range(top + 1) if paid[bid] > most - EXACT))
            if gain < least[1]:
                least = (bids, gain if gain > EXACT else 0.0)
            bids = tuple(answer)
    return least


def revenue(bids: Sequence[int], agents: int, paid: int = 1) -> float:
    """What the seller gets in the mean, exactly, where all bid `bids[value]` and the winner pays
    the `paid`-th highest bid, 1 or 2."""
    total = 0.0
    # the mean of a whole number is the sum of the chances that it is at least 1, 2, ...
    for price in range(1, max(bids) + 1):
        reach = sum(bid >= price for bid in bids) / len(bids)
        fewer = sum(
            comb(agents, count) * reach**count * (1 - reach) ** (agents - count)
            for count in range(paid)
        )
        total += 1 - fewer
    return total
