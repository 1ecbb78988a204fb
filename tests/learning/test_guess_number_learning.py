"""A tiny language model, cloned from blind guesses, learns to use the hints: sampled on seeds
never trained on, every seed by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gem_ma import config, make
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning
CONFIG = Path(__file__).parents[2] / "configs" / "guess_number.yaml"


@pytest.mark.parametrize("seed", range(5))
def test_a_tiny_model_learns_to_use_the_hints(seed, tmp_path):
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    make_model(str(tmp_path / "model"), "guess_number")
    given = config.load(
        CONFIG, [f"run.seed={seed}", f"policies.player.model=transformers/{tmp_path / 'model'}"]
    ).config
    assert given.train.steps == 110
    curve = {}
    summary = run_training(
        given, on_step=lambda step, metrics: curve.update({step: metrics["success"]})
    )
    before, after = (summary[when] for when in ("before", "after"))
    print(
        f"seed {seed}: "
        + ", ".join(f"{name} {score:.3f}" for name, score in make("guess_number").baselines.items())
    )
    print(
        f"seed {seed}: sampled {before['sampled']['success']:.3f} ->"
        f" {after['sampled']['success']:.3f}, ",
        end="",
    )
    print(f"greedy {before['greedy']['success']:.3f} -> {after['greedy']['success']:.3f}")
    print(
        f"seed {seed}: "
        + " ".join(
            f"{step}:{success:.2f}"
            for step, success in curve.items()
            if step == 1 or step % 10 == 0
        )
    )
    assert before["sampled"]["success"] <= 0.30 and after["sampled"]["success"] >= 0.70
    assert after["sampled"]["failed"] == 0
