"""Public goods, bargains and the players of repeated games: what is paid, and who earns more
against whom."""

from __future__ import annotations

import asyncio
import random

import pytest

from gem_ma import Game, Plan, Seat, make, play


def returns(name, players, plays=20, **options):
    """Mean return of the first of these players, who takes each seat in turn."""
    scenario = make(name, **options)
    total = 0.0
    for seed in range(plays):
        count = len(players)
        cast = {
            agent: Seat(behaviour=players[(seat - seed) % count])
            for seat, agent in enumerate(scenario.agents)
        }
        episode = asyncio.run(play(Plan(scenario, cast, seed=seed)))
        assert episode.error is None
        total += episode.returns()[scenario.agents[seed % count]]
    return total / plays


@pytest.mark.long
@pytest.mark.parametrize("name", ["dilemma", "matrix"])
def test_players_of_the_dilemma_against_tit_for_tat(name):
    earned = {
        bot: returns(name, [bot, "tit_for_tat"], rounds=20)
        for bot in ("always_defect", "random_legal", "tit_for_tat", "grim", "pavlov", "generous")
    }
    # five points once, then one a round; a random player 2.25 a round
    assert earned["always_defect"] == 24 and 38 < earned["random_legal"] < 54
    assert {earned[bot] for bot in ("tit_for_tat", "grim", "pavlov", "generous")} == {60}
    # there is no order against who never answers
    assert returns(name, ["always_defect", "always_cooperate"], rounds=20) == 100


def test_what_pavlov_and_grim_do_after_a_defection():
    told = [True, False, True, True]
    from gem_ma.agents.parties import repeated

    moves = {}
    for kind in (repeated.TitForTat, repeated.Grim, repeated.Pavlov):
        bot = kind("player_0", None, random.Random(0))
        moves[kind] = [bot.cooperates(told[:count]) for count in range(5)]
    assert moves[repeated.TitForTat] == [True, True, False, True, True]
    assert moves[repeated.Grim] == [True, True, False, False, False]
    # it turns at the defection, and stays where cooperation meets it
    assert moves[repeated.Pavlov] == [True, True, False, False, False]


def test_a_crowd_is_answered_by_its_worst():
    players = ["tit_for_tat", "always_cooperate", "always_defect"]
    # stag in the first round alone: 0, then three hares
    assert returns("matrix", players, plays=1, preset="stag_hunt", agents=3, rounds=4) == 9


def test_payments_of_public_goods_sum_as_they_should():
    for agents, seed in ((2, 1), (4, 2), (9, 3)):
        scenario = make("public_goods", agents=agents, rounds=8, fines=3)
        rng = random.Random(seed)
        game = Game(scenario, seed=seed)
        for _ in range(8):
            before = sum(entry.value for entry in game.ledger)
            given = {agent: rng.choice(asked.legal) for agent, asked in game.pending.items()}
            game.send(given)
            fines = {agent: rng.choice(asked.legal) for agent, asked in game.pending.items()}
            game.send(fines)
            points = 3 * sum(target != "nobody" for target in fines.values())
            expected = 20 * agents + 0.6 * sum(map(int, given.values())) - 4 * points
            assert sum(entry.value for entry in game.ledger) - before == pytest.approx(expected)


def test_players_of_public_goods_have_no_order_but_against_a_background():
    bots = ("goods_giver", "goods_half", "goods_selfish")
    given = [returns("public_goods", [bot, *["goods_giver"] * 3], plays=4) for bot in bots]
    assert given == [320, 380, 440]
    fined = [
        returns("public_goods", [bot, *["goods_punisher"] * 3], plays=4, fines=3) for bot in bots
    ]
    assert fined == [320, 224, 161]


@pytest.mark.parametrize(
    ("game", "selfish", "fair", "shrewd"), [("ultimatum", 5, 10, 11), ("trust", 25, 20, 30)]
)
def test_bargainers_against_a_fair_one(game, selfish, fair, shrewd):
    bots = ("bargain_selfish", "bargain_fair", "bargain_shrewd")
    found = [
        returns("bargain", [bot, "bargain_fair"], plays=2, game=game, rounds=2, swap=True)
        for bot in bots
    ]
    assert found == [selfish, fair, shrewd]


@pytest.mark.long
@pytest.mark.parametrize(
    ("game", "first", "second"), [("ultimatum", 2.5, 2.5), ("trust", 12.5, 7.5)]
)
def test_random_bargains(game, first, second):
    scenario = make("bargain", game=game)
    rng = random.Random(5)
    totals = [0.0, 0.0]
    for seed in range(4000):
        play_ = Game(scenario, seed=seed)
        while play_.pending:
            ((agent, asked),) = play_.pending.items()
            play_.send({agent: rng.choice(asked.legal)})
        for entry in play_.ledger:
            totals[scenario.agents.index(entry.agent)] += entry.value
    # a return spreads by less than 7: .11 of the mean of 4,000
    assert totals[0] / 4000 == pytest.approx(first, abs=0.2)
    assert totals[1] / 4000 == pytest.approx(second, abs=0.2)
