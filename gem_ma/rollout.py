"""Playing: one coroutine per episode, no barrier, no autoreset. The only place where a scenario, its behaviours and their engines meet.

An episode is a function of its plan and of the replies; latency and concurrency change nothing. What fails ends one episode as FAILED, with
its cause, and touches no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gem_ma.behaviour import Behaviour, Factory, Sample, as_factory, is_privileged, no_policy, seat
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.engines.batching import GATE, Gate
from gem_ma.errors import CallError, ConfigError, ScenarioError
from gem_ma.registry import task_of
from gem_ma.scenario import Call, Game, Scenario
from gem_ma.types import Action, Asked, End, Episode, Limits, Message, Reply, Request, Seat, Tool

NO_LIMITS = Limits()


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

    @property
    def id(self) -> tuple[str, int, int]:
        return (self.task, self.seed, self.repeat)


class _Cut(Exception):
    """The driver ends the play."""

    def __init__(self, end: End) -> None:
        self.end = end


async def play(plan: Plan, policies: Mapping[str, Policy] | None = None, behaviours: Mapping[str, Factory] | None = None) -> Episode:
    """Plays one episode and gives its record; a failure of scenario, behaviour, engine or call is an Episode with `end` FAILED.

    `behaviours` replaces the factory of an agent's seat (for code that has no id). Raises ConfigError for a cast that does not fit.
    """
    task = task_of(plan.scenario, plan.task)
    table = _Table(plan, policies or {}, behaviours or {}, task)
    game, end, error = None, End.TERMINATED, None
    try:
        async with asyncio.timeout(plan.limits.timeout_s) as clock:
            game = Game(plan.scenario, task, plan.seed, defer_calls=True)
            await _calls(game, plan)
            while game.pending:
                actions, replies = await table.act(game)
                game.send(actions, replies)
                await _calls(game, plan)
                _check_limits(game, plan.limits)
    except _Cut as cut:
        end = cut.end
    except ConfigError:
        raise
    except Exception as caught:
        timed_out = isinstance(caught, TimeoutError) and clock.expired()  # a TimeoutError of a behaviour or engine is its own fault
        end, error = (End.TIMEOUT, None) if timed_out else (End.FAILED, _line(caught))
    finally:
        if game is not None:
            error, end = _close(game, error, end)
    return _record(plan, table.cast, game, end, error)


class _Table:
    """The seats of one play and the model calls of the running turn."""

    def __init__(self, plan: Plan, policies: Mapping[str, Policy], behaviours: Mapping[str, Factory], task: Any) -> None:
        agents = plan.scenario.agents
        unknown, empty = sorted(set(plan.cast) - set(agents)), [agent for agent in agents if agent not in plan.cast]
        if unknown or empty:
            raise ConfigError(f"{plan.scenario.id}: its agents are {', '.join(agents)}; not in it: {unknown}, without a seat: {empty}")
        self.plan, self.turn = plan, dict.fromkeys(agents, 0)
        self.replies: dict[str, list[Reply]] = {agent: [] for agent in agents}
        self.cast: dict[str, Seat] = {}
        self.players: dict[str, Behaviour] = {}
        for agent, given in plan.cast.items():
            factory = behaviours.get(agent) or as_factory(given.behaviour)
            if given.policy is not None and given.policy not in policies:
                raise ConfigError(f"agent {agent!r}: no policy is called {given.policy!r}; policies are {', '.join(policies) or 'none'}")
            sample = self._sampler(agent, policies[given.policy]) if given.policy else no_policy(agent)
            rng = random.Random(f"{plan.task}/{plan.seed}/{plan.repeat}/{agent}")
            self.cast[agent] = replace(given, privileged=is_privileged(factory))
            self.players[agent] = seat(factory, agent, sample, rng, task, **given.options)

    def _sampler(self, agent: str, policy: Policy) -> Sample:
        plan, replies = self.plan, self.replies[agent]

        async def sample(
            messages: Sequence[Message], *, legal: tuple[str, ...] | None = None, tools: Sequence[Tool] = (), thread: str = "", **options: Any
        ) -> Reply:
            request = Request(
                agent=agent,
                messages=tuple(messages),
                tools=tuple(tools),
                legal=legal,
                sampling=replace(policy.sampling, **options) if options else policy.sampling,
                seed=stable_seed(*plan.id, agent, self.turn[agent], len(replies)),
                conversation="/".join(map(str, (*plan.id, agent, *([thread] if thread else [])))),
                turn=self.turn[agent],
                policy=policy.name,
            )
            reply = await policy.engine.sample(request)
            replies.append(reply)
            if reply.finish == "context_overflow":
                raise _Cut(End.CONTEXT)
            return reply

        return sample

    async def act(self, game: Game) -> tuple[dict[str, Action | str], dict[str, tuple[Reply, ...]]]:
        """Awaits all pending agents together and gives their actions and model calls."""
        asked = {a: Asked(game.new(a), game.view(a), p.legal, p.tools, game.step) for a, p in game.pending.items()}
        for agent in asked:
            self.replies[agent].clear()
        if len(asked) == 1:
            ((agent, one),) = asked.items()
            said = {agent: await self.players[agent].act(one)}
        else:
            said = await self._together(asked)
        for agent in asked:
            self.turn[agent] += 1
        return said, {agent: tuple(self.replies[agent]) for agent in asked}

    async def _together(self, asked: Mapping[str, Asked]) -> dict[str, Action | str]:
        gate, left = GATE.get(), len(asked)
        if gate is not None:
            gate.start(left - 1)

        async def act(agent: str) -> Action | str:
            nonlocal left
            try:
                return await self.players[agent].act(asked[agent])
            finally:
                left -= 1
                if gate is not None and left:  # the last one goes on as the episode's own coroutine
                    gate.stop()

        tasks = [asyncio.ensure_future(act(agent)) for agent in asked]
        try:
            return dict(zip(asked, await asyncio.gather(*tasks), strict=True))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _calls(game: Game, plan: Plan) -> None:
    """Runs the calls that the scenario waits for, off the loop and with a time limit."""
    while game.waiting:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        threading.Thread(target=_run_call, args=(game.waiting, answer), daemon=True).start()  # of its own: a hung call blocks no pool
        try:
            async with asyncio.timeout(plan.call_timeout_s) as clock:
                value, error = await answer, None
        except Exception as raised:
            late = isinstance(raised, TimeoutError) and clock.expired()
            value, error = None, f"TimeoutError: no result within {plan.call_timeout_s} s" if late else f"{type(raised).__name__}: {raised}"
        game.answer(value, error)


def _run_call(call: Call, answer: asyncio.Future[Any]) -> None:
    try:
        finish = functools.partial(answer.set_result, call.run())
    except Exception as error:
        finish = functools.partial(answer.set_exception, error)
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        answer.get_loop().call_soon_threadsafe(lambda: None if answer.done() else finish())


def _check_limits(game: Game, limits: Limits) -> None:
    if game.over or limits is NO_LIMITS:
        return
    if limits.max_steps is not None and game.step >= limits.max_steps:
        raise _Cut(End.MAX_STEPS)
    if limits.max_turns is not None and len(game.turns) >= limits.max_turns:
        raise _Cut(End.MAX_TURNS)
    if limits.max_tokens is not None and tokens(game) >= limits.max_tokens:
        raise _Cut(End.MAX_TOKENS)


def tokens(game: Game) -> int:
    """Tokens sampled so far in this play, by count of ids or else by the server's word."""
    return sum(len(r.token_ids) or r.usage.completion_tokens or 0 for turn in game.turns for r in turn.replies)


def _close(game: Game, error: str | None, end: End) -> tuple[str | None, End]:
    try:
        game.close()
    except ScenarioError as caught:
        return error or _line(caught), End.FAILED
    return error, end


def _line(error: BaseException) -> str:
    if isinstance(error, (ScenarioError, CallError)) and error.__cause__ is not None:
        return f"{type(error).__name__}: {error} [{type(error.__cause__).__name__}]"
    return f"{type(error).__name__}: {error}"


def _record(plan: Plan, cast: Mapping[str, Seat], game: Game | None, end: End, error: str | None) -> Episode:
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
    )


async def play_many(
    plans: Iterable[Plan],
    policies: Mapping[str, Policy] | None = None,
    *,
    concurrency: int = 64,
    behaviours: Mapping[str, Factory] | None = None,
    deterministic: bool = False,
    started: Callable[[Plan], None] | None = None,
) -> AsyncIterator[Episode]:
    """Plays the plans, at most `concurrency` at once, and gives each episode as it ends.

    `deterministic` (training): batches are released only when every live episode waits, so their composition does not depend on timing.
    Closing the iterator cancels what still runs and closes those plays.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1; got {concurrency}")
    queue: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()
    waiting = iter(plans)
    gate = Gate() if deterministic else None

    async def worker() -> None:
        try:
            for plan in waiting:
                if started is not None:
                    started(plan)
                queue.put_nowait(await play(plan, policies, behaviours))
                await slots.acquire()  # back-pressure: the consumer has taken one
        except Exception as error:  # a bug or a wrong cast: the run ends, nothing is swallowed
            queue.put_nowait(error)
        finally:
            if gate is not None:
                gate.stop()
            queue.put_nowait(None)

    slots = asyncio.Semaphore(concurrency)
    token = GATE.set(gate)
    if gate is not None:
        gate.start(concurrency)
    workers = [asyncio.ensure_future(worker()) for _ in range(concurrency)]
    GATE.reset(token)
    alive = concurrency
    try:
        while alive:
            item = await queue.get()
            if item is None:
                alive -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                slots.release()
                yield item
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
