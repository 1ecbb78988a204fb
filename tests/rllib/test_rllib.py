"""RLlib's PPO on a scenario of this library, through `gem_ma.discrete`: masked actions, no cluster,
a minute on one core."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import gem_ma
from gem_ma.training.processes.ray_workers import LOOPBACK, open_cluster

pytestmark = pytest.mark.rllib
for name, value in LOOPBACK.items():  # Ray reads them when it is imported
    os.environ.setdefault(name, value)
pytest.importorskip("ray.rllib", reason="make test-rllib has it")


class Masked(gymnasium.Wrapper[Any, int, Any, int]):
    """Puts the mask beside the vector, where RLlib's own module for masks looks for it."""

    def __init__(self, config: Any = None) -> None:
        # RLlib makes its environments by a class and its config
        made = gem_ma.discrete("tic_tac_toe", agent="x", others={"o": "random_legal"}, window=16)
        super().__init__(made)
        masks = spaces.Box(0.0, 1.0, (made.action_space.n,), np.float32)
        parts = {"action_mask": masks, "observations": made.observation_space}
        self.observation_space = spaces.Dict(parts)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        vector, info = self.env.reset(seed=seed, options=options)
        return self._seen(vector, info), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        vector, paid, terminated, truncated, info = self.env.step(action)
        return self._seen(vector, info), float(paid), terminated, truncated, {}

    def _seen(self, vector: Any, info: dict[str, Any]) -> dict[str, Any]:
        return {"observations": vector, "action_mask": info["action_mask"].astype(np.float32)}


@pytest.fixture
def ray_of_one() -> Iterator[None]:
    """RLlib starts Ray even for one process, by itself on all interfaces; it ends with the test."""
    before = signal.getsignal(signal.SIGTERM)
    ray = open_cluster("local", 1)
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, before)  # Ray sets another one, and leaves it


@pytest.mark.usefixtures("ray_of_one")
def test_ppo_learns_tic_tac_toe_against_random() -> None:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    config = (
        PPOConfig()
        .environment(env=Masked)
        # in this process: no workers of Ray, which a small game does not need
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .learners(num_learners=0)
        .training(lr=1e-3, gamma=1.0, train_batch_size_per_learner=2048, minibatch_size=256)
        .training(num_epochs=6, entropy_coeff=0.005, kl_coeff=0.0)
        .training(clip_param=0.2, vf_clip_param=100.0)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule))
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    paid = []
    for _ in range(24):
        result = algorithm.train()
        paid.append(float(result["env_runners"]["episode_return_mean"]))
    algorithm.stop()
    print("mean return of x by iteration:", " ".join(f"{mean:.2f}" for mean in paid))
    # a random x has .29
    assert paid[0] < 0.6 and max(paid[-4:]) > 0.75
