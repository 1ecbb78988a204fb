"""Gymnasium's toy_text and classic control, MiniGrid and BabyAI (`make test-worlds`)."""

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
TOY_TEXT = (
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v4",
    "Blackjack-v1",
)
CONTROL = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1")
NUMBERS = ("0.5", "I push -1", "nothing")  # for actions that are numbers


def grids() -> list[str]:
    if not installed("minigrid"):
        return []
    import gymnasium
    import minigrid

    assert minigrid
    return [name for name in gymnasium.registry if name.startswith(("MiniGrid-", "BabyAI-"))]


GRIDS = grids()


@pytest.mark.parametrize("name", TOY_TEXT + CONTROL if GRIDS else ())
def test_random_play_forks_exactly(name):
    before = random.getstate()
    forks_exactly(played(registry.make(f"gymnasium:{name}"), longest=60, texts=NUMBERS))
    assert random.getstate() == before


def test_minigrid_and_babyai_play_and_fork():
    works, refused = 0, []
    for name in GRIDS:
        try:
            forks_exactly(played(registry.make(f"gymnasium:{name}"), longest=15))
            works += 1
        except ConfigError as error:  # WFC wants a package that minigrid does not bring
            refused.append(f"{name}: {error}")
            assert "\n" not in str(error)
        line.forget()
    assert works >= 172, refused


@pytest.mark.parametrize(
    "name", (*TOY_TEXT, "MiniGrid-Empty-5x5-v0", "BabyAI-GoToRedBall-v0") if GRIDS else ()
)
def test_it_keeps_the_rules_of_the_kit(name):
    check_scenario(registry.make(f"gymnasium:{name}", turns=15), seeds=range(8))


def test_minigrid_is_won_by_what_is_said_of_it():
    game = Game(registry.make("gymnasium:MiniGrid-Empty-5x5-v0"), None, 0)
    assert "green goal 2 ahead and 2 right" in game.view("player")[-1].text
    for move in ("forward", "forward", "right", "forward", "forward"):
        game.send({"player": move})
    assert game.over and game.ledger[-1].value > 0.9
