"""Who learns the language: none, one of the two, or both, each seed by itself, sampled on seeds
never trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning
CONFIGS = Path(__file__).parents[2] / "configs"
SUBSETS = ("[]", "[speaker]", "[listener]", "[speaker, listener]")


def scores(name: str, seed: int, *overrides: str) -> dict[str, float]:
    """Sampled success after learning, by who learned, and the bars that hold for every seed."""
    after = {}
    for learned in SUBSETS:
        summary = run_training(
            config.load(
                CONFIGS / f"{name}.yaml",
                [f"run.seed={seed}", f"train.policies={learned}", *overrides],
            ).config
        )
        after[learned] = summary["after"]["sampled"]["success"]
        print(
            f"{name} seed {seed} {learned}: sampled {after[learned]:.3f}, greedy"
            f" {summary['after']['greedy']['success']:.3f}"
        )
        assert summary["changed"] == [
            agent for agent in ("speaker", "listener") if agent in learned
        ]
    return after


def hold(after: dict[str, float]) -> None:
    assert after["[]"] <= 0.30
    for one in ("[speaker]", "[listener]"):
        assert after["[]"] + 0.05 <= after[one] <= 0.50
    assert after["[speaker, listener]"] >= 0.95


@pytest.mark.parametrize("seed", range(5))
def test_tables_learn_the_language_only_together(seed):
    hold(scores("referential_table", seed))


@pytest.mark.parametrize("seed", range(5))
def test_tiny_language_models_learn_the_language_only_together(seed, tmp_path):
    pytest.importorskip("torch")
    from gem_ma.engines.local.tiny import make_model

    make_model(str(tmp_path / "model"), "referential")
    hold(
        scores(
            "referential",
            seed,
            *(
                f"policies.{agent}.model=transformers/{tmp_path / 'model'}"
                for agent in ("speaker", "listener")
            ),
        )
    )
