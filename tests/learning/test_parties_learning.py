"""What many agents learn, beside what they should: alone each for itself, together for all."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gem_ma import config
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning
CONFIGS = Path(__file__).parents[2] / "configs"
SEEDS = range(3000, 3002)


def trained(name: str, seed: int, *overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sampled exams before and after, with the mean return of an agent as `mean`."""
    words = [f"run.seed={seed}", "evaluate.every=null", *overrides]
    summary = run_training(config.load(CONFIGS / f"{name}.yaml", words).config)
    before, after = (
        {**summary[when]["sampled"], "mean": fmean(summary[when]["sampled"]["return"].values())}
        for when in ("before", "after")
    )
    print(f"{name} seed {seed}: mean return {before['mean']:.3f} -> {after['mean']:.3f}")
    return before, after


@pytest.mark.parametrize("seed", SEEDS)
def test_givers_learn_what_they_are_credited_with(seed):
    """Each point costs its owner .6 and brings .15 in the mean, so half of a shared return is too
    little to give for."""
    _, selfish = trained("public_goods_selfish", seed)
    before, shared = trained("public_goods_shared", seed)
    half = "train.credit={rule: team_mix(0.5), gamma: 0}"
    _, mixed = trained("public_goods_shared", seed, half)
    assert 255 < before["mean"] < 265
    assert 200 <= selfish["mean"] < 202 and 200 <= mixed["mean"] < 202
    assert 318 < shared["mean"] <= 320


@pytest.mark.parametrize("seed", SEEDS)
def test_fishers_learn_restraint_where_they_share_and_ruin_where_they_do_not(seed):
    before, selfish = trained("commons_selfish", seed)
    _, shared = trained("commons_shared", seed)
    assert before["mean"] == pytest.approx(6, abs=0.2) and before["success"] < 0.05
    assert selfish["mean"] == pytest.approx(6, abs=0.2) and selfish["success"] == 0
    # half of the stock for as long as these exams last is 31.7
    # in the worst of ten seeds 14.3 and .79
    assert shared["mean"] > 10 and shared["success"] > 0.6


def test_each_of_32_agents_learns_with_a_table_of_its_own(tmp_path):
    before, after = trained("public_goods_each", 3000)
    assert before["mean"] == pytest.approx(52, abs=1)
    # 40 where nobody gives; each of them has learned it, and a stray gift costs its giver .95 of it
    assert all(39.5 < paid < 41 for paid in after["return"].values())


@pytest.mark.parametrize(
    "name, world", [("network_sum", "network"), ("negotiation", "negotiation")]
)
def test_a_tiny_model_learns_with_others(name, world, tmp_path):
    """Above the clone that it starts as, and above chance."""
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    make_model(str(tmp_path / "model"), world)
    before, after = trained(name, 3000, f"policies.main.model=transformers/{tmp_path / 'model'}")
    assert after["success"] > before["success"] + 0.1
    assert after["mean"] > before["mean"] + 0.06
