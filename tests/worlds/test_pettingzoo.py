"""The nine games of pettingzoo.classic (`make test-worlds`)."""

from __future__ import annotations

import random

import pytest

from gem_ma import registry
from gem_ma.scenario import Game
from gem_ma.testing import check_scenario
from tests.worlds.playing import forfeits, forks_exactly, installed, keeps_its_sum, played

pytestmark = pytest.mark.worlds
GAMES = (
    "chess_v6",
    "connect_four_v3",
    "go_v5",
    "hanabi_v5",
    "leduc_holdem_v4",
    "rps_v2",
    "texas_holdem_no_limit_v6",
    "texas_holdem_v4",
    "tictactoe_v3",
)
HERE = GAMES if installed("rlcard") else ()
SHORT = tuple(name for name in HERE if not name.startswith(("chess", "go", "hanabi")))


@pytest.mark.parametrize("name", HERE)
def test_random_legal_play_forks_exactly(name):
    before = random.getstate()
    for seed in range(3):
        game = played(registry.make(f"pettingzoo:{name}"), seed, longest=100)
        forks_exactly(game)
        keeps_its_sum(game)
    assert random.getstate() == before


@pytest.mark.parametrize("name", HERE)
def test_an_unreadable_answer_forfeits(name):
    forfeits(registry.make(f"pettingzoo:{name}"))


@pytest.mark.parametrize("name", SHORT)
def test_nobody_loses_more_than_a_forfeit_pays(name):
    scenario = registry.make(f"pettingzoo:{name}")
    for seed in range(60):
        game = played(scenario, seed)
        for agent in scenario.agents:
            paid = sum(entry.value for entry in game.ledger if entry.agent == agent)
            assert paid >= scenario.worst


@pytest.mark.parametrize("name", SHORT)
def test_it_keeps_the_rules_of_the_kit(name):
    check_scenario(registry.make(f"pettingzoo:{name}"), seeds=range(3))


def test_a_player_is_shown_its_own_card_alone():
    views = set()
    for seed in range(40):
        game = Game(registry.make("pettingzoo:leduc_holdem_v4"), None, seed)
        first = next(iter(game.pending))
        views.add((first, game.view(first)[-1].text.split("In the pot")[0]))
    assert {text for _, text in views} == {
        f"Your card: {card}. Public card: none. " for card in "JQK"
    }
