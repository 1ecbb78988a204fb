"""The failure that reward does not show: a language model cloned from players who ignore their card stays card-blind, and is found so."""

from __future__ import annotations

import pytest

from gem_ma import config
from gem_ma.store import RunFolder, read_metrics
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning

CARD_BLIND = 2 / 3  # NashConv of the best play that ignores its card: 333.33 milli-chips for each seat


def self_play(model, demonstrator: str, seed: int, path) -> tuple[dict, list[str]]:
    seats = ", ".join(f"player_{n}: {{behaviour: {demonstrator}}}" for n in (0, 1))
    overrides = [
        *(f"policies.main.model=transformers/{model}", "policies.main.max_tokens=4", f"run.seed={seed}"),
        f"train.warm_start={{main: {{cast: {{{seats}}}, episodes: 1024, steps: 220}}}}",
        *("train.steps=30", "train.episodes=128", "train.lr=0.0003", "train.lr_final=1.0"),
        *("train.loss.minibatches=2", "train.loss.entropy=0.1", "evaluate.every=10", "evaluate.episodes=128"),
    ]
    loaded = config.load("kuhn_table", overrides)
    with RunFolder.open(path, config_text="", resolved=loaded.resolved()) as folder:
        summary = run_training(loaded.config, folder)
    return summary, [line["signal"] for line in read_metrics(path) if line["kind"] == "alarm"]


@pytest.mark.parametrize("seed", range(3))
def test_format_only_demonstrations_stay_at_a_third_of_a_chip_or_worse_and_the_detector_says_why(kuhn_model, tmp_path, seed):
    summary, signals = self_play(kuhn_model, "random_legal", seed, tmp_path / "run")
    after = summary["after"]
    print(f"format only, seed {seed}: NashConv {after['nash_conv']:.4f}, private effect {after['private_effect main']:.4f}, alarms {signals}")
    assert after["nash_conv"] >= CARD_BLIND - 0.02  # no better; a trace of unreadable answers is played as fold or check
    assert "deaf" in signals


@pytest.mark.parametrize("seed", range(3))
def test_card_aware_demonstrations_ring_no_alarm(kuhn_model, tmp_path, seed):
    summary, signals = self_play(kuhn_model, "noisy_kuhn", seed, tmp_path / "run")
    after = summary["after"]
    print(f"card aware, seed {seed}: NashConv {after['nash_conv']:.4f}, private effect {after['private_effect main']:.4f}, alarms {signals}")
    assert after["private_effect main"] > 0.3
    assert signals == []
