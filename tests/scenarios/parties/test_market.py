"""The market: who trades at which price, what part of the possible surplus is reached, and by
whom."""

from __future__ import annotations

import random

import pytest
from gem_ma.agents.parties.market import Patient, Truthful, Zero
from gem_ma.scenarios.parties.market import best

from gem_ma import Game, Plan, Seat, make
from tests.plays import played_all


def game_of(worth, **options):
    scenario = make("market", buyers=2, sellers=2, **options)
    deal = scenario.deal
    scenario.deal = lambda rng, task: (
        deal(rng, task),
        dict(zip(scenario.agents, worth, strict=True)),
    )[1]
    return Game(scenario, None, 1)


def paid(game):
    return {entry.agent: entry.value for entry in game.ledger}


def test_all_who_meet_trade_at_one_price():
    game = game_of((90, 60, 20, 50))
    game.send({"buyer_0": "80", "buyer_1": "60", "seller_0": "30", "seller_1": "70"})
    # the second bid is below the second ask
    assert paid(game) == {"buyer_0": 90 - 55, "seller_0": 55 - 20}
    assert set(game.pending) == {"buyer_1", "seller_1"}
    game.send({"buyer_1": "pass", "seller_1": "what?"})
    game.send({"buyer_1": "70", "seller_1": "40"})
    assert game.over and paid(game)["buyer_1"] == 60 - 55
    both = game_of((90, 60, 20, 50))
    both.send({"buyer_0": "80", "buyer_1": "60", "seller_0": "30", "seller_1": "50"})
    # the price of the last pair is everybody's
    assert paid(both) == {"buyer_0": 35, "buyer_1": 5, "seller_0": 35, "seller_1": 5}


def test_a_quote_that_meets_the_book_trades_at_the_price_of_the_book():
    game = game_of((90, 60, 20, 50), institution="continuous", quotes=60)
    said = []
    while game.pending:
        ((agent, _),) = game.pending.items()
        said.append(game.view(agent)[-1].text)
        # sellers come down to 40, and one buyer takes what is there
        price = {"buyer_0": "90", "buyer_1": "1", "seller_0": "40", "seller_1": "100"}[agent]
        game.send({agent: price})
        if game.ledger:
            break
    assert "best ask -" in said[0]
    assert set(paid(game)) in ({"buyer_0", "seller_0"}, {"buyer_0", "seller_1"})
    price = float(game.ledger[0].why.removeprefix("trade at "))
    assert price in (40, 90, 100) and sum(paid(game).values()) in (70, 40)


def test_the_possible_surplus_and_its_price():
    assert best([90, 60], [20, 50]) == (80, 55.0)
    assert best([90, 30], [20, 50]) == (70, 40.0)  # between who trade and who are left out
    assert best([20], [50]) == (0, None)


def shares(trader, plays, **options):
    """Share of the possible surplus in each play that has any, in the kernel alone."""
    scenario = make("market", **options)
    found = []
    for seed in range(plays):
        worth = scenario.deal(random.Random(seed), None)
        possible, _ = best(
            [worth[agent] for agent in scenario.buyers],
            [worth[agent] for agent in scenario.sellers],
        )
        price = trader("", None, random.Random(f"{seed}/traders")).price
        game = Game(scenario, None, seed)
        while game.pending:
            game.send({a: str(price(a in scenario.buyers, worth[a], 0.0)) for a in game.pending})
        if possible:
            found.append(sum(entry.value for entry in game.ledger) / possible)
    return found


@pytest.mark.longest
@pytest.mark.parametrize(
    "options, plays, expected, within",
    [({}, 10_000, 0.88, 0.02), ({"institution": "continuous"}, 1_000, 0.958, 0.01)],
)
def test_zero_intelligence_reaches_most_of_the_surplus(options, plays, expected, within):
    reached = shares(Zero, plays, **options)
    mean = sum(reached) / len(reached)
    print(options, mean)
    assert abs(mean - expected) < within


def test_who_tells_the_truth_in_a_call_reaches_all_of_it():
    assert {round(share, 9) for share in shares(Truthful, 300)} == {1.0}


def test_measures_and_roles():
    scenario = make("market")
    cast = dict.fromkeys(scenario.agents, Seat("market_truthful"))
    (episode,) = played_all([Plan(scenario, cast, seed=3)])
    measures = scenario.measures(episode)
    assert measures["efficiency"] == pytest.approx(1.0) and measures["trades"] >= 1
    assert measures["price error"] < 0.2
    assert scenario.role(episode, "seller_3") == "seller"
    cast = dict.fromkeys(scenario.agents, Seat("random_legal"))
    values = [
        scenario.measures(episode)["efficiency"]
        for episode in played_all([Plan(scenario, cast, seed=n) for n in range(60)])
    ]
    assert min(value for value in values if value is not None) < 0  # so it is not a rate


def test_patience_ends_at_the_own_value():
    patient = Patient("", None, random.Random(0))
    assert [patient.price(True, 81, done) for done in (0.0, 0.5, 1.0)] == [41, 61, 81]
    assert [patient.price(False, 20, done) for done in (0.0, 1.0)] == [60, 20]
