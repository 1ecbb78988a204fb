"""Playing: one coroutine per episode, no barrier, no autoreset. The only place where a scenario,
its behaviours and their engines meet. Many plays at once: `gem_ma.driver.many`.

An episode is a function of its plan and of the replies; latency and concurrency change nothing.
What fails ends that episode alone, as FAILED. Seats: `gem_ma.driver.seats`; limits:
`gem_ma.driver.limits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.driver.behaviour import Factory
from gem_ma.driver.calling import run_calls
from gem_ma.driver.forks import Branch, branched_game, take_over
from gem_ma.driver.limits import NO_LIMITS, Cut, SampledTokens, check_limits, silence
from gem_ma.driver.seats import Seats, ended
from gem_ma.engines.base import Policy
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
    behaviours: Mapping[str, Factory] | None = None,
    watch: Callable[[Game], object] = id,  # it touches nothing
) -> Episode:
    """Plays one episode and gives its record; where something fails, its `end` is FAILED.

    `behaviours` replaces the factory of an agent's seat (for code that has no id); `watch` sees the
    game before each decision. Raises ConfigError where the cast does not fit the scenario.
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
