"""The kit's limits of time: what computes for too long is found, and so is what waits for nothing;
what waits for a processor is neither."""

from __future__ import annotations

import time

import pytest

from gem_ma.testing.clock import TooSlow, time_limit


def computes(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def on_a_busy_machine(rounds: int) -> None:
    """A tenth of a processor, as a play gets it beside many others."""
    for _ in range(rounds):
        computes(0.01)
        time.sleep(0.09)


def test_a_play_that_gets_a_tenth_of_a_processor_is_no_hang() -> None:
    with time_limit(0.4):
        on_a_busy_machine(12)  # three limits long by the wall, a third of one by the processor
    with time_limit(5), time_limit(0.4):  # within another one too
        on_a_busy_machine(8)


@pytest.mark.parametrize("hang", [lambda: time.sleep(9), lambda: computes(9)])
@pytest.mark.parametrize("outer", [None, 60])
def test_a_hang_is_found(hang, outer) -> None:
    began = time.monotonic()
    with pytest.raises(TooSlow):
        if outer is None:
            with time_limit(0.3):
                hang()
        else:
            with time_limit(outer), time_limit(0.3):
                hang()
    assert time.monotonic() - began < 8


def test_computing_has_a_limit_of_its_own() -> None:
    with pytest.raises(TooSlow), time_limit(60, computing=0.1):
        computes(9)
