"""Werewolf: its rules, what chance is worth, and that nobody learns what it is not told."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from fractions import Fraction

import pytest
from gem_ma.scenarios.parties.werewolf import VOTE, village_wins

from gem_ma import Asked, Game, Message, make
from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import load


def played(scenario, seed, chooser=None):
    game = Game(scenario, seed=seed)
    draws = random.Random(f"players/{seed}")
    while game.pending:
        acts = {
            agent: (chooser and chooser(game, agent, asked)) or draws.choice(asked.legal or ("hm",))
            for agent, asked in game.pending.items()
        }
        game.send(acts)
    return game


def by_recursion(village, wolves, is_night):
    """The chance of the village, in exact fractions, with one step for each death."""
    if wolves == 0:
        return Fraction(1)
    if wolves >= village:
        return Fraction(0)
    if is_night:
        return by_recursion(village - 1, wolves, False)
    living = village + wolves
    return Fraction(village, living) * by_recursion(village - 1, wolves, True) + Fraction(
        wolves, living
    ) * by_recursion(village, wolves - 1, True)


TABLE = [(7, 2, "night", 0.0833), (8, 2, "night", 0.2286), (12, 3, "night", 0.1645)]


@pytest.mark.parametrize("players, wolves, first, chance", [*TABLE, (7, 2, "day", 0.2286)])
def test_the_chance_of_the_village_is_exact(players, wolves, first, chance):
    exact = by_recursion(players - wolves, wolves, first == "night")
    assert village_wins(players, wolves, first) == pytest.approx(float(exact), abs=1e-12)
    assert round(float(exact), 4) == chance
    scenario = make("werewolf", players=players, wolves=wolves, seer=0, first=first)
    assert list(scenario.baselines.values()) == [chance]


@pytest.mark.longest
@pytest.mark.parametrize("players, wolves, first, chance", TABLE)
def test_random_plays_come_out_as_computed(players, wolves, first, chance):
    scenario = make("werewolf", players=players, wolves=wolves, seer=0, first=first)
    won = sum(played(scenario, seed).ledger[0].why == "village wins" for seed in range(10_000))
    assert abs(won / 10_000 - chance) < 3 * math.sqrt(chance * (1 - chance) / 10_000)


def test_each_day_exactly_one_goes_and_the_dead_are_paid():
    scenario = make("werewolf", players=9, wolves=2, doctor=1)
    for seed in range(40):
        game = played(scenario, seed)
        texts = [message.text for message in game.view("player_0")]
        votes = sum(text.startswith("Votes: ") for text in texts)
        assert votes == sum("was voted out" in text for text in texts)
        assert {entry.agent for entry in game.ledger} == set(scenario.agents)
        assert {entry.value for entry in game.ledger} == {1.0, -1.0}


def test_silence_has_consequences_and_the_play_ends():
    scenario = make("werewolf", players=6, wolves=1)
    game = played(scenario, 1, lambda *_: "...")
    texts = [message.text for message in game.view("player_0")]
    assert "Nobody died in the night." in texts and "Votes: none." in texts
    assert any("was voted out" in text for text in texts)


def test_the_pack_is_told_and_nobody_else():
    scenario = make("werewolf", players=12, wolves=3)
    role = scenario.deal(random.Random(4), None)
    game = Game(scenario, seed=4)
    for agent in scenario.agents:
        knows = any("The wolves are" in message.text for message in game.view(agent))
        assert knows == (role[agent] == "wolf")


def test_the_doctor_saves_and_the_seer_sees():
    scenario = make("werewolf", players=6, wolves=1, doctor=1)
    role = scenario.deal(random.Random(0), None)
    by = {name: agent for agent, name in role.items()}
    game = Game(scenario, seed=0)
    act = {by["wolf"]: by["seer"], by["doctor"]: by["seer"], by["seer"]: by["wolf"]}
    game.send({agent: act.get(agent, "sleep") for agent in game.pending})
    seen = [message.text for message in game.view(by["seer"])]
    assert f"{by['wolf']} has the role: wolf." in seen and "Nobody died in the night." in seen
    assert all("has the role" not in m.text for m in game.view(by["doctor"]))
    game.send(dict.fromkeys(game.pending, by["wolf"]))
    assert {entry.why for entry in game.ledger} == {"village wins"} and game.over


def test_votes_are_secret_or_open():
    for votes, told in (("secret", "Votes: player_3 6."), ("open", "player_0 for player_3, ")):
        game = Game(make("werewolf", players=6, wolves=1, first="day", votes=votes), seed=2)
        game.send(dict.fromkeys(game.pending, "player_3"))
        assert any(told in message.text for message in game.view("player_1"))


def test_talk_is_closed_or_free_or_by_bids():
    game = Game(make("werewolf", first="day", talk="signals"), seed=1)
    assert "player_3 is a wolf" in next(iter(game.pending.values())).legal
    game.send(dict.fromkeys(game.pending, "player_3 is a wolf"))
    heard = [message for message in game.view("player_0") if message.sender == "player_5"]
    assert [message.text for message in heard] == ["player_3 is a wolf"]
    game = Game(make("werewolf", first="day", talk="free", order="bids"), seed=1)
    game.send({agent: "4" if agent == "player_6" else "1" for agent in game.pending})
    assert list(game.pending) == ["player_6"]
    game.send({"player_6": "Trust me."})
    assert len(game.pending) == 8
    assert next(reversed(game.view("player_0"))).text == VOTE


@pytest.mark.long
def test_a_share_of_the_strongest_players_acts_is_at_random():
    factory = load("agents", "werewolf_strong")
    new = (Message("You are player_1, role: villager. There are 8 players."), Message(VOTE))
    claim = Message("player_3 is a wolf", "player_2")
    legal = tuple(f"player_{n}" for n in range(8))

    def named(share):
        votes = Counter()
        for seed in range(400):
            player = factory("player_1", None, random.Random(seed), at_random=share)
            asked = Asked((new[0], claim, new[1]), (), legal, (), 3)
            votes[asyncio.run(player.act(asked)).parsed] += 1
        return votes["player_3"]

    assert named(0.0) == 400
    # 1/8 of those at random are it, too: 400 (1 - .5 * 7/8) = 225, sd 9.9; 50, sd 6.6
    assert 180 < named(0.5) < 270 and 20 < named(1.0) < 80
    with pytest.raises(ConfigError, match="between 0 and 1"):
        factory("player_1", None, random.Random(0), at_random=1.5)
