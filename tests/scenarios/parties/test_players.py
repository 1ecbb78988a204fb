"""Players of negotiation, network and werewolf, ordered by own return against a named background."""

from __future__ import annotations

import asyncio

import pytest

from gem_ma import Plan, Seat, make, play


def own(world, mover, background, plays, **options):
    """Mean return of one seat, which goes round."""
    scenario = make(world, **options)
    paid = 0.0
    for seed in range(plays):
        me = scenario.agents[seed % len(scenario.agents)]
        cast = {agent: Seat(mover if agent == me else background) for agent in scenario.agents}
        paid += asyncio.run(play(Plan(scenario, cast, seed=seed))).returns()[me]
    return paid / plays


def test_who_gives_way_slowly_earns_more_of_who_takes_anything():
    random, simple, strong = (
        own("negotiation", mover, "negotiation_simple", 80)
        for mover in ("random_legal", "negotiation_simple", "negotiation_strong")
    )
    assert random + 0.08 < simple and simple + 0.08 < strong


@pytest.mark.long
@pytest.mark.parametrize("problem", ["consensus", "colouring", "matching", "cover", "sum"])
def test_who_listens_in_every_round_solves_more(problem):
    options = {"problem": problem, "rounds": 8}
    random, simple, strong = (
        own("network", mover, mover, 20, **options)
        for mover in ("random_legal", "network_simple", "network_strong")
    )
    assert random <= simple + 0.2 and max(random, simple) + 0.1 < strong and strong > 0.85


@pytest.mark.parametrize("mover", ["werewolf_simple", "werewolf_strong"])
@pytest.mark.parametrize("talk", ["none", "signals", "free"])
def test_players_of_werewolf_play_each_form_of_talk(mover, talk):
    assert -1 <= own("werewolf", mover, mover, 4, talk=talk, doctor=1) <= 1
