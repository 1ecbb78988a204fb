"""Asking behaviours from sync code. One private event loop in one daemon thread serves the
process; a behaviour that declares `waits = False` never meets it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import Awaitable, Container, Coroutine, Mapping
from typing import Any

from gem_ma.driver.behaviour import Behaviour
from gem_ma.kernel.errors import ActionError
from gem_ma.kernel.types import Action, Asked

Flights = dict[str, "concurrent.futures.Future[Any]"]


def begin(
    players: Mapping[str, Behaviour], asked: Mapping[str, Asked], immediate: Container[str] = ()
) -> tuple[dict[str, Any], Flights]:
    """What behaviours do at once, and what the others will have done, as futures."""
    actions: dict[str, Any] = {}
    waiting: Flights = {}
    for agent, request in asked.items():
        answer: Any = players[agent].act(request)
        if agent in immediate and inspect.iscoroutine(answer):
            answer = _finish(agent, answer)
        if inspect.isawaitable(answer):
            waiting[agent] = asyncio.run_coroutine_threadsafe(_await(answer), _loop())
        else:
            actions[agent] = answer
    return actions, waiting


def landed(actions: dict[str, Any], waiting: Flights) -> dict[str, Action | str]:
    """All of them, once the last future is done. Raises what one of them raised."""
    try:
        for agent, future in waiting.items():
            actions[agent] = future.result()
    finally:
        # one has failed, or Ctrl-C came: nobody wants the others' answers any more
        for future in waiting.values():
            future.cancel()
    for agent, action in actions.items():
        if not isinstance(action, (str, Action)):
            raise ActionError(
                f"agent {agent!r}: its behaviour gives a str or an Action; got"
                f" {type(action).__name__}"
            )
    return actions


def _finish(agent: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine to its end here and now: a hop to the loop's thread and back would cost
    more than the whole turn of a bot."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise ActionError(
        f"agent {agent!r}: its behaviour declares `waits = False` and has waited for something;"
        " take the declaration out"
    )


async def _await(answer: Awaitable[Any]) -> Any:
    return await answer


_started: tuple[int, asyncio.AbstractEventLoop] | None = None
# environments may be stepped from several threads, and one loop is enough for all
_lock = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    global _started
    with _lock:
        if _started is None or _started[0] != os.getpid():  # a forked process inherits no thread
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="gem_ma behaviours", daemon=True).start()
            # the id beside it: after a fork the loop is there and its thread is not
            _started = (os.getpid(), loop)
        return _started[1]
