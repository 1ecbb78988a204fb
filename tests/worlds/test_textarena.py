"""One game of every entry point of TextArena (`make test-worlds`)."""

from __future__ import annotations

import pytest

from gem_ma import registry
from gem_ma.kernel.scenario import Game
from tests.worlds.playing import WORKS, installed, keeps_the_rules, plays_and_forks

pytestmark = pytest.mark.worlds
WORDS = ("[0]", "[1]", "[2]", "[3]", "[4]", "[A1]", "[Cooperate]", "[pass]", "[fold]", "word", "")
SLOW = {"BabyAiText-v0"}  # it wants packages of its own


def games() -> list[str]:
    if not installed("textarena"):
        return []
    from textarena.envs.registration import ENV_REGISTRY

    by_entry: dict[str, list[str]] = {}
    for name, spec in ENV_REGISTRY.items():
        by_entry.setdefault(str(spec.entry_point), []).append(name)
    shortest = (min(names, key=lambda name: (len(name), name)) for names in by_entry.values())
    return [f"textarena:{name}" for name in sorted(set(shortest) - SLOW)]


GAMES = games()


@pytest.mark.parametrize("name", GAMES)
def test_random_play_forks_exactly(name, capsys):
    plays_and_forks(name, longest=30, texts=WORDS)
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not GAMES, reason="needs the textarena extra")
def test_as_many_games_as_before_play():
    assert len(WORKS) >= 78, sorted(WORKS)


@pytest.mark.parametrize("name", GAMES)
def test_it_keeps_the_rules_of_the_kit(name):
    keeps_the_rules(name, seeds=range(4), turns=12)


@pytest.mark.skipif(not GAMES, reason="needs the textarena extra")
def test_a_card_is_shown_to_its_owner_alone():
    game = Game(registry.make("textarena:KuhnPoker-v0"), None, 1)
    first = next(iter(game.pending))
    other = next(agent for agent in game.scenario.agents if agent != first)
    assert "card" in "".join(message.text for message in game.view(first))
    assert not game.view(other)
