"""Threads of calls: taken again, held up by none that hangs, blank for every call, alive in a fork."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from gem_ma.driver import limits
from gem_ma.driver.limits import CALL_THREAD, IDLE_KEPT, Outside
from gem_ma.kernel.effects import Call, Scenario

NAME: ContextVar[str] = ContextVar("NAME", default="blank")


def begun(function: Any, *args: Any) -> tuple[Outside, threading.Event]:
    came = threading.Event()
    return Outside(Call(function, *args), came.set), came


def result(function: Any, *args: Any) -> Any:
    outside, came = begun(function, *args)
    assert came.wait(10) and outside.outcome is not None
    value, error = outside.outcome
    assert error is None
    return value


def settled() -> None:
    """Waits until no call is under way."""
    while any(thread.name == CALL_THREAD for thread in threading.enumerate()):
        time.sleep(0.001)


def test_a_thread_takes_the_next_call() -> None:
    threads = set()
    for _ in range(20):
        threads.add(result(threading.get_ident))
        settled()
    assert len(threads) == 1


def test_calls_that_wait_for_each_other_run_at_the_same_time() -> None:
    meeting = threading.Barrier(IDLE_KEPT + 8)  # more than are kept
    calls = [begun(meeting.wait, 10) for _ in range(IDLE_KEPT + 8)]
    assert all(came.wait(10) for _, came in calls)
    places = sorted(outside.outcome[0] for outside, _ in calls if outside.outcome)
    assert places == list(range(IDLE_KEPT + 8))
    settled()
    assert len(limits._THREADS.idle) <= IDLE_KEPT


def test_a_result_that_comes_when_the_loop_is_closed_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    raised: list[Any] = []
    hook, threading.excepthook = threading.excepthook, raised.append
    try:
        came = asyncio.Event()
        Outside(Call(int, 3), lambda: limits._wake(loop, came))
        settled()
    finally:
        threading.excepthook = hook
    assert not raised and not came.is_set()


def test_what_a_call_sets_in_its_context_is_not_the_next_ones() -> None:
    result(NAME.set, "mine")
    settled()
    assert result(NAME.get) == "blank"


def test_an_idle_thread_holds_nothing_of_a_play() -> None:
    for _ in range(3):  # a new thread's first call, too
        play = Scenario()
        gone = weakref.ref(play)
        result(lambda held: held.version, play)
        settled()
        del play
        assert gone() is None


def test_an_idle_thread_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_S", 0.01)
    monkeypatch.setattr(limits, "_THREADS", limits._Threads())
    ident = result(threading.get_ident)
    while any(thread.ident == ident for thread in threading.enumerate()):
        time.sleep(0.001)
    assert limits._THREADS.idle == []
    assert result(threading.get_ident) is not None


def test_a_thread_that_is_ended_by_ctrl_c_is_not_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def stop() -> None:
        raise KeyboardInterrupt

    outside, came = begun(stop)
    settled()
    assert outside.outcome is None and not came.is_set()
    assert result(int) == 0


def test_a_forked_process_makes_its_own_calls() -> None:
    result(int)
    settled()
    assert limits._THREADS.idle
    child = os.fork()
    if not child:
        code = 1
        try:
            code = result(int)  # a call that is handed to a thread of the parent never comes back
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_call_that_is_left_comes_to_nobody_and_counts_until_it_ends() -> None:
    gate = threading.Event()
    outside, came = begun(gate.wait, 10)
    for _ in range(2):
        outside.leave()
        assert limits._HUNG.number == 1
    gate.set()
    settled()
    assert limits._HUNG.number == 0 and outside.outcome is None and not came.is_set()
