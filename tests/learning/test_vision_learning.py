"""A tiny vision-language model learns to see, by reinforcement alone from random weights: sampled on
pictures held out, every seed by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.engines.local.tiny import make_model
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning
CONFIG = Path(__file__).parents[2] / "configs" / "shapes.yaml"


def learned(scenario: str, steps: int, folder: Path, seed: int) -> tuple[float, float]:
    """Sampled success on held-out pictures, before and after."""
    make_model(folder / "model", scenario, architecture="qwen2-vl")
    named = [f"scenario={{id: '{scenario}'}}", f"policies.eye.model=vision/{folder / 'model'}"]
    loaded = config.load(CONFIG, [*named, f"run.seed={seed}", f"train.steps={steps}"]).config
    summary = run_training(loaded)
    exams = [summary[when]["sampled"] for when in ("before", "after")]
    assert [exam["failed"] for exam in exams] == [0, 0]  # a share of those that went well is none
    before, after = (exam["success"] for exam in exams)
    print(f"{scenario}, seed {seed}: sampled {before:.3f} -> {after:.3f}")
    return before, after


@pytest.mark.parametrize("seed", range(3))
def test_a_tiny_model_learns_four_questions_about_shapes(seed: int, tmp_path: Path) -> None:
    steps = config.load(CONFIG).config.train.steps  # type: ignore[union-attr]
    before, after = learned("shapes", steps, tmp_path, seed)
    assert before < 0.42 and after >= 0.8  # chance is .3125


@pytest.mark.parametrize("seed", range(3))
def test_a_tiny_model_learns_to_read_digits(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs the sklearn extra")
    before, after = learned("sklearn:digits", 120, tmp_path, seed)
    assert before < 0.2 and after >= 0.8  # chance is .1
