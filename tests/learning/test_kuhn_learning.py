"""Self-play on Kuhn poker: the averaged policy approaches an equilibrium, the last iterate need
not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.runs.store import RunFolder, read_metrics
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning
CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("seed", range(5))
def test_the_averaged_table_is_near_an_equilibrium_of_kuhn_poker(seed):
    begun = time.process_time()
    summary = run_training(config.load(CONFIGS / "kuhn_table.yaml", [f"run.seed={seed}"]).config)
    last, averaged = summary["after"]["nash_conv"], summary["after"]["nash_conv_averaged"]
    seconds = time.process_time() - begun
    print(
        f"kuhn_table seed {seed}: NashConv averaged {averaged:.4f}, last iterate {last:.4f} chips,"
        f" {seconds:.1f} CPU s"
    )
    assert summary["before"]["nash_conv"] == pytest.approx(0.916667, abs=1e-5)
    assert averaged <= 0.06


@pytest.mark.parametrize("seed", range(5))
def test_a_league_is_near_an_equilibrium_too_and_rings_no_alarm(seed, tmp_path):
    """No better than self-play alone here: a pool of old selves is no cure for cycling by
    itself."""
    loaded = config.load(CONFIGS / "kuhn_league.yaml", [f"run.seed={seed}"])
    with RunFolder.open(tmp_path / "run", config_text="", resolved=loaded.resolved()) as folder:
        summary = run_training(loaded.config, folder)
    last, averaged = summary["after"]["nash_conv"], summary["after"]["nash_conv_averaged"]
    print(
        f"kuhn_league seed {seed}: NashConv averaged {averaged:.4f}, last iterate {last:.4f} chips,"
        f" ratings {summary['league']['ratings']}"
    )
    assert averaged <= 0.1
    assert [
        line["text"] for line in read_metrics(tmp_path / "run") if line["kind"] == "alarm"
    ] == []


@pytest.mark.parametrize("seed", range(5))
def test_the_averaged_tiny_language_model_is_less_exploitable_than_its_clone(seed, tmp_path):
    """From players who look at their card; `run.seed` draws another model each time. The last
    iterate is printed and promises nothing."""
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    make_model(tmp_path / "model", "kuhn_poker")
    model = f"policies.main.model=transformers/{tmp_path / 'model'}"
    summary = run_training(
        config.load(CONFIGS / "kuhn_tiny.yaml", [f"run.seed={seed}", model]).config
    )
    start, last = (1000 * summary[when]["exploitability"] for when in ("before", "after"))
    averaged = 1000 * summary["after"]["exploitability_averaged"]
    print(
        f"kuhn_tiny seed {seed}: exploitability in milli-chips: start {start:.0f}, averaged"
        f" {averaged:.0f}, last iterate {last:.0f}"
    )
    assert summary["before"]["private_effect main"] > 0.1  # it looks at its card
    assert averaged <= 100 and averaged < start
