"""The behaviour `program`: its agent is played by a program outside, which takes the seat at the
desk, is told what is new, and answers turn by turn.

A model call of the program goes through `sample`, as that of any behaviour: it is a reply of the
running turn, on record with its ids. Everything here runs on the loop of the play; the server's
threads call by `asyncio.run_coroutine_threadsafe`. Knows no JSON.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from gem_ma.driver.behaviour import Sample
from gem_ma.engines.batching import GATE
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, DataError, ProgramError
from gem_ma.kernel.types import Action, Asked, Message, Reply, Sampling, Tool
from gem_ma.serving.desk import DESK

CALLS = 256  # model calls in one turn: a program that never acts would fill the record
LOOK_S = 1.0  # at the longest, until silence is noticed


class News(NamedTuple):
    """What the agent is asked in a turn."""

    turn: int
    asked: Asked


class Ending(NamedTuple):
    """How a play ended, as the program of one seat is told: `earned` is what its agent got."""

    end: str
    earned: float
    error: str | None


class ProtocolFault(Exception):
    """A program asked for what this moment does not allow; the play goes on."""


class OverError(ProtocolFault):
    """The play is over."""


class Program:
    """A seat that a program takes. Without a desk (`gem-ma serve`) nobody could: ConfigError."""

    def __init__(self, agent: str, sample: Sample, rng: random.Random, task: Any = None) -> None:
        desk = DESK.get()
        if desk is None:
            raise ConfigError(
                f"agent {agent!r} is played by a program of somebody else; type the command that"
                f" seats one: gem-ma serve CONFIG --seat {agent}"
            )
        self.agent = agent
        self.desk = desk
        self._sample = sample
        self.sampling: Sampling | None = None  # of its policy; None where it has none
        self.key = ""  # of who took the seat; "" while it is free
        self.end: Ending | None = None
        self.asked: Asked | None = None  # None while others act
        self.legal: tuple[str, ...] | None = None  # of the last turn
        self.turn = 0  # the agent's own, from 1
        self._answer: asyncio.Future[Action] | None = None
        self._last: Action | None = None
        self._calls: set[asyncio.Task[Reply]] = set()
        self._waiting: list[asyncio.Future[None]] = []  # for a change
        self._called = self._flying = self._busy = 0
        self._heard = time.monotonic()

    # -- the play's side --------------------------------------------------------------------------

    async def act(self, asked: Asked) -> Action:
        """Waits for the program. Raises ProgramError where it leaves or is silent for too long, and
        whatever one of its model calls raised."""
        self.loop = asyncio.get_running_loop()
        # model calls are made as if they came from here: a gate counts them with this play
        self._context = contextvars.copy_context()
        self._called = 0
        self._answer = self.loop.create_future()
        self._last = None
        self.asked = asked
        self.legal = asked.legal
        self.turn = self.turn + 1
        self._tell()
        if self.turn == 1:
            self.desk.offer(self)
        gate = GATE.get()
        if gate is not None:  # others are not held up by a program that thinks
            gate.stop()
        try:
            return await self._answered(self._answer)
        finally:
            if gate is not None:
                gate.start()
            self.asked = None

    async def _answered(self, answer: asyncio.Future[Action]) -> Action:
        while not answer.done():
            await asyncio.wait({answer}, timeout=min(LOOK_S, self.desk.patience_s / 4))
            silent = time.monotonic() - self._heard
            # a seat that nobody took is waited for as long as it takes
            if self.key and not self._busy and silent > self.desk.patience_s:
                await self._hang_up()
                raise ProgramError(
                    f"agent {self.agent!r}: its program was not heard of for"
                    f" {self.desk.patience_s:g} s, in turn {self.turn}"
                )
        return answer.result()

    def hear_begin(self, sampling: Sampling | None) -> None:
        """How the policy of the seat samples."""
        self.sampling = sampling

    def hear_end(self, episode: Episode) -> None:
        """The play has ended: the program is told at its next word."""
        self.end = Ending(episode.end.value, episode.returns().get(self.agent, 0.0), episode.error)
        self.desk.withdraw(self)
        self._tell()

    # -- the program's side -----------------------------------------------------------------------

    def seat(self, key: str) -> None:
        """Somebody took the seat, or gave it back ("")."""
        # from now on silence counts; the seat may have been free for hours
        self.key = key
        self._heard = time.monotonic()

    async def news(self, wait_s: float) -> News | Ending | None:
        """What the agent is asked, or how the play ended; None where others still act after so
        many seconds."""
        deadline = time.monotonic() + wait_s
        with self._hearing():
            while self.asked is None and self.end is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                await asyncio.wait({self._change()}, timeout=left)
        return self.end or (News(self.turn, self.asked) if self.asked is not None else None)

    async def answer(self, turn: int, action: Action) -> None:
        """Acts. The same answer to the same turn once more is a request that was sent twice; it is
        ignored."""
        with self._hearing():
            if turn != self.turn:
                raise ProtocolFault(f"the turn is {self.turn}; got an answer to turn {turn}")
            if self._answer is None or self._answer.done():
                if self.is_last(turn, action):
                    return
                if self.end is not None:
                    raise OverError(self.how())
                raise ProtocolFault(f"turn {turn} has another answer already, or has failed")
            # before the first await: a second answer that comes meanwhile is too late
            self._last = action
            self.asked = None
            self._answer.set_result(action)
            await self._hang_up()

    def is_last(self, turn: int, action: Action) -> bool:
        """Whether this is what was done last."""
        return turn == self.turn and action == self._last

    def how(self) -> str:
        """How the play ended, in a line."""
        if self.end is None:
            return "the play goes on"
        return f"the play is over ({self.end.end})" + (
            f": {self.end.error}" if self.end.error else ""
        )

    async def leave(self, reason: str) -> None:
        """The program gives up: the play fails, and the record says so."""
        with self._hearing():
            await self._hang_up()
            if self._answer is not None and not self._answer.done():
                why = f": {reason}" if reason else ""
                self._answer.set_exception(
                    ProgramError(f"agent {self.agent!r}: its program left in turn {self.turn}{why}")
                )

    async def call(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool],
        legal: tuple[str, ...] | None,
        thread: str,
        **options: Any,
    ) -> Reply:
        """One model call in the running turn. What it raises ends the play, as it does for any
        behaviour."""
        with self._hearing():
            if self.end is not None:
                raise OverError(self.how())
            if self.asked is None or self._answer is None or self._answer.done():
                raise ProtocolFault("it is not this agent's turn; wait for it: GET /episode/KEY")
            if self._called >= CALLS:
                raise ProtocolFault(f"{CALLS} model calls in one turn; answer it")
            self._called += 1
            work = self._fly(messages, tools=tools, legal=legal, thread=thread, **options)
            task = self.loop.create_task(work, context=self._context.copy())
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
            try:
                return await task
            except asyncio.CancelledError:
                task.cancel()  # nobody hears the reply, so it is not on record
                raise

    async def _fly(self, messages: Sequence[Message], **how: Any) -> Reply:
        gate = GATE.get()
        answer = self._answer
        assert answer is not None
        # the seats count every request beside the first one; the first is counted here, in place
        # of `act`, which waits
        if gate is not None and not self._flying:
            gate.start()
        self._flying += 1
        try:
            return await self._sample(messages, **how)
        except (ConfigError, DataError) as error:
            # of what this program sent: elsewhere such an error would end the plays of all
            refused = ProgramError(f"agent {self.agent!r}: its model call cannot be done: {error}")
            _fail(answer, refused)
            raise refused from error
        except Exception as error:
            _fail(answer, error)
            raise
        finally:
            self._flying -= 1
            if gate is not None and not self._flying:
                gate.stop()

    async def _hang_up(self) -> None:
        """Ends the model calls that still run: the turn is over, and nobody hears them."""
        calls = [call for call in self._calls if call is not asyncio.current_task()]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    # -- between the two --------------------------------------------------------------------------

    def _hearing(self) -> _Hearing:
        return _Hearing(self)

    def _change(self) -> asyncio.Future[None]:
        """Done as soon as something changes."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    def _tell(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()


def _fail(answer: asyncio.Future[Action], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # looked at: the play may be cancelled before it looks


class _Hearing:
    """While the program is being heard it is not silent."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __enter__(self) -> None:
        self.program._busy += 1

    def __exit__(self, *exc: object) -> None:
        self.program._busy -= 1
        self.program._heard = time.monotonic()
