"""The failure that reward does not show: a language model cloned from players who ignore their
card stays card-blind, and is found so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.runs.plans import open_policies, scenario_of
from gem_ma.runs.store import RunFolder, read_metrics
from gem_ma.training.train import train

pytestmark = pytest.mark.learning

CONFIGS = Path(__file__).parents[2] / "configs"
CARD_BLIND = 1000 / 3  # milli-chips: the exploitability of the best play that ignores its card


def self_play(seed: int, path: Path, *overrides: str) -> tuple[dict, list[str], list[str]]:
    """The summary, the signals of the alarms in the record, and what was told to the user (on
    stderr, by the command)."""
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    make_model(path / "model", "kuhn_poker")
    loaded = config.load(
        CONFIGS / "kuhn_deaf.yaml",
        [f"run.seed={seed}", f"policies.main.model=transformers/{path / 'model'}", *overrides],
    )
    notes: list[str] = []
    with RunFolder.open(path / "run", config_text="", resolved=loaded.resolved()) as folder:
        work = train(
            loaded.config,
            scenario_of(loaded.config),
            open_policies(loaded.config),
            folder,
            on_note=notes.append,
        )
        summary = asyncio.run(work)
    return (
        summary,
        [line["signal"] for line in read_metrics(path / "run") if line["kind"] == "alarm"],
        notes,
    )


@pytest.mark.parametrize("seed", range(3))
def test_format_only_demonstrations_stay_at_a_third_of_a_chip_or_worse_and_the_detector_says_why(
    tmp_path, seed
):
    summary, signals, notes = self_play(seed, tmp_path)
    after = summary["after"]
    exact = [1000 * after[name] for name in ("exploitability", "exploitability_averaged")]
    print(
        f"format only, seed {seed}: exploitability {exact[0]:.1f}, averaged {exact[1]:.1f}, private"
        " effect ",
        end="",
    )
    print(f"{after['private_effect main']:.4f}, alarms {signals}")
    # no better; a trace of unreadable answers is played as fold or check
    assert min(exact) >= CARD_BLIND - 10
    assert "deaf" in signals and any(
        "plays without reading what it is shown" in note for note in notes
    )


@pytest.mark.parametrize("seed", range(3))
def test_card_aware_demonstrations_ring_no_alarm(tmp_path, seed):
    who = "{player_0: {behaviour: noisy_kuhn}, player_1: {behaviour: noisy_kuhn}}"
    summary, signals, notes = self_play(
        seed, tmp_path, f"train.warm_start.main.cast={who}", "train.steps=40"
    )
    after = summary["after"]
    print(
        f"card aware, seed {seed}: exploitability {1000 * after['exploitability']:.1f}, private"
        " effect ",
        end="",
    )
    print(f"{after['private_effect main']:.4f}, alarms {signals}")
    assert after["private_effect main"] > 0.3
    assert signals == [] and notes == []
