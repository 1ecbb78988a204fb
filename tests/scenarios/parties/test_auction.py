"""The auction: who wins and pays what, and what theory says on this very grid."""

from __future__ import annotations

import itertools
import random

import pytest
from gem_ma.scenarios.parties.auction import Auction, equilibrium, revenue

from gem_ma import Game, Plan, Seat, Tell, check_scenario, make
from gem_ma.kernel.errors import ConformanceError
from tests.plays import played_all

FORMS = ("first price", "second price", "ascending")


def sold(values, bids, form, seed=0):
    """(who gets it, what is paid) with these values and bids; clocks are answered by the bids."""
    scenario = make("auction", agents=len(values), form=form, top=9)
    dealt = {agent: (value,) for agent, value in zip(scenario.agents, values, strict=True)}
    deal = scenario.deal
    scenario.deal = lambda rng, task: (deal(rng, task), dealt)[1]
    game = Game(scenario, None, seed)
    most = dict(zip(scenario.agents, bids, strict=True))
    while game.pending:
        if form == "ascending":
            price = int(game.view(next(iter(game.pending)))[-1].text.split()[-1].rstrip("?"))
            game.send({a: "stay" if price <= most[a] else "leave" for a in game.pending})
        else:
            game.send({agent: str(most[agent]) for agent in game.pending})
    (entry,) = game.ledger
    price = int(entry.why.removeprefix("sold at "))
    assert entry.value == dealt[entry.agent][0] - price
    return entry.agent, price


@pytest.mark.parametrize("form, price", [("first price", 7), ("second price", 5), ("ascending", 5)])
def test_the_highest_bid_wins(form, price):
    assert sold((8, 9, 3), (5, 7, 3), form) == ("player_1", price)


@pytest.mark.parametrize("form", FORMS)
def test_ties_are_broken_by_lot(form):
    outcomes = {sold((8, 9, 9), (4, 4, 2), form, seed) for seed in range(20)}
    assert outcomes == {("player_0", 4), ("player_1", 4)}
    # all at the top of the clock
    assert {price for _, price in (sold((9, 9), (9, 9), form, seed) for seed in range(5))} == {9}


def by_hand(bids, agents, paid):
    """The mean revenue over all equally likely values, one by one."""
    hands = [
        sorted(hand, reverse=True)[paid - 1] for hand in itertools.product(bids, repeat=agents)
    ]
    return sum(hands) / len(hands)


@pytest.mark.parametrize("agents", [2, 3, 4])
def test_revenue_is_what_enumeration_gives(agents):
    bids = equilibrium(agents, 7)[0]
    assert revenue(bids, agents) == pytest.approx(by_hand(bids, agents, 1), abs=1e-12)
    assert revenue(range(8), agents, 2) == pytest.approx(by_hand(range(8), agents, 2), abs=1e-12)


@pytest.mark.parametrize("agents", range(2, 9))
def test_nobody_gains_by_another_bid(agents):
    """By hand on the grid of 0 to 7: no value gains by any bid, against all bids of the others."""
    bids, gain = equilibrium(agents, 7)
    assert gain == 0.0
    if agents > 4:
        return
    for value in range(8):
        gains = []
        for bid in range(8):
            total = 0.0
            for others in itertools.product(bids, repeat=agents - 1):
                ties = others.count(bid)
                total += (value - bid) / (ties + 1) if max(others) <= bid else 0.0
            gains.append(total)
        assert gains[bids[value]] == pytest.approx(max(gains), abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("agents, limit", [(2, 1 / 3), (8, 7 / 9)])
def test_in_the_limit_revenue_is_what_theory_says(agents, limit):
    """(n - 1) / (n + 1) in both forms, of values from 0 to 1."""
    assert revenue(range(201), agents, 2) / 200 == pytest.approx(limit, abs=0.005)
    bids, gain = equilibrium(agents, 60)
    assert revenue(bids, agents) / 60 == pytest.approx(limit, abs=0.02)
    assert gain < 0.5  # of a point, of 60


@pytest.mark.long
@pytest.mark.parametrize("form, paid", [("first price", 1), ("second price", 2), ("ascending", 2)])
def test_ten_thousand_plays_bring_the_exact_revenue(form, paid):
    scenario = make("auction", form=form)
    bids = equilibrium(3, 7)[0] if paid == 1 else range(8)
    expected = revenue(bids, 3, paid)
    prices = []
    for seed in range(10_000):
        values = scenario.deal(random.Random(seed), None)
        game = Game(scenario, None, seed)
        price = 0
        while game.pending:
            price += 1
            game.send(
                {
                    agent: ("stay" if price <= values[agent][0] else "leave")
                    if form == "ascending"
                    else str(bids[values[agent][0]])
                    for agent in game.pending
                }
            )
        prices.append(int(game.ledger[0].why.removeprefix("sold at ")))
    mean = sum(prices) / len(prices)
    spread = (sum((x - mean) ** 2 for x in prices) / len(prices)) ** 0.5
    assert abs(mean - expected) < 3 * spread / len(prices) ** 0.5


def test_values_are_new_in_each_round_and_measures_read_them():
    scenario = make("auction", rounds=3, form="second price")
    cast = dict.fromkeys(scenario.agents, Seat("auction_truthful"))
    episodes = played_all([Plan(scenario, cast, seed=n) for n in range(20)])
    for episode in episodes:
        measures = scenario.measures(episode)
        assert measures["highest wins"] == 1.0 and measures["bid of value"] == 1.0
        values = scenario.deal(random.Random(episode.seed), None)
        second = [sorted(round_)[-2] for round_ in zip(*values.values(), strict=True)]
        assert measures["revenue"] == pytest.approx(sum(second) / 3)
        assert measures["efficiency"] in (1.0, None)
    cast = dict.fromkeys(scenario.agents, Seat("silent"))
    (silent,) = played_all([Plan(scenario, cast, seed=0)])
    assert scenario.measures(silent)["revenue"] == 0.0


class Open(Auction):
    """Tells everybody what it was worth to the winner."""

    def _sealed(self, rng, worth):
        winner, price = yield from super()._sealed(rng, worth)
        yield Tell(dict.fromkeys(self.agents, f"Worth {worth[winner]}."))
        return winner, price


@pytest.mark.long
def test_a_value_of_the_winner_that_is_told_is_found():
    with pytest.raises(ConformanceError) as caught:
        check_scenario(Open(agents=4, rounds=2), skip=tuple(set(range(1, 14)) - {4}))
    assert any(finding.rule == 4 for finding in caught.value.findings)
