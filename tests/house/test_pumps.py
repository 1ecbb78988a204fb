"""The clock of the tests of linear time: what is late is late, whatever swallows the alarm."""

from __future__ import annotations

import gc
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.pumps import Late, cost, deadline

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.fixture
def slow_collector() -> Iterator[None]:
    """A callback in which the alarm comes, as in that of hypothesis."""

    def callback(phase: str, info: Any) -> None:
        burn(0.03 if phase == "start" else 0.0)

    gc.callbacks.append(callback)
    yield
    gc.callbacks.remove(callback)


class Slow:
    def __del__(self) -> None:
        burn(0.03)


def collect() -> None:
    gc.collect(0)


def drop() -> None:
    Slow()


@pytest.mark.parametrize("swallows", [collect, drop])
def test_an_alarm_that_is_swallowed_comes_again(
    slow_collector: None, swallows: Callable[[], None]
) -> None:
    def hangs(_: str) -> None:
        swallows()
        burn(1.0)

    assert cost(hangs, "", limit_s=0.02) == float("inf")
    with pytest.raises(Late), deadline(0.02):  # and a body that ends after it was late all the same
        swallows()


def test_who_is_in_time_goes_on_and_no_alarm_comes_later() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with deadline(0.02):
        pass
    burn(0.05)
    with pytest.raises(Late), deadline(0.01):
        re.fullmatch("(a+)+b", "a" * 40)
    burn(0.05)
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_what_the_body_raises_is_what_is_raised() -> None:
    with pytest.raises(ValueError, match="no"), deadline(5):
        raise ValueError("no")
