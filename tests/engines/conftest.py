"""What all tests of engines share."""

from __future__ import annotations

import pytest

from gem_ma.engines.endpoint import faults


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries wait hundredths of a second, however often an outage repeats itself."""
    monkeypatch.setattr(faults, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(faults, "LONGEST_WAIT_S", 0.05)
