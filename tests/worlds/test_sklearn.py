"""The digits of scikit-learn (`make test-worlds`)."""

from __future__ import annotations

import pytest

from gem_ma import make
from gem_ma.testing import check_scenario
from tests.worlds.playing import installed

pytestmark = [
    pytest.mark.worlds,
    pytest.mark.skipif(not installed("sklearn"), reason="the environment of another library"),
]


def test_digits_are_played_and_forked():
    scenario = make("sklearn:digits")
    assert (len(scenario.tasks("train")), len(scenario.tasks("test"))) == (1437, 360)
    assert scenario.baselines["always the commonest (success)"] < 0.15
    assert 9 in check_scenario("sklearn:digits", seeds=range(2)).passed
