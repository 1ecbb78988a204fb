"""Playing: one coroutine per episode, no barrier, no autoreset. The only place where a scenario,
its behaviours and their engines meet. Many plans are played at once; episodes are yielded as they
finish, with back-pressure.

An episode is a function of its plan and of the replies; latency and concurrency change nothing.
What fails ends that episode alone, as FAILED. Seats: `gem_ma.driver.seats`; limits:
`gem_ma.driver.limits`.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gem_ma.driver.forks import Branch, branched_game, take_over
from gem_ma.driver.limits import NO_LIMITS, Cut, SampledTokens, check_limits, run_calls, silence
from gem_ma.driver.seats import Seats, ended
from gem_ma.engines.base import Policy
from gem_ma.engines.batching import GATE, Gate
from gem_ma.engines.capabilities import Remembers
from gem_ma.kernel.episode import End, Episode, Limits, Seat, placed
from gem_ma.kernel.errors import BudgetError, ConfigError, DataError, EndpointError, ScenarioError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.registry import task_of


@dataclass(frozen=True, slots=True)
class Plan:
    """One episode to play: everything that decides it, less the replies."""

    scenario: Scenario
    cast: Mapping[str, Seat]
    task: str = "train/0"
    seed: int = 0
    repeat: int = 0
    group: str | None = None
    limits: Limits = NO_LIMITS
    call_timeout_s: float | None = 60.0
    options: Mapping[str, Any] = field(default_factory=dict)  # of the scenario, for the record
    branch: Branch | None = None  # None = from the start
    world: str = ""  # which scenario of several it is

    @property
    def id(self) -> tuple[str, int, int]:
        return (placed(self.world, self.task), self.seed, self.repeat)


async def play(
    plan: Plan,
    policies: Mapping[str, Policy] | None = None,
    behaviours: Mapping[str, Any] | None = None,
    watch: Callable[[Game], object] = id,  # it touches nothing
) -> Episode:
    """Plays one episode and gives its record; where something fails, its `end` is FAILED.

    `behaviours` says who plays an agent in place of its seat, as `others` of `gym_env`; `watch`
    sees the game before each decision. Raises ConfigError where the cast does not fit.
    """
    game: Game | None = None
    seats: Seats | None = None
    cast: Mapping[str, Seat] = plan.cast
    end, error = End.TERMINATED, None
    try:
        # the clock covers making the seats too: a factory may load a model
        limits = plan.limits.narrowed(plan.scenario.limits)
        async with asyncio.timeout(limits.timeout_s) as clock:
            task = task_of(plan.scenario, plan.task)
            seats = _seats(plan, policies or {}, behaviours or {}, task)
            cast = seats.cast
            if plan.branch is None:
                game = Game(plan.scenario, task, plan.seed, defer_calls=True)
            else:
                game = branched_game(plan.scenario, plan.branch, task)
            game.max_said = limits.max_said
            if plan.branch is not None:
                await take_over(seats, game.turns, plan.branch)
            # a scenario may call the world before it asks anybody
            await run_calls(game, plan.call_timeout_s)
            sampled = SampledTokens()
            while game.pending:
                watch(game)
                actions, replies = await seats.act(game)
                game.send(actions, replies)
                await run_calls(game, plan.call_timeout_s)
                check_limits(game, limits, sampled)
    except Cut as cut:
        end = cut.end
    except (ConfigError, DataError, EndpointError):
        # wrong for every episode of the run, so the run says it once and stops
        raise
    except BudgetError as caught:
        # neither played to its end nor failed: it is played again when there is a budget
        end, error = End.INTERRUPTED, _line(caught)
    except asyncio.CancelledError as caught:
        if _is_cancelled():
            raise
        end, error = End.FAILED, _line(caught)  # somebody's future was cancelled, not this episode
    except Exception as caught:
        # a TimeoutError of a behaviour or engine is its own fault
        timed_out = isinstance(caught, TimeoutError) and clock.expired()
        end, error = (End.TIMEOUT, None) if timed_out else (End.FAILED, _line(caught))
    finally:
        if game is not None:
            error, end = _close(game, error, end)
    if game is not None and end.scored and (fault := silence(game, policies or {})):
        end, error = End.FAILED, fault
    return ended(seats.players.values() if seats else (), _record(plan, cast, game, end, error))


def _seats(
    plan: Plan, policies: Mapping[str, Policy], behaviours: Mapping[str, Any], task: Any
) -> Seats:
    return Seats(
        plan.scenario,
        plan.cast,
        policies,
        behaviours,
        task=task,
        id_=plan.id,
        # a branch goes on with the draws of the play that its chain began with
        first=plan.branch.first if plan.branch else plan.repeat,
        max_said=plan.limits.max_said,
    )


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _close(game: Game, error: str | None, end: End) -> tuple[str | None, End]:
    end = game.own_end if end is End.TERMINATED else end
    try:
        game.close()
    except ScenarioError as caught:
        # the first fault is the one to report
        return error or _line(caught), End.FAILED
    return error, end


def _line(error: BaseException) -> str:
    return clean(f"{type(error).__name__}: {error}")


def _record(
    plan: Plan, cast: Mapping[str, Seat], game: Game | None, end: End, error: str | None
) -> Episode:
    return Episode(
        scenario=plan.scenario.id,
        version=plan.scenario.version,
        seed=plan.seed,
        task=plan.task,
        repeat=plan.repeat,
        group=plan.group,
        cast=dict(cast),
        turns=tuple(game.turns) if game else (),
        calls=tuple(game.calls) if game else (),
        forks=tuple(game.forks) if game else (),
        final={agent: game.new(agent) for agent in plan.scenario.agents} if game else {},
        ledger=tuple(game.ledger) if game else (),
        end=end,
        error=error,
        options=dict(plan.options),
        world=plan.world,
        cut=tuple(game.cut) if game else (),
    )


# A limit on the plays of several rollouts together; the oldest rollout goes first.
# A rollout that is `ADMITTED` begins a play where another one has ended, in whichever rollout. So
# plays of the next rollout fill the free slots while the last long plays finish. Without an
# admission a rollout counts its own plays alone.

YOUNG = 10_000  # new objects, fewer those that went, between two looks for garbage
Waiting = tuple[int, int, "asyncio.Future[None]", Gate | None]


class Admission:
    """So many `places`. Of those who wait the lowest rank is next, and of one rank the first."""

    def __init__(self, places: int) -> None:
        self.free = places
        self._waiting: list[Waiting] = []
        self._numbers = itertools.count()  # so that no two futures are compared

    async def enter(self, rank: int, gate: Gate | None) -> None:
        """Waits for a place. Who waits does not hold up the batches of a gate."""
        # `leave` hands a place on, so none is free while somebody waits
        if self.free:
            self.free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), place, gate))
        if gate is not None:
            gate.stop()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                _run_again(gate)
            else:  # it was handed over in the same round of the loop
                self.leave()
            raise

    def leave(self) -> None:
        """Hands a place on, or frees it."""
        while self._waiting:
            *_, place, gate = heapq.heappop(self._waiting)
            if not place.done():
                # before it wakes: until then its rollout must not take it for idle
                _run_again(gate)
                place.set_result(None)
                return
        self.free += 1

    @asynccontextmanager
    async def place(self, rank: int, gate: Gate | None) -> AsyncIterator[None]:
        """A place while the context lasts."""
        await self.enter(rank, gate)
        try:
            yield
        finally:
            self.leave()


def _run_again(gate: Gate | None) -> None:
    if gate is not None:
        gate.start()


# the admission that the rollouts of a context share, and their rank in it
ADMITTED: ContextVar[tuple[Admission, int] | None] = ContextVar("gem_ma_admission", default=None)


Work = TypeVar("Work")


class Crew(Generic[Work]):
    """Workers that take plans from one list and put what comes of them in one queue."""

    def __init__(
        self,
        plans: Iterable[Work],
        player: Callable[[Work], Awaitable[Episode]],
        started: Callable[[Work], None] | None,
    ) -> None:
        self._plans = iter(plans)
        self._player = player
        self._started = started
        # an episode, what ended the run, or None: one worker has gone
        self._queue: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()
        self._workers: list[asyncio.Future[None]] = []

    def start(self, number: int, gate: Gate | None) -> None:
        """Makes so many workers; each counts as a coroutine of the gate."""
        self._slots = asyncio.Semaphore(number)
        self._gate = gate
        self._admitted = ADMITTED.get()
        # a task takes over the context in which it is made, and the consumer's stays as it was
        gates = GATE.set(gate)
        # a play that plays others waits for them, and would wait for ever for another place
        places = ADMITTED.set(None)
        if gate is not None:
            gate.start(number)
        self._workers = [asyncio.ensure_future(self._work()) for _ in range(number)]
        ADMITTED.reset(places)
        GATE.reset(gates)
        self._working = number

    async def _work(self) -> None:
        try:
            for plan in self._plans:
                self._queue.put_nowait(await self._play(plan))
                await self._slots.acquire()  # back-pressure: the consumer has taken one
        except Exception as error:  # a bug or a wrong cast: the run ends, nothing is swallowed
            self._queue.put_nowait(error)
        finally:
            if self._gate is not None:
                self._gate.stop()
            self._queue.put_nowait(None)

    async def _play(self, plan: Work) -> Episode:
        """Plays a plan, once there is a place for it where places are shared."""
        if self._admitted is None:
            return await self._begin(plan)
        admission, rank = self._admitted
        async with admission.place(rank, self._gate):
            return await self._begin(plan)

    async def _begin(self, plan: Work) -> Episode:
        if self._started is not None:
            self._started(plan)
        return await self._player(plan)

    async def next(self) -> Episode | None:
        """The next episode that ends; None once every worker has gone. Raises what ended the
        run."""
        while self._working:
            item = await self._queue.get()
            if item is None:
                self._working -= 1
            elif isinstance(item, BaseException):
                # raised here, where whoever reads the episodes sees it
                raise item
            else:
                self._slots.release()
                return item
        return None

    async def stop(self) -> None:
        """Cancels what still runs, and waits until those plays are closed."""
        for task in self._workers:
            task.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)


async def play_many(
    plans: Iterable[Plan],
    policies: Mapping[str, Policy] | None = None,
    *,
    concurrency: int = 64,
    behaviours: Mapping[str, Any] | None = None,
    deterministic: bool = False,
    started: Callable[[Plan], None] | None = None,
    player: Callable[[Plan], Awaitable[Any]] | None = None,
) -> AsyncIterator[Episode]:
    """Plays the plans, at most `concurrency` at once, and gives each episode as it ends.

    `deterministic` (training): batches are released only when every live episode waits, so their
    composition does not depend on timing. Closing the iterator cancels what still runs and closes
    those plays. `player`: what plays a plan in place of this process; what it gives is given.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1; got {concurrency}")
    gate = Gate() if deterministic else None
    # A cached beginning differs from a computed one by rounding, so a resumed run must begin as
    # the unbroken one did: engines forget what they keep. Afterwards the update wants the memory.
    if deterministic:
        _forget(policies or {})
    # a list of plans may be endless or made as it is read, so no task is made ahead of it
    crew = Crew(plans, player or (lambda plan: play(plan, policies, behaviours)), started)
    crew.start(concurrency, gate)
    try:
        with seldom_collecting():
            while (episode := await crew.next()) is not None:
                yield episode
    finally:
        if gate is not None:
            gate.close()
        await crew.stop()
        if deterministic:
            _forget(policies or {})


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Garbage in cycles is looked for less often, as nearly all goes without: each look reads the
    token ids of all replies that came since the last one, one by one."""
    most, *older = gc.get_threshold()
    is_raised = 0 < most < YOUNG  # 0: whoever runs this wants no looks at all
    if is_raised:
        gc.set_threshold(YOUNG, *older)
    try:
        yield
    finally:
        if is_raised:
            gc.set_threshold(most, *older)


def _forget(policies: Mapping[str, Policy]) -> None:
    for policy in policies.values():
        engine = policy.core
        if isinstance(engine, Remembers):
            engine.forget()
