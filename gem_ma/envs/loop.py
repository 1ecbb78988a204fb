"""Asking behaviours from sync code. One private event loop in one daemon thread serves the
process; who never waits never meets it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dis
import inspect
import os
import threading
from collections.abc import Awaitable, Mapping
from functools import cache
from types import CodeType
from typing import Any

from gem_ma.behaviour import Behaviour
from gem_ma.errors import ActionError
from gem_ma.types import Action, Asked

_WAITS = {"GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH"}


def act_together(
    players: Mapping[str, Behaviour], asked: Mapping[str, Asked]
) -> dict[str, Action | str]:
    """What each asked agent's behaviour does; those that wait for something wait at the same
    time."""
    said: dict[str, Action | str] = {}
    waiting: dict[str, concurrent.futures.Future[Any]] = {}
    for agent, one in asked.items():
        answer: Any = players[agent].act(one)
        if inspect.iscoroutine(answer) and _never_waits(answer.cr_code):
            answer = _finish(answer)
        if inspect.isawaitable(answer):
            waiting[agent] = asyncio.run_coroutine_threadsafe(_await(answer), _loop())
        else:
            said[agent] = answer
    try:
        for agent, future in waiting.items():
            said[agent] = future.result()
    finally:
        for future in waiting.values():
            future.cancel()
    for agent, answer in said.items():
        if not isinstance(answer, (str, Action)):
            raise ActionError(
                f"agent {agent!r}: its behaviour gives a str or an Action; got"
                f" {type(answer).__name__}"
            )
    return said


@cache
def _never_waits(code: CodeType) -> bool:
    """True for a coroutine without any await: it ends at its first step, so it needs no loop."""
    return not any(instruction.opname in _WAITS for instruction in dis.get_instructions(code))


def _finish(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a coroutine without await has waited")


async def _await(answer: Awaitable[Any]) -> Any:
    return await answer


_started: tuple[int, asyncio.AbstractEventLoop] | None = None
_lock = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    global _started
    with _lock:
        if _started is None or _started[0] != os.getpid():  # a forked process inherits no thread
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="gem_ma behaviours", daemon=True).start()
            _started = (os.getpid(), loop)
        return _started[1]
