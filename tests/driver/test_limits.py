"""What has a limit besides what is said: calls that hang, plays that are long, configs with
thousands of faults."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gem_ma import Ask, Call, Limits, Plan, Scenario, play
from gem_ma.config.loading import load
from gem_ma.driver import limits
from gem_ma.driver.limits import CALL_THREAD, MAX_HUNG
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import CallError, ConfigError
from tests.plays import played_all


class Hangs(Scenario):
    """Calls that come back only when `gate` opens."""

    id, version, agents = "hangs", 1, ("a",)

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate

    def play(self, rng: Any, task: Any) -> Iterator[Any]:
        told = "go"
        for _ in range(10):
            yield Ask({"a": told}, legal=("on",))
            try:
                yield Call(self.gate.wait)
                told = "came back"
            except CallError as error:
                told = str(error)


def hung() -> int:
    return sum(thread.name == CALL_THREAD for thread in threading.enumerate())


def test_calls_that_hang_leave_a_bounded_number_of_threads_and_say_why() -> None:
    gate = threading.Event()
    before = hung()

    plans = [
        Plan(Hangs(gate), {"a": Seat("first_legal")}, seed=seed, call_timeout_s=0.01)
        for seed in range(40)
    ]

    try:
        episodes = played_all(plans, concurrency=8)
        assert hung() - before <= MAX_HUNG + 8
        causes = {str(call.error).split(":")[0] for episode in episodes for call in episode.calls}
        assert causes == {"TimeoutError", "TooManyHungCalls"}
        assert all(episode.error is None for episode in episodes)
    finally:
        gate.set()
    for _ in range(400):
        if not limits._HUNG.number:
            break
        time.sleep(0.01)
    assert limits._HUNG.number == 0  # they came back, so calls are made again
    after = asyncio.run(play(Plan(Hangs(gate), {"a": Seat("first_legal")})))
    assert [call.error for call in after.calls] == [None] * 10


def test_a_play_that_is_cancelled_leaves_its_call_behind_as_a_hung_one() -> None:
    gate = threading.Event()
    plan = Plan(Hangs(gate), {"a": Seat("first_legal")}, limits=Limits(timeout_s=0.05))
    try:
        assert asyncio.run(play(plan)).end.value == "timeout"
        assert limits._HUNG.number == 1
    finally:
        gate.set()


def rounds(number: int, limits: Limits) -> float:
    from gem_ma.registry import make

    scenario = make("dilemma", rounds=number)
    plan = Plan(scenario, {agent: Seat("first_legal") for agent in scenario.agents}, limits=limits)
    start = time.process_time()
    episode = asyncio.run(play(plan))
    assert episode.error is None and len(episode.turns) == 2 * number
    return time.process_time() - start


@pytest.mark.long
@pytest.mark.parametrize("limits", [Limits(), Limits(max_tokens=10**9)], ids=["free", "tokens"])
def test_a_long_play_is_linear_in_its_rounds(limits: Limits) -> None:
    # four times the rounds; once is enough, a busy machine may spoil the others
    assert any(rounds(10_000, limits) <= 8 * rounds(2500, limits) for _ in range(3))


@pytest.mark.long
@pytest.mark.parametrize("broken", ["zz{}: 1", "  x{}: {{zz: 1}}"])
def test_a_config_with_thousands_of_faults_is_refused_in_forty_lines(
    tmp_path: Path, broken: str
) -> None:
    def cost(number: int) -> float:
        path = tmp_path / "many.yaml"
        lines = ["policies:"] * broken.startswith(" ") + [broken.format(at) for at in range(number)]
        path.write_text("\n".join(["scenario: {id: dilemma}", *lines, ""]))
        start = time.process_time()
        with pytest.raises(ConfigError, match=r"more faults$") as caught:
            load(path)
        assert len(str(caught.value).splitlines()) == 41
        return time.process_time() - start

    # three times the faults; a quadratic reader costs nine times as much, at every look
    assert any(cost(4500) <= 6 * cost(1500) for _ in range(4))
