"""TextWorld's challenges, made offline and played (`make test-worlds`)."""

from __future__ import annotations

import pytest

from gem_ma import registry
from gem_ma.kernel.scenario import Game
from tests.worlds.playing import WORKS, forks_exactly, installed, keeps_the_rules, played

pytestmark = [
    pytest.mark.worlds,
    pytest.mark.skipif(not installed("textworld"), reason="needs the textworld extra"),
]
CHALLENGES = ("tw-simple", "tw-coin_collector", "tw-treasure_hunter", "tw-cooking")


@pytest.mark.parametrize("name", CHALLENGES)
def test_random_play_forks_exactly(name, capsys):
    scenario = registry.make(f"textworld:{name}", games=2)
    for task in scenario.tasks("train"):
        forks_exactly(played(scenario, longest=30, task=task))
    WORKS.add(scenario.id)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", CHALLENGES)
def test_it_keeps_the_rules_of_the_kit(name):
    keeps_the_rules(f"textworld:{name}", games=1, turns=8)


def test_the_coin_is_won_by_what_the_game_asks_for():
    game = Game(registry.make("textworld:tw-treasure_hunter", games=1), "train:0", 0)
    wanted = game.view("player")[0].text
    while game.pending and game.step < 10:
        commands = game.pending["player"].legal
        taking = [c for c in commands if c.startswith("take ") and c[5:] in wanted]
        game.send({"player": taking[0] if taking else commands[game.step % len(commands)]})
    assert [(entry.value, entry.why) for entry in game.ledger] == [(1.0, "win")]
