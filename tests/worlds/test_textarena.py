"""One game of every entry point of TextArena (`make test-worlds`)."""

from __future__ import annotations

import random

import pytest

from gem_ma import registry
from gem_ma.adapters import line
from gem_ma.errors import ConfigError
from gem_ma.scenario import Game
from gem_ma.testing import check_scenario
from tests.worlds.playing import forks_exactly, installed, played

pytestmark = pytest.mark.worlds
WORDS = ("[0]", "[1]", "[2]", "[3]", "[4]", "[A1]", "[Cooperate]", "[pass]", "[fold]", "word", "")
CHECKED = ("TicTacToe-v0", "KuhnPoker-v0", "SimpleNegotiation-v0", "SecretMafia-v0")
SLOW = {"BabyAiText-v0"}  # it wants packages of its own


def games() -> list[str]:
    if not installed("textarena"):
        return []
    from textarena.envs.registration import ENV_REGISTRY

    by_entry: dict[str, list[str]] = {}
    for name, spec in ENV_REGISTRY.items():
        by_entry.setdefault(str(spec.entry_point), []).append(name)
    shortest = (min(names, key=lambda name: (len(name), name)) for names in by_entry.values())
    return sorted(set(shortest) - SLOW)


GAMES = games()
WORKS: list[str] = []


@pytest.mark.parametrize("name", GAMES)
def test_random_play_forks_exactly(name, capsys):
    before = random.getstate()
    try:
        scenario = registry.make(f"textarena:{name}")
    except ConfigError as error:  # data to be fetched, a key, a syntax error on this Python
        assert "\n" not in str(error)
        pytest.skip(str(error)[:200])
    forks_exactly(played(scenario, longest=30, texts=WORDS))
    line.forget()
    WORKS.append(name)
    assert random.getstate() == before and capsys.readouterr().out == ""


@pytest.mark.skipif(not GAMES, reason="needs the textarena extra")
def test_as_many_games_as_before_play():
    assert len(WORKS) >= 65, sorted(WORKS)


@pytest.mark.parametrize("name", CHECKED if GAMES else ())
def test_it_keeps_the_rules_of_the_kit(name):
    check_scenario(registry.make(f"textarena:{name}", turns=12), seeds=range(4))


@pytest.mark.skipif(not GAMES, reason="needs the textarena extra")
def test_a_card_is_shown_to_its_owner_alone():
    game = Game(registry.make("textarena:KuhnPoker-v0"), None, 1)
    first = next(iter(game.pending))
    other = next(agent for agent in game.scenario.agents if agent != first)
    assert "card" in "".join(message.text for message in game.view(first))
    assert not game.view(other)
