"""What estimators are worth where they are put to the test: an agent that ends its own plays, a
constant paid on top, a discount."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gem_ma.scenarios.stop_or_go import GO, STOP, StopOrGo

from gem_ma import Game, config, make
from gem_ma.credit import turns
from gem_ma.credit.estimators import at_grpo, dr_grpo, estimate, groups, reinforce, turn_grpo
from gem_ma.credit.estimators.groups import by_group, centred
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.types import Reply
from gem_ma.training.entry import run_training

CONFIGS = Path(__file__).parents[2] / "configs"


# -- the termination example, by enumeration of every play at p = 1/2 ----------------------------


def every_play(scenario: StopOrGo) -> TurnTable:
    """2^steps plays, each trajectory as often as a player that goes on with 1/2 takes it: means
    over rows are exact expectations."""
    plays: list[Episode] = []
    for steps in range(scenario.steps + 1):
        for _ in range(2 ** (scenario.steps - steps - 1) if steps < scenario.steps else 1):
            game = Game(scenario, seed=0)
            while game.pending:
                game.send(
                    {"walker": GO if game.step < steps else STOP},
                    {"walker": (Reply(policy="main"),)},
                )
            made = (tuple(game.turns), (), (), {}, tuple(game.ledger), End.TERMINATED)
            plays.append(
                Episode(
                    "stop_or_go",
                    1,
                    len(plays),
                    "train/0",
                    0,
                    "g",
                    {"walker": Seat(policy="main")},
                    *made,
                )
            )
    assert len(plays) == 2**scenario.steps
    return turns(plays, "main")


def gradient(table: TurnTable, advantages: np.ndarray) -> float:
    """d log p / d theta is 1 - p for going on, -p for stopping; the mean over plays."""
    pull = np.array([0.5 if turn.action.parsed == GO else -0.5 for turn in table.turns])
    return float(np.sum(pull * advantages)) / 2 ** round(np.log2(len(set(table.episode.tolist()))))


def restored(table: TurnTable, advantages: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Undoes the division by the spread of each turn index, which only scales its part of the
    gradient."""
    spread = by_group(
        values, groups(table, ("agent", "k")), lambda rows: np.full(len(rows), rows.std() + 1e-6)
    )
    return advantages * spread


def to_go(table: TurnTable, values: np.ndarray) -> np.ndarray:
    """Sum of a per-turn value over this and all later turns of the episode."""
    return np.array(
        [
            values[(table.episode == table.episode[n]) & (table.k >= table.k[n])].sum()
            for n in range(len(table))
        ]
    )


TABLE = every_play(StopOrGo(6, 1.0))


def test_centred_returns_give_the_true_gradient_of_the_termination_example():
    assert gradient(TABLE, reinforce(TABLE)) == 15 / 16
    assert gradient(TABLE, TABLE.ret - 3.7) == pytest.approx(15 / 16)
    assert gradient(TABLE, dr_grpo(TABLE)) == pytest.approx(15 / 16)  # R less the mean of R
    assert gradient(
        TABLE, by_group(TABLE.ret, groups(TABLE, ("agent", "k")), centred)
    ) == pytest.approx(15 / 16)
    assert gradient(TABLE, restored(TABLE, turn_grpo(TABLE), TABLE.ret)) == pytest.approx(15 / 16)


def test_centred_immediate_rewards_are_myopic_in_the_termination_example():
    rewards = by_group(TABLE.reward, groups(TABLE, ("agent", "k")), centred)
    assert gradient(TABLE, rewards) == pytest.approx(63 / 128)
    assert gradient(TABLE, restored(TABLE, at_grpo(TABLE), TABLE.reward)) == pytest.approx(
        63 / 128, abs=1e-5
    )


def test_sums_of_centred_rewards_are_blind_in_the_termination_example():
    went = np.array([turn.action.parsed == GO for turn in TABLE.turns])
    # stopping is no turn of its own: only the steps taken have a reward, and it is always the mean
    rewards = np.zeros(len(TABLE))
    rewards[went] = by_group(TABLE.reward[went], groups(TABLE, ("agent", "k"))[went], centred)
    assert gradient(TABLE, to_go(TABLE, rewards)) == 0.0
    counted = by_group(TABLE.reward, groups(TABLE, ("agent", "k")), centred)
    assert gradient(TABLE, to_go(TABLE, counted)) == pytest.approx(63 / 128)


def test_absent_turns_counted_as_zero_restore_the_gradient():
    means = [TABLE.reward[TABLE.k == k].sum() / 64 for k in range(6)]
    advantages = np.array(
        [row_ret - sum(means[int(k) :]) for row_ret, k in zip(TABLE.ret, TABLE.k, strict=True)]
    )
    assert gradient(TABLE, advantages) == pytest.approx(15 / 16)


def learned(name: str, *overrides: str) -> dict:
    return run_training(config.load(CONFIGS / f"{name}.yaml", overrides).config)


@pytest.mark.long
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


@pytest.mark.long
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
