"""What estimators are worth where they are put to the test: an agent that ends its own plays, a
constant paid on top, a discount."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gem_ma import Game, config, make
from gem_ma.credit import turns
from gem_ma.credit.estimators import estimate
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.types import Reply
from gem_ma.training.train import run_training

CONFIGS = Path(__file__).parents[2] / "configs"


def learned(name: str, *overrides: str) -> dict:
    return run_training(config.load(CONFIGS / f"{name}.yaml", overrides).config)


@pytest.mark.longest
def test_what_the_gradients_say_is_what_is_learned():
    for name, mean in (("turn_grpo", 0.8), ("rebn", 0.8), ("at_grpo", 0.0)):
        after = learned(
            "stop_or_go",
            f"train.estimator.name={name}",
            "train.steps=30",
            "train.episodes=64",
            "train.group_size=64",
        )["after"]["sampled"]
        assert after["return"]["walker"] == pytest.approx(mean, abs=0.03)


# -- a constant paid on top ----------------------------------------------------------------------


@pytest.mark.longest
def test_a_constant_paid_on_top_changes_nothing_that_is_centred_per_agent():
    short = ("train.steps=8", "train.episodes=64", "evaluate.episodes=8")
    exact = {}
    for key in ("[policy, scenario, agent]", "global"):
        for offset in (0, -5):
            exact[key, offset] = learned(
                "kuhn_offset", f"scenario.offset={offset}", f"train.estimator.key={key}", *short
            )["after"]["nash_conv"]
    per_agent = [exact["[policy, scenario, agent]", offset] for offset in (0, -5)]
    pooled = [exact["global", offset] for offset in (0, -5)]
    assert per_agent == pytest.approx([per_agent[0]] * 2, abs=1e-9)
    assert abs(pooled[0] - pooled[1]) > 0.01


@pytest.mark.parametrize("name", ["rebn", "agent_norm"])
def test_in_one_table_an_offset_shifts_no_advantage_of_an_agent(name):
    tables = {}
    for offset in (0.0, 2.0):
        plays = []
        for seed in range(32):
            game = Game(make("kuhn_poker", offset=offset), seed=seed)
            while game.pending:
                ((agent, asked),) = game.pending.items()
                game.send(
                    {agent: asked.legal[(seed >> game.step) % 2]}, {agent: (Reply(policy="main"),)}
                )
            cast = {agent: Seat(policy="main") for agent in ("player_0", "player_1")}
            ended = (tuple(game.turns), (), (), {}, tuple(game.ledger), End.TERMINATED)
            plays.append(Episode("kuhn_poker", 1, seed, "train/0", 0, "g", cast, *ended))
        tables[offset] = turns(plays, "main")
    plain, shifted = (estimate(name, tables[offset])[0] for offset in (0.0, 2.0))
    assert shifted == pytest.approx(plain, abs=1e-9) and plain.any()
    pooled = [estimate(name, tables[offset], "global")[0] for offset in (0.0, 2.0)]
    assert np.abs(pooled[0] - pooled[1]).max() > 0.5


# -- a discount ----------------------------------------------------------------------------------


@pytest.mark.learning
def test_a_discount_makes_an_agent_quick():
    needed = {
        gamma: learned(
            "guess_number_discount",
            f"train.credit.gamma={gamma}",
            "train.episodes=64",  # half of the recipe's: 2.05 turns against 3.4
            "evaluate.episodes=256",
        )
        for gamma in ("0.9", "1.0")
    }
    turns_of = {gamma: summary["after"]["sampled"]["turns"] for gamma, summary in needed.items()}
    assert all(summary["after"]["sampled"]["success"] > 0.97 for summary in needed.values())
    assert turns_of["0.9"] <= 2.2 < 2.5 <= turns_of["1.0"]
