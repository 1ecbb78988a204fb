"""The nine games of pettingzoo.classic (`make test-worlds`)."""

from __future__ import annotations

import pytest

from gem_ma import registry
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from tests.worlds.playing import forfeits, installed, keeps_the_rules, played, plays_and_forks

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
    plays_and_forks(f"pettingzoo:{name}", longest=100, seeds=range(3))


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


@pytest.mark.parametrize("name", HERE)
def test_it_keeps_the_rules_of_the_kit(name):
    keeps_the_rules(f"pettingzoo:{name}")


def test_a_player_is_shown_its_own_card_alone():
    views = set()
    for seed in range(40):
        game = Game(registry.make("pettingzoo:leduc_holdem_v4"), None, seed)
        first = next(iter(game.pending))
        views.add((first, game.view(first)[-1].text.split("In the pot")[0]))
    assert {text for _, text in views} == {
        f"Your card: {card}. Public card: none. " for card in "JQK"
    }


def test_more_actions_than_have_names_are_called_by_their_numbers():
    game = Game(registry.make("pettingzoo:rps_v2", num_actions=7), None, 0)
    names = ("rock", "paper", "scissors", "spock", "lizard", "5", "6")
    first = next(iter(game.pending))
    assert set(game.pending[first].legal) == set(names)
    assert game.view(first)[-1].text == "The other chose: none yet."
    game.send({first: "lizard"})
    game.send({next(iter(game.pending)): "6"})
    assert game.view(first)[-1].text == "The other chose: 6."


def test_what_is_missing_for_a_family_says_what_to_type():
    with pytest.raises(ConfigError, match=r'pymunk.*pip install "pettingzoo\[butterfly\]"'):
        registry.make("pettingzoo:butterfly/pistonball_v6")
    for name in ("classic/chess", "classic/", "os", "../x"):
        with pytest.raises(ConfigError, match="there is no environment"):
            registry.make(f"pettingzoo:{name}")
