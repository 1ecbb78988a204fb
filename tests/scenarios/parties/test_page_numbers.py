"""Exact numbers that pages of docs/parties print are those that the rules give."""

from __future__ import annotations

import random

import pytest
from gem_ma.scenarios.parties.auction import equilibrium, revenue
from gem_ma.scenarios.parties.equilibria import mixed, pure, symmetric
from gem_ma.scenarios.parties.payoffs import CROWDS, PAIRS
from gem_ma.scenarios.parties.werewolf import village_wins

from gem_ma import Plan, Seat, make
from tests.plays import played_all
from tests.scenarios.parties.test_pages import page


def table(world, head):
    """The rows of the table of a page whose first line begins so, as lists of cells."""
    _, found, rest = page(world).partition(f"\n| {head}")
    assert found, head
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def numbers(text):
    return [float(part) for part in text.replace(",", " ").split() if part != "and"]


def returns(world, cast, seed=0, **options):
    scenario = make(world, **options)
    seats = dict(zip(scenario.agents, map(Seat, cast), strict=True))
    (episode,) = played_all([Plan(scenario, seats, seed=seed)])
    return [episode.returns()[agent] for agent in scenario.agents], scenario.measures(episode)


def test_counts_of_acceptable_deals():
    for parties, *cells in table("negotiation", "parties"):
        scenario = make("negotiation", parties=int(parties))
        found = [scenario.counts(scenario.deal(random.Random(seed), None)) for seed in range(6)]
        assert [tuple(map(int, numbers(cell))) for cell in cells] == found and len(cells) == 6


def test_bids_and_revenue_on_the_grid():
    rows = table("auction", "bidders | bids")
    assert [row[0] for row in rows] == list("2345678")
    for bidders, bids, first, second in rows:
        own, gain = equilibrium(int(bidders), 7)
        assert list(map(int, bids.split())) == list(own) and gain == 0
        assert float(first) == round(revenue(own, int(bidders)), 3)
        assert float(second) == round(revenue(range(8), int(bidders), 2), 3)


@pytest.mark.longest
def test_revenue_on_a_fine_grid():
    first, second, limit = table("auction", "bidders | 2 | 3 | 4 | 8")
    for place, bidders in enumerate((2, 3, 4, 8), 1):
        bids, gain = equilibrium(bidders, 100)
        assert float(first[place]) == round(revenue(bids, bidders) / 100, 4) and gain <= 0.3
        assert float(second[place]) == round(revenue(range(101), bidders, 2) / 100, 4)
        assert float(limit[place]) == round((bidders - 1) / (bidders + 1), 4)


def test_what_greedy_fishers_bring_about():
    rows = table("commons", "of five")
    assert len(rows) == 6
    for greedy, (_, fifth, tenth, months, together) in enumerate(rows):
        cast = ["commons_share"] * greedy + ["commons_half"] * (5 - greedy)
        paid, measures = returns("commons", cast, end="known")
        assert not fifth or float(fifth) == paid[0]
        assert not tenth or float(tenth) == paid[-1]
        assert int(months.split(",")[0]) == measures["months"]
        assert float(together) == sum(paid)
        assert (measures["survival"] == 0) == ("gone" in months)


def test_what_a_village_is_worth():
    rows = table("werewolf", "players, wolves")
    for size, first, chance in rows:
        players, wolves = map(int, numbers(size))
        assert round(village_wins(players, wolves, first), 4) == float(chance)
    assert ["7, 2", "night", ".0833"] in rows and ["12, 3", "night", ".1645"] in rows


def test_equilibria_of_matrix_games():
    for name, alone, alike in table("matrix", "preset | in pure"):
        preset, _, sizes = name.partition(" of ")
        preset = preset.strip("`")
        if preset in PAIRS:
            game = PAIRS[preset](2)
            assert bool(pure(game)) == bool(alone)
            drawn = mixed(game)
            first = [next(iter(mixture.values())) for mixture in drawn or []]
            assert sorted(set(first)) == sorted(numbers(alike))
        elif alike:
            agents = list(map(int, numbers(sizes)))
            drawn = [symmetric(CROWDS[preset](count)) for count in agents]
            first = [round(next(iter(mixture.values())), 3) for (mixture,) in drawn]
            assert first == numbers(alike)
    alone = [game.get("wait") for game in (symmetric(CROWDS["volunteer"](n))[0] for n in (2, 8))]
    assert [round(alone[0] ** 2, 3), round(alone[1] ** 8, 3)] == [0.25, 0.453]
    assert "probability .25 for 2 and .453 for 8" in page("matrix")


GIVERS = {
    "nobody gives": ["goods_selfish"] * 4,
    "all give all": ["goods_giver"] * 4,
    "all `goods_conditional`": ["goods_conditional"] * 4,
    "three of them, and one `goods_selfish`": [*["goods_conditional"] * 3, "goods_selfish"],
    "three `goods_punisher`, one `goods_selfish`, fines of 3": [
        *["goods_punisher"] * 3,
        "goods_selfish",
    ],
}


def test_what_four_get_of_public_goods():
    rows = table("public_goods", "ten rounds")
    assert [label for label, _ in rows] == list(GIVERS)
    for label, paid in rows:
        fines = {"fines": 3} if "fines" in label else {}
        found, _ = returns("public_goods", GIVERS[label], **fines)
        assert sorted(set(found), reverse=found[0] > found[-1]) == numbers(paid)


def test_what_two_get_of_a_bargain():
    for label, paid in table("bargain", "one round"):
        if "draw" in label:  # tests/scenarios/parties/test_goods_and_bargain.py
            continue
        first, second = (
            (f"bargain_{part.split('`')[0]}" for part in label.split("`bargain_")[1:])
            if label.count("`bargain_") == 2
            else [label.split("`")[1]] * 2
        )
        game = "trust" if "trusts" in label else "ultimatum"
        assert returns("bargain", [first, second], game=game)[0] == numbers(paid), label
