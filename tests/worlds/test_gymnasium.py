"""Gymnasium's toy_text and classic control, MiniGrid and BabyAI (`make test-worlds`)."""

from __future__ import annotations

import pytest

from gem_ma import make_vec, registry
from gem_ma.kernel.scenario import Game
from gem_ma.testing import check_scenario
from tests.worlds.playing import WORKS, installed, keeps_the_rules, plays_and_forks

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


def kinds() -> list[str]:
    """One grid of each entry point; the others differ in their size."""
    import gymnasium

    return list({str(gymnasium.spec(name).entry_point): name for name in reversed(GRIDS)}.values())


GRIDS = grids()


@pytest.mark.parametrize("name", TOY_TEXT + CONTROL if GRIDS else ())
def test_random_play_forks_exactly(name):
    plays_and_forks(f"gymnasium:{name}", longest=60, texts=NUMBERS)


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_plays_and_forks(name):
    plays_and_forks(f"gymnasium:{name}", longest=15)


@pytest.mark.skipif(not GRIDS, reason="needs the gymnasium extra")
def test_as_many_grids_as_before_play():
    # those of WFC want a package that minigrid does not bring
    assert len([name for name in WORKS if "Grid" in name or "BabyAI" in name]) >= 172


@pytest.mark.parametrize("name", (*TOY_TEXT, *CONTROL, *kinds()) if GRIDS else ())
def test_it_keeps_the_rules_of_the_kit(name):
    keeps_the_rules(f"gymnasium:{name}", seeds=range(8), turns=15)


@pytest.mark.skipif(not GRIDS, reason="needs the gymnasium extra")
def test_minigrid_is_won_by_what_is_said_of_it():
    game = Game(registry.make("gymnasium:MiniGrid-Empty-5x5-v0"), None, 0)
    assert "green goal 2 ahead and 2 right" in game.view("player")[-1].text
    for move in ("forward", "forward", "right", "forward", "forward"):
        game.send({"player": move})
    assert game.over and game.ledger[-1].value > 0.9


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CartPole-v1"])
def test_a_wrapped_world_keeps_the_rules_in_fresh_processes_too(name: str) -> None:
    wrappers = [
        {"retry": {"times": 1, "penalty": 0.1}},
        {"reward": {"scale": 2}},
        {"reward": "final"},
        "hide_names",
        {"time_limit": 12},
    ]
    report = check_scenario(registry.make(f"gymnasium:{name}", wrappers=wrappers), seeds=range(3))
    assert set(report.untested) <= {4}


def test_many_worlds_are_stepped_without_a_barrier() -> None:
    vector = make_vec("gymnasium:FrozenLake-v1", 4, autoreset=True)
    vector.reset()
    for number in range(30):
        steps = vector.step(
            {lane: vector.game(lane).pending["player"].legal[number % 4] for lane in vector.asked}
        )
        assert len(steps) == 4 and not any("error" in step.info for step in steps.values())
