"""A market of one good: buyers with private values and sellers with private costs, one unit each,
as a call market or a continuous double auction.

Type `gem-ma run market 'agents.*=market_zero'`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from gem_ma.scenarios.parties.checked import one_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell, dealt
from gem_ma.kernel.scenario import Play

INSTITUTIONS = ("call", "continuous")
VALUES = (20, 100)
COSTS = (1, 80)
QUOTES = (*map(str, range(1, 101)), "pass")


class Market(Scenario):
    """Buyers and sellers of one unit each quote prices, at once in rounds or one after another in
    a continuous double auction."""

    # below 0 where traders lose, so it is not a rate
    more_is_better = ("efficiency",)
    less_is_better = ("price error",)

    def __init__(
        self,
        buyers: int = 4,
        sellers: int = 4,
        institution: str = "call",
        rounds: int = 10,
        quotes: int = 400,
    ) -> None:
        """`buyers` and `sellers` from 1 to 32 each. `institution`: in a `call` market all quote at
        once in each of `rounds`; in a `continuous` one, one trader after another is drawn for
        `quotes`. Raises ConfigError."""
        self.buyers = tuple(f"buyer_{n}" for n in range(whole("buyers", buyers, 1, 32)))
        self.sellers = tuple(f"seller_{n}" for n in range(whole("sellers", sellers, 1, 32)))
        self.agents = self.buyers + self.sellers
        self.is_call = one_of("institution", institution, INSTITUTIONS) == "call"
        self.rounds = whole("rounds", rounds, 1, 1000)
        self.quotes = whole("quotes", quotes, 1, 10_000)
        self.ends_within = rounds if self.is_call else quotes

    def deal(self, rng: random.Random, task: Any) -> dict[str, int]:
        values = {agent: rng.randint(*VALUES) for agent in self.buyers}
        return values | {agent: rng.randint(*COSTS) for agent in self.sellers}

    def play(self, rng: random.Random, task: Any) -> Play:
        worth = self.deal(rng, task)
        how = (
            f"In each of {self.rounds} rounds all quote at once; bids that are at least as high as"
            " asks trade, all at one price."
            if self.is_call
            else f"{self.quotes} times one trader is drawn and quotes; a quote that meets the best"
            " one of the other side trades at that one's price."
        )
        rules = f"{how} You trade one unit at most."
        bought = {a: f"You buy. A unit is worth {worth[a]} to you. {rules}" for a in self.buyers}
        sold = {a: f"You sell. A unit costs you {worth[a]}. {rules}" for a in self.sellers}
        yield Tell(bought | sold)
        yield from (self._call(rng, worth) if self.is_call else self._continuous(rng, worth))

    def _call(self, rng: random.Random, worth: Mapping[str, int]) -> Play:
        buyers = list(self.buyers)
        sellers = list(self.sellers)
        news = "No trade yet."
        for round_ in range(1, self.rounds + 1):
            active = buyers + sellers
            question = f"Quote {round_} of {self.rounds}. {news} Your price?"
            answers = yield Ask(dict.fromkeys(active, question), legal=QUOTES)
            quotes = {a: int(q) for a in active if (q := answers[a].parsed or "pass") != "pass"}
            # ties by lot
            order = rng.sample(active, len(active))
            bids = sorted(
                (a for a in order if a in quotes and a in buyers), key=lambda a: -quotes[a]
            )
            asks = sorted(
                (a for a in order if a in quotes and a in sellers), key=quotes.__getitem__
            )
            pairs = [
                pair for pair in zip(bids, asks, strict=False) if quotes[pair[0]] >= quotes[pair[1]]
            ]
            news = "No trade."
            if pairs:
                price = (quotes[pairs[-1][0]] + quotes[pairs[-1][1]]) / 2
                yield from self._traded(pairs, price, worth)
                for buyer, seller in pairs:
                    buyers.remove(buyer)
                    sellers.remove(seller)
                news = f"{len(pairs)} traded at {price:g}."
            if not buyers or not sellers:
                return

    def _continuous(self, rng: random.Random, worth: Mapping[str, int]) -> Play:
        buyers = set(self.buyers)
        active = list(self.agents)
        bid: tuple[int, str] | None = None
        ask: tuple[int, str] | None = None
        for turn in range(1, self.quotes + 1):
            agent = rng.choice(active)
            book = f"Best bid {bid[0] if bid else '-'}, best ask {ask[0] if ask else '-'}."
            question = f"Quote {turn} of {self.quotes}. {book} Your price?"
            said = (yield Ask({agent: question}, legal=QUOTES))[agent].parsed
            if said in (None, "pass"):
                continue
            price = int(said)
            pair = None
            if agent in buyers:
                if ask and price >= ask[0]:
                    pair = agent, ask[1]
                    price = ask[0]
                elif bid is None or price > bid[0]:
                    bid = price, agent
            elif bid and price <= bid[0]:
                pair = bid[1], agent
                price = bid[0]
            elif ask is None or price < ask[0]:
                ask = price, agent
            if pair:
                yield from self._traded((pair,), price, worth)
                yield Tell(dict.fromkeys(active, f"A trade at {price}."))
                active = [other for other in active if other not in pair]
                # quotes are for one trade, as in the experiments
                bid = None
                ask = None
                if buyers.isdisjoint(active) or buyers.issuperset(active):
                    return

    def _traded(
        self, pairs: Iterable[tuple[str, str]], price: float, worth: Mapping[str, int]
    ) -> Play:
        gains = {buyer: worth[buyer] - price for buyer, _ in pairs}
        gains |= {seller: price - worth[seller] for _, seller in pairs}
        yield Reward(gains, why=f"trade at {price:g}")
        yield Tell(dict.fromkeys(gains, f"You traded at {price:g}."))

    def role(self, episode: Episode, agent: str) -> str:
        return agent.partition("_")[0]

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        worth = dealt(self, episode)
        possible, fair = best(
            [worth[agent] for agent in self.buyers], [worth[agent] for agent in self.sellers]
        )
        prices = [
            float(entry.why.removeprefix("trade at "))
            for entry in episode.ledger
            if entry.agent in self.buyers and entry.why.startswith("trade at ")
        ]
        error = None
        if prices and fair:
            error = (sum((price - fair) ** 2 for price in prices) / len(prices)) ** 0.5 / fair
        return {
            "efficiency": sum(episode.returns().values()) / possible if possible else None,
            "trades": float(len(prices)),
            "price": sum(prices) / len(prices) if prices else None,
            "price error": error,
        }


def best(values: Iterable[int], costs: Iterable[int]) -> tuple[int, float | None]:
    """(the most that all can gain together, the middle of the prices at which they do); the price
    is None where nobody can gain."""
    high = sorted(values, reverse=True)
    low = sorted(costs)
    gains = [value - cost for value, cost in zip(high, low, strict=False) if value > cost]
    count = len(gains)
    if not count:
        return 0, None
    # no price that a trader who is left out would take
    floor = max(chain(low[count - 1 : count], high[count : count + 1]))
    ceiling = min(chain(high[count - 1 : count], low[count : count + 1]))
    return sum(gains), (floor + ceiling) / 2
