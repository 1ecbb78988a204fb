"""Self-play on Kuhn poker: the averaged policy approaches an equilibrium, the last iterate need not."""

from __future__ import annotations

import pytest

from gem_ma import config
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning


@pytest.mark.parametrize("seed", range(5))
def test_the_averaged_table_is_near_an_equilibrium_of_kuhn_poker(seed):
    summary = run_training(config.load("kuhn_table", [f"run.seed={seed}"]).config)
    last, averaged = summary["after"]["nash_conv"], summary["after"]["nash_conv_averaged"]
    print(f"kuhn_table seed {seed}: NashConv averaged {averaged:.4f}, last iterate {last:.4f} chips")
    assert summary["before"]["nash_conv"] == pytest.approx(0.916667, abs=1e-5)
    assert averaged <= 0.08
