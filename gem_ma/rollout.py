"""Playing: one coroutine per episode, no barrier, no autoreset. The only place where a scenario,
its behaviours and their engines meet.

An episode is a function of its plan and of the replies; latency and concurrency change nothing.
What fails ends one episode as FAILED, with its cause, and touches no other. Who sits where is in
`gem_ma.seats`, when the driver cuts a play in `gem_ma.limits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.behaviour import Factory
from gem_ma.branches import Branch, branched_game, take_over
from gem_ma.calling import run_calls
from gem_ma.crew import Crew
from gem_ma.engines.base import Policy
from gem_ma.engines.batching import Gate
from gem_ma.engines.capabilities import Reachable, Remembers
from gem_ma.episode import End, Episode, Limits, Seat
from gem_ma.errors import BudgetError, ConfigError, DataError, EndpointError, ScenarioError
from gem_ma.limits import NO_LIMITS, Cut, SampledTokens, check_limits
from gem_ma.parsing import clean
from gem_ma.registry import task_of
from gem_ma.scenario import Game, Scenario
from gem_ma.seats import Seats


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

    @property
    def id(self) -> tuple[str, int, int]:
        return (self.task, self.seed, self.repeat)


async def play(
    plan: Plan,
    policies: Mapping[str, Policy] | None = None,
    behaviours: Mapping[str, Factory] | None = None,
) -> Episode:
    """Plays one episode and gives its record; a failure of scenario, behaviour, engine or call is
    an Episode with `end` FAILED.

    `behaviours` replaces the factory of an agent's seat (for code that has no id). Raises
    ConfigError for a cast that does not fit.
    """
    game: Game | None = None
    cast: Mapping[str, Seat] = plan.cast
    end, error = End.TERMINATED, None
    try:
        # the clock covers making the seats too: a factory may load a model
        async with asyncio.timeout(plan.limits.timeout_s) as clock:
            task = task_of(plan.scenario, plan.task)
            seats = _seats(plan, policies or {}, behaviours or {}, task)
            cast = seats.cast
            if plan.branch is None:
                game = Game(plan.scenario, task, plan.seed, defer_calls=True)
            else:
                game = branched_game(plan.scenario, plan.branch, task)
            game.max_said = plan.limits.max_said
            if plan.branch is not None:
                await take_over(seats, game.turns, plan.branch)
            # a scenario may call the world before it asks anybody
            await run_calls(game, plan.call_timeout_s)
            sampled = SampledTokens()
            while game.pending:
                actions, replies = await seats.act(game)
                game.send(actions, replies)
                await run_calls(game, plan.call_timeout_s)
                check_limits(game, plan.limits, sampled)
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
    if game is not None and end.scored and (fault := _silence(game, policies or {})):
        end, error = End.FAILED, fault
    return _record(plan, cast, game, end, error)


def _seats(
    plan: Plan, policies: Mapping[str, Policy], behaviours: Mapping[str, Factory], task: Any
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


def _silence(game: Game, policies: Mapping[str, Policy]) -> str:
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


def _close(game: Game, error: str | None, end: End) -> tuple[str | None, End]:
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
    )


# -- many ----------------------------------------------------------------------------------------


def _forget(policies: Mapping[str, Policy]) -> None:
    for policy in policies.values():
        engine = policy.core
        if isinstance(engine, Remembers):
            engine.forget()


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

    `deterministic` (training): batches are released only when every live episode waits, so their
    composition does not depend on timing. Closing the iterator cancels what still runs and closes
    those plays.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1; got {concurrency}")
    gate = Gate() if deterministic else None
    # A cached beginning differs from a computed one by rounding, so a resumed run must begin as
    # the unbroken one did: engines forget what they keep. Afterwards the update wants the memory.
    if deterministic:
        _forget(policies or {})
    # a list of plans may be endless or made as it is read, so no task is made ahead of it
    crew = Crew(plans, lambda plan: play(plan, policies, behaviours), started)
    crew.start(concurrency, gate)
    try:
        while (episode := await crew.next()) is not None:
            yield episode
    finally:
        if gate is not None:
            gate.close()
        await crew.stop()
        if deterministic:
            _forget(policies or {})
