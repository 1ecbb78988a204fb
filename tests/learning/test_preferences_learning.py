"""Two language models learn from preferences alone: of the plays of one start, those that paid more
are to become likelier (DPO), on seeds never trained on."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gem_ma import config
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning
PAIRS = (
    "train.estimator={name: dr_grpo}",
    "train.group_size=8",
    "train.loss={surrogate: dpo}",
    "train.steps=30",
    "evaluate.episodes=256",
)


@pytest.mark.parametrize("seed", range(3))
def test_two_models_learn_a_language_from_pairs_of_plays(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from gem_ma.engines.local.tiny import make_model

    make_model(str(tmp_path), "referential")
    models = [
        f"policies.{agent}.model=transformers/{tmp_path}" for agent in ("speaker", "listener")
    ]
    source = Path(__file__).parents[2] / "configs" / "referential.yaml"
    right: list[float] = []

    def watch(step: int, metrics: dict[str, Any]) -> None:
        told = metrics["policies"].values()
        right.extend(one["pairs_right"] for one in told if one["pairs"] > 0)

    settings = config.load(source, [*models, *PAIRS, f"run.seed={seed}"]).config
    summary = run_training(settings, on_step=watch)
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    print(f"seed {seed}: sampled {before:.3f} -> {after:.3f}; pairs right {fmean(right):.3f}")
    assert before <= 0.3 and after >= 0.7
    # before an update a play that pays more is likelier already: what earlier pairs taught
    assert fmean(right) >= 0.55
