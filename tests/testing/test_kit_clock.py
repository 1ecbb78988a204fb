"""The kit's limits of time: what computes for too long is found, and so is what waits for nothing;
what waits for a processor is neither."""

from __future__ import annotations

import signal
import time

import pytest

from gem_ma.kernel.effects import Ask, Reward, Scenario
from gem_ma.kernel.errors import ConformanceError
from gem_ma.testing import check_scenario
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


@pytest.mark.long
def test_a_play_that_gets_a_tenth_of_a_processor_is_no_hang() -> None:
    with time_limit(0.4):
        on_a_busy_machine(12)  # three limits long by the wall, a third of one by the processor
    with time_limit(5), time_limit(0.4):  # within another one too
        on_a_busy_machine(8)


@pytest.mark.long
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


@pytest.mark.longest
def test_an_outer_limit_goes_on_and_the_last_one_takes_all_away() -> None:
    kinds = {signal.ITIMER_REAL: signal.SIGALRM, signal.ITIMER_PROF: signal.SIGPROF}
    before = [signal.getsignal(number) for number in kinds.values()]
    with pytest.raises(TooSlow, match="within 0 s"), time_limit(40, computing=0.3):
        for _ in range(50):
            with pytest.raises(KeyError), time_limit(30), time_limit(20):
                computes(0.005)
                raise KeyError
        assert all(0 < signal.getitimer(kind)[0] <= 40 for kind in kinds)
        with pytest.raises(TooSlow), time_limit(0.05):
            time.sleep(9)
        with time_limit(40):  # its own time: that of the outer one stands still
            computes(0.4)
        computes(9)
    assert [signal.getsignal(number) for number in kinds.values()] == before
    assert [signal.getitimer(kind) for kind in kinds] == [(0.0, 0.0)] * 2


def test_computing_has_a_limit_of_its_own() -> None:
    with pytest.raises(TooSlow), time_limit(60, computing=0.1):
        computes(9)


class Dear(Scenario):
    """Each of its plays computes for a while; worlds of other libraries make a level so."""

    agents, chance, ends_within = ("ann",), False, 1
    plays = 0

    def __init__(self, paid: float = 1.0) -> None:
        self.paid = paid

    def play(self, rng, task):
        type(self).plays += 1
        computes(0.004)
        yield Ask({"ann": "?"}, legal=("a", "b"))
        yield Reward({"ann": self.paid})


@pytest.mark.longest
def test_the_kit_ends_when_its_time_is_up_and_says_what_it_did_not_test() -> None:
    report = check_scenario(Dear(), seeds=range(3), cpu_s=0.05)
    begun = Dear.plays
    assert set(report.passed).isdisjoint({8, 9, 12})
    assert "CPU seconds of the kit were spent" in str(report)
    check_scenario(Dear(), seeds=range(3), skip=(9, 12, 13))
    assert Dear.plays - begun > 4 * begun


@pytest.mark.longest
def test_what_was_found_before_is_told() -> None:
    with pytest.raises(ConformanceError, match="finite"):
        check_scenario(Dear(float("nan")), seeds=range(3), cpu_s=0.05)
