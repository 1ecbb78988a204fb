"""Learners and wrappers of other libraries on our environments: MaskablePPO of sb3-contrib reaches
the level of our table on tic-tac-toe; SuperSuit and PettingZoo wrap what they can wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gem_ma

pytestmark = pytest.mark.sb3
contrib = pytest.importorskip("sb3_contrib", reason="make test-sb3 has it")

EXAM = 512
STEPS = 65_536  # MaskablePPO is within the table's interval from half of them on


def table_level() -> tuple[float, float]:
    """Return of x against random after training on a softmax table, with its standard error."""
    config = {
        "scenario": {"id": "tic_tac_toe"},
        "agents": {
            "x": {"behaviour": "tic_tac_toe_by_board", "policy": "main"},
            "o": {"behaviour": "random_legal"},
        },
        "policies": {"main": {"model": "table/softmax", "optimizer": "adam"}},
        "train": {
            "policies": ["main"],
            "steps": 75,
            "episodes": 128,
            "lr": 0.4,
            "lr_final": 0.3,
            "estimator": {"name": "rebn", "key": ["agent", "k"]},
            "loss": {"minibatches": 1, "entropy": 0.01},
        },
        "evaluate": {"episodes": EXAM},
    }
    from gem_ma.config.settings import Config

    trained = gem_ma.train(Config.model_validate(config))
    mean = float(trained["after"]["greedy"]["return"]["x"])
    return mean, float(np.sqrt((1 - mean**2) / EXAM))


def env() -> Any:
    return gem_ma.discrete("tic_tac_toe", agent="x", others={"o": "random_legal"}, window=16)


def examined(model: Any) -> tuple[float, float]:
    game, paid = env(), []
    for seed in range(EXAM):
        vector, info = game.reset(seed=2_000_000 + seed)
        ended, total = False, 0.0
        while not ended:
            mask = info["action_mask"].astype(bool)
            action, _ = model.predict(vector, action_masks=mask, deterministic=True)
            vector, reward, terminated, truncated, info = game.step(int(action))
            total, ended = total + reward, terminated or truncated
        paid.append(total)
    return float(np.mean(paid)), float(np.std(paid) / np.sqrt(EXAM))


def test_maskable_ppo_reaches_the_level_of_the_table(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    model = contrib.MaskablePPO(
        "MlpPolicy",
        DummyVecEnv([env] * 8),
        seed=0,
        n_steps=128,
        batch_size=256,
        n_epochs=6,
        learning_rate=1e-3,
        gamma=1.0,
        ent_coef=0.005,
        policy_kwargs={"net_arch": [128, 128]},
    )
    before = examined(model)[0]
    model.learn(STEPS)
    (after, error), (table, table_error) = examined(model), table_level()
    print(
        f"before {before:.3f}, MaskablePPO {after:.3f} +- {error:.3f}, table {table:.3f} +- {table_error:.3f}"
    )
    assert after > before + 0.2
    # two intervals of 95 % that touch
    assert after + 1.96 * error >= table - 1.96 * table_error


def test_ppo_and_dqn_of_stable_baselines_take_the_arrays() -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env

    game = gem_ma.discrete("kuhn_poker", agent="player_1")
    check_env(game)
    PPO("MlpPolicy", game, n_steps=32, batch_size=32, n_epochs=1, seed=0).learn(64)


def test_supersuit_and_pettingzoo_wrap_our_environments() -> None:
    supersuit = pytest.importorskip("supersuit")
    from pettingzoo.test import api_test, parallel_api_test
    from pettingzoo.utils import wrappers
    from pettingzoo.utils.conversions import parallel_to_aec

    api_test(wrappers.OrderEnforcingWrapper(gem_ma.aec_env("kuhn_poker")), 10)
    api_test(parallel_to_aec(gem_ma.parallel_env("dilemma")), 10)
    halved = supersuit.reward_lambda_v0(gem_ma.parallel_env("dilemma"), lambda paid: paid / 2)
    parallel_api_test(halved, 20)
    both = supersuit.pettingzoo_env_to_vec_env_v1(gem_ma.parallel_env("dilemma"))
    assert len(both.reset(seed=1)[1]) == both.num_envs == 2
    # what wants arrays says so, and takes no memory
    with pytest.raises(AssertionError, match="Box"):
        supersuit.black_death_v3(gem_ma.parallel_env("dilemma")).reset(seed=1)
