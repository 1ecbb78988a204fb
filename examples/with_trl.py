"""TRL's GRPOTrainer learns from plays of this library, with an advantage for each turn.

    make test-trl                       # builds .venv-trl
    .venv-trl/bin/python examples/with_trl.py

A tiny model that chooses at random learns to walk on: each step costs .05, and only the last of
three brings 1. Prints what it earned at each of twelve steps; about a minute of one core.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from trl import GRPOConfig

from gem_ma.trainers.trl import Rollouts, TurnTrainer
from gem_ma.training.learner.positions import make_warm_model

CONFIG = """
scenario: {id: stop_or_go, steps: 3, pay: -0.05, prize: 1}
agents:
  walker: {policy: walker}
policies:
  # TRL knows no legal strings, so nothing may be constrained to them
  walker: {model: transformers/MODEL, constrain: null, max_tokens: 4}
train:
  policies: [walker]
  credit: {gamma: 1.0}
  estimator: {name: turn_grpo}          # any of this library, without a critic
"""


def learn(folder: Path, steps: int = 12) -> list[float]:
    """What the walker earned at each step, on average."""
    model, config = folder / "model", folder / "walk.yaml"
    make_warm_model(model, "stop_or_go", {"walker": "random_legal"}, steps=120, episodes=256)
    config.write_text(CONFIG.replace("MODEL", str(model)), encoding="utf-8")
    rollouts = Rollouts(config)
    trainer = TurnTrainer(
        model=str(model),
        rollout_func=rollouts,
        reward_funcs=rollouts.total,
        train_dataset=rollouts.dataset(64),
        args=GRPOConfig(
            output_dir=str(folder / "out"),
            max_steps=steps,
            per_device_train_batch_size=64,
            num_generations=32,
            max_completion_length=64,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            loss_type="dr_grpo",
            bf16=False,  # TRL's default rounds the log-probabilities of so small a model by .01
            use_cpu=True,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    trainer.save_model(str(folder / "learned"))
    return [row["reward"] for row in trainer.state.log_history if "reward" in row]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(*(f"{earned:.2f}" for earned in learn(Path(folder))))
