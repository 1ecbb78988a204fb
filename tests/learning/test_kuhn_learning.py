"""Self-play on Kuhn poker: the averaged policy approaches an equilibrium, the last iterate need not."""

from __future__ import annotations

import pytest

from gem_ma import config
from gem_ma.store import RunFolder, read_metrics
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning


@pytest.mark.parametrize("seed", range(5))
def test_the_averaged_table_is_near_an_equilibrium_of_kuhn_poker(seed):
    summary = run_training(config.load("kuhn_table", [f"run.seed={seed}"]).config)
    last, averaged = summary["after"]["nash_conv"], summary["after"]["nash_conv_averaged"]
    print(f"kuhn_table seed {seed}: NashConv averaged {averaged:.4f}, last iterate {last:.4f} chips")
    assert summary["before"]["nash_conv"] == pytest.approx(0.916667, abs=1e-5)
    assert averaged <= 0.08


@pytest.mark.parametrize("seed", range(5))
def test_a_league_is_near_an_equilibrium_too_and_rings_no_alarm(seed, tmp_path):
    """No better than self-play alone here (averaged .04 to .06): a pool of old selves is no cure for cycling by itself."""
    loaded = config.load("kuhn_league", [f"run.seed={seed}"])
    with RunFolder.open(tmp_path / "run", config_text="", resolved=loaded.resolved()) as folder:
        summary = run_training(loaded.config, folder)
    last, averaged = summary["after"]["nash_conv"], summary["after"]["nash_conv_averaged"]
    print(f"kuhn_league seed {seed}: NashConv averaged {averaged:.4f}, last iterate {last:.4f} chips, ratings {summary['league']['ratings']}")
    assert averaged <= 0.1
    assert [line["text"] for line in read_metrics(tmp_path / "run") if line["kind"] == "alarm"] == []
