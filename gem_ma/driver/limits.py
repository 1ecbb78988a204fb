"""The driver's limits on one play: how long it may go on, how much a model may say, and how long
a call to the world outside may take.

They are not rules of the scenario: a play that they cut is a truncation (`End.bootstraps`).

Calls run on threads of their own. A thread cannot be ended from outside. A hung call blocks no pool
and not the end of the process, but its thread stays; so of a world that hangs again and again,
`MAX_HUNG` calls are waited for, and every further one fails at once with its cause, until some come
back. A thread whose call came back takes the next one: to start a thread costs more than most steps
of a scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Reachable
from gem_ma.kernel.episode import End, Limits
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.bounds import bounded
from gem_ma.kernel.scenario import Call, Game
from gem_ma.kernel.spelling import in_quotes
from gem_ma.kernel.types import Reply, Sampling

# What a play holds against a policy: sampled in another way than its config says, or silent from
# the beginning to the end.

# the sampling options that change a token's probability; the others only end a reply
DRAWS = ("temperature", "top_p", "top_k")


def drawn_otherwise(agent: str, policy: Policy, sampling: Sampling) -> ConfigError | None:
    """What is wrong with a behaviour's own sampling of a policy that learns: its update would
    take the tokens for drawn as the config says."""
    if not policy.learns:
        return None
    for key in DRAWS:
        asked = getattr(sampling, key)
        configured = getattr(policy.sampling, key)
        if asked != configured:
            return ConfigError(
                f"agent {agent!r}: its behaviour samples policy {policy.name!r} with {key} {asked},"
                f" and the config says {configured}; a policy that learns is sampled as its config"
                f" says: leave {key} out of sample(...), set"
                f" policies.{in_quotes(policy.name)}.{key}, or take it out of train.policies"
            )
    return None


def silence(game: Game, policies: Mapping[str, Policy]) -> str:
    """What is wrong where a policy gave nothing but empty replies and its engine takes that for a
    failure of the server; "" where nothing is."""
    spoke: dict[str, bool] = {}
    for turn in game.turns:
        for reply in turn.replies:
            spoke[reply.policy] = spoke.get(reply.policy, False) or not reply.silent
    for name, heard in spoke.items():
        if heard or name not in policies:
            continue
        # a bot may well say nothing; a server that does has lost its model
        core = policies[name].core
        if isinstance(core, Reachable) and core.silence_fails:
            return f"EngineError: policy {name!r} said nothing in this play: every reply was empty"
    return ""


NO_LIMITS = Limits()
REPLY_TIMES = 8  # a reply may hold so many times what may be said: its thinking too


class Cut(Exception):
    """The driver ends the play."""

    def __init__(self, end: End) -> None:
        self.end = end


class SampledTokens:
    """Tokens sampled so far in a play, by count of ids or else by the server's word; each turn
    is looked at once."""

    def __init__(self) -> None:
        self._turns = self._tokens = 0

    def count(self, game: Game) -> int:
        """All tokens until now."""
        for turn in game.turns[self._turns :]:
            for reply in turn.replies:
                # a server that tells no counts is not limited by them
                self._tokens += reply.sampled or 0
        self._turns = len(game.turns)
        return self._tokens


def check_limits(game: Game, limits: Limits, sampled: SampledTokens) -> None:
    """Raises Cut where the play has reached a limit; a play that is over has kept to them."""
    if game.over or limits is NO_LIMITS:
        return
    if limits.max_steps is not None and game.step >= limits.max_steps:
        raise Cut(End.MAX_STEPS)
    if limits.max_turns is not None and len(game.turns) >= limits.max_turns:
        raise Cut(End.MAX_TURNS)
    # last: counting tokens is the one that costs
    if limits.max_tokens is not None and sampled.count(game) >= limits.max_tokens:
        raise Cut(End.MAX_TOKENS)


def bounded_reply(reply: Reply, max_said: int | None) -> Reply:
    """The reply with what the record keeps of it, thinking included; a server may send 32 MB."""
    limit = None if max_said is None else max_said * REPLY_TIMES
    text, calls, cut = bounded(reply.text, reply.tool_calls, limit)
    reasoning, _, more = bounded(reply.reasoning, (), limit)
    # the same object: most replies fit, and a copy costs
    if not cut and not more:
        return reply
    return replace(reply, text=text, tool_calls=calls, reasoning=reasoning, cut=cut + more)


# names of threads
CALL_THREAD = "gem_ma call"
IDLE_THREAD = "gem_ma idle"
# threads that wait for their next call, and for how long
IDLE_KEPT = 32
IDLE_S = 10.0
MAX_HUNG = 64  # in this process
CROWDED = (
    f"TooManyHungCalls: {MAX_HUNG} calls have not come back, so no further one is begun; what they"
    " call hangs"
)


class _Hung:
    """How many calls run on that nobody waits for any more."""

    def __init__(self) -> None:
        self.number = 0
        self.lock = threading.Lock()


_HUNG = _Hung()


Work = Callable[[], None]


class _Threads:
    """Threads that work. One that is through with its work waits a while for more."""

    def __init__(self) -> None:
        # a list's own operations are whole, so that no lock is needed
        self.idle: list[tuple[threading.Thread, SimpleQueue[Work]]] = []
        self.process = os.getpid()

    def run(self, work: Work) -> None:
        if self.process != os.getpid():  # a forked process inherits no thread
            self.__init__()  # type: ignore[misc]
        try:
            thread, inbox = self.idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            thread = threading.Thread(target=self._serve, args=(inbox,), daemon=True)
            thread.start()
        thread.name = CALL_THREAD
        inbox.put(work)

    def _serve(self, inbox: SimpleQueue[Work]) -> None:
        place = threading.current_thread(), inbox
        work: Work | None = inbox.get()
        while work is not None:
            # what one call sets in its context is none of the next one's business
            Context().run(work)
            work = None  # an idle thread holds nothing of a play
            place[0].name = IDLE_THREAD
            if len(self.idle) >= IDLE_KEPT:
                return
            self.idle.append(place)
            work = self._next(place)

    def _next(self, place: tuple[threading.Thread, SimpleQueue[Work]]) -> Work | None:
        try:
            return place[1].get(timeout=IDLE_S)
        except Empty:
            try:
                self.idle.remove(place)
            except ValueError:  # it was taken in this very moment
                return place[1].get()
            return None


_THREADS = _Threads()


class Outside:
    """A call under way on a thread of its own. It counts as hung between the moment that nobody
    waits for it any more and its end."""

    __slots__ = ("_ended", "_left", "outcome")

    def __init__(self, call: Call, came: Callable[[], object]) -> None:
        """`came` is called when it has come back, mostly on its thread; not after `leave`."""
        self.outcome: tuple[Any, str | None] | None = None  # until it came back
        # both are read and set under the lock: a call may end while it is given up
        self._ended = self._left = False
        if _HUNG.number >= MAX_HUNG:
            self._end((None, CROWDED), came)
            return
        # Never queued behind another: a hung call holds none up, and the process ends without it.
        _THREADS.run(lambda: self._run(call, came))

    def _run(self, call: Call, came: Callable[[], object]) -> None:
        outcome = None  # of a thread that is ended by Ctrl-C
        try:
            outcome = call.run()
        finally:
            self._end(outcome, came)

    def _end(self, outcome: tuple[Any, str | None] | None, came: Callable[[], object]) -> None:
        # before anybody hears of it: who has the result counts no call as hung
        with _HUNG.lock:
            self._ended = True
            _HUNG.number -= self._left
            self.outcome = None if self._left else outcome  # a late result is dropped
        if self.outcome is not None:
            came()

    def leave(self) -> None:
        """Nobody waits for it any more."""
        with _HUNG.lock:
            if not self._ended and not self._left:
                self._left = True
                _HUNG.number += 1


def late(timeout_s: float | None) -> tuple[None, str]:
    """What a call comes to that nobody waits for any longer."""
    return None, f"TimeoutError: no result within {timeout_s} s"


def _wake(loop: asyncio.AbstractEventLoop, came: asyncio.Event) -> None:
    # the loop is closed where everybody left in the moment between the result and this
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(came.set)


async def run_calls(game: Game, timeout_s: float | None) -> None:
    """Runs the calls that the scenario waits for, off the loop and with a time limit."""
    while game.waiting:
        came = asyncio.Event()
        outside = Outside(game.waiting, partial(_wake, asyncio.get_running_loop(), came))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await came.wait()
        finally:
            outside.leave()  # cancelled plays leave calls behind too
        game.answer(*(outside.outcome or late(timeout_s)))
