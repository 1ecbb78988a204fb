"""Playing: one coroutine per episode, no barrier, no autoreset. The only place where a scenario,
its behaviours and their engines meet.

An episode is a function of its plan and of the replies; latency and concurrency change nothing.
What fails ends one episode as FAILED, with its cause, and touches no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gem_ma.behaviour import Behaviour, Factory, Sample, as_factory, is_privileged, no_policy, seat
from gem_ma.calling import run_calls
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.engines.batching import GATE, Gate
from gem_ma.errors import (
    BudgetError,
    ConfigError,
    DataError,
    EndpointError,
    ReplayError,
    ScenarioError,
)
from gem_ma.exchange import Pending, read
from gem_ma.parsing import clean
from gem_ma.parsing.bounds import bounded
from gem_ma.registry import task_of
from gem_ma.scenario import Game, Scenario, replay
from gem_ma.types import (
    Action,
    Asked,
    End,
    Episode,
    Limits,
    Message,
    Reply,
    Request,
    Sampling,
    Seat,
    Tool,
    Transcript,
    Turn,
    spoken,
)

NO_LIMITS = Limits()
# the sampling options that change a token's probability; the others only end a reply
DRAWS = ("temperature", "top_p", "top_k")
REPLY_TIMES = 8  # a reply may hold so many times what may be said: its thinking too


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a play goes on from a recorded one: its decision points before `step` are taken over,
    then scenario and behaviours are reseeded.

    `first` is the repeat of the play that the chain of branches began with: its behaviours drew
    from it.
    """

    of: Episode
    step: int
    seed: str
    first: int


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


class _Cut(Exception):
    """The driver ends the play."""

    def __init__(self, end: End) -> None:
        self.end = end


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
        async with asyncio.timeout(plan.limits.timeout_s) as clock:
            task = task_of(plan.scenario, plan.task)
            table = _Table(plan, policies or {}, behaviours or {}, task)
            cast = table.cast
            game = (
                Game(plan.scenario, task, plan.seed, defer_calls=True)
                if plan.branch is None
                else _forked(plan, plan.branch, task)
            )
            game.max_said = plan.limits.max_said
            if plan.branch is not None:
                await table.take_over(game.turns, plan.branch)
            await run_calls(game, plan.call_timeout_s)
            counted = _Counted()
            while game.pending:
                actions, replies = await table.act(game)
                game.send(actions, replies)
                await run_calls(game, plan.call_timeout_s)
                _check_limits(game, plan.limits, counted)
    except _Cut as cut:
        end = cut.end
    except (ConfigError, DataError, EndpointError):
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
    if game is not None and end.scored and (name := _only_silent(game, policies or {})):
        end, error = (
            End.FAILED,
            f"EngineError: policy {name!r} said nothing in this play: every reply was empty",
        )
    return _record(plan, cast, game, end, error)


def _drawn_otherwise(agent: str, policy: Policy, sampling: Sampling) -> ConfigError | None:
    """What is wrong with a behaviour's own sampling of a policy that learns: its update would
    take the tokens for drawn as the config says."""
    key = next(
        (key for key in DRAWS if getattr(sampling, key) != getattr(policy.sampling, key)), None
    )
    if key is None or not policy.learns:
        return None
    asked, configured = getattr(sampling, key), getattr(policy.sampling, key)
    return ConfigError(
        f"agent {agent!r}: its behaviour samples policy {policy.name!r} with {key} {asked}, and the"
        f" config says {configured}; a policy that learns is sampled as its config says: leave"
        f" {key} out of sample(...), set policies.{policy.name}.{key}, or take it out of"
        " train.policies"
    )


def _forked(plan: Plan, branch: Branch, task: Any) -> Game:
    """The recorded play up to the fork, as `Game.fork` would give it. Raises ReplayError where
    the scenario does not repeat it."""
    turns = [turn for turn in branch.of.turns if turn.step < branch.step]
    calls = [call for call in branch.of.calls if call.step < branch.step]
    forks = [pair for pair in branch.of.forks if pair[0] <= branch.step]
    game = replay(
        plan.scenario,
        task,
        branch.of.seed,
        turns,
        calls,
        [*forks, (branch.step, branch.seed)],
        defer_calls=True,
    )
    if not game.pending and not game.waiting:
        raise ReplayError(
            f"{plan.scenario.id}: the record has no decision point {branch.step} to go on from"
        )
    return game


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Table:
    """The seats of one play and the model calls of the running turn."""

    def __init__(
        self,
        plan: Plan,
        policies: Mapping[str, Policy],
        behaviours: Mapping[str, Factory],
        task: Any,
    ) -> None:
        agents = plan.scenario.agents
        unknown, empty = (
            sorted(set(plan.cast) - set(agents)),
            [agent for agent in agents if agent not in plan.cast],
        )
        if unknown or empty:
            raise ConfigError(
                f"{plan.scenario.id}: its agents are {', '.join(agents)}; not in it: {unknown},"
                f" without a seat: {empty}"
            )
        self.plan, self.turn = plan, dict.fromkeys(agents, 0)
        # of the running turn, by order of request
        self.replies: dict[str, list[Reply | None]] = {agent: [] for agent in agents}
        self.flying = dict.fromkeys(agents, 0)  # requests without a reply
        self.cut: End | None = None
        # kept, since a behaviour may catch errors or wrap them in a group
        self.stop: ConfigError | EndpointError | BudgetError | None = None
        self.recorded: dict[str, tuple[Reply, ...]] = {}  # of the turn that is taken over
        self.rngs: dict[str, random.Random] = {}
        self.cast: dict[str, Seat] = {}
        self.players: dict[str, Behaviour] = {}
        for agent, given in plan.cast.items():
            factory = behaviours.get(agent) or as_factory(given.behaviour)
            for name in (given.policy, *given.policies.values()):
                if name is not None and name not in policies:
                    raise ConfigError(
                        f"agent {agent!r}: no policy is called {name!r}; policies are"
                        f" {', '.join(policies) or 'none'}"
                    )
            further = {key: policies[name] for key, name in given.policies.items()}
            sample = (
                self._sampler(agent, policies[given.policy], further)
                if given.policy
                else no_policy(agent)
            )
            rng = random.Random(
                f"{plan.task}/{plan.seed}/{plan.branch.first if plan.branch else plan.repeat}/{agent}"
            )
            self.rngs[agent] = rng
            self.cast[agent] = replace(given, privileged=is_privileged(factory))
            self.players[agent] = seat(factory, agent, sample, rng, task, **given.options)

    def _sampler(self, agent: str, main: Policy, further: Mapping[str, Policy]) -> Sample:
        plan = self.plan

        async def sample(
            messages: Sequence[Message],
            *,
            legal: tuple[str, ...] | None = None,
            tools: Sequence[Tool] = (),
            thread: str = "",
            policy: str = "",
            **options: Any,
        ) -> Reply:
            # what the seat does not name is played by its own policy
            chosen = further.get(policy, main)
            replies = self.replies[agent]
            call = len(replies)
            sampling = replace(chosen.sampling, **options) if options else chosen.sampling
            if refused := _drawn_otherwise(agent, chosen, sampling):
                self.stop = self.stop or refused
                raise refused
            request = Request(
                agent=agent,
                messages=messages if isinstance(messages, Transcript) else tuple(messages),
                tools=tuple(tools),
                legal=legal,
                sampling=sampling,
                seed=stable_seed(*plan.id, agent, self.turn[agent], call),
                conversation="/".join(map(str, (*plan.id, agent, *([thread] if thread else [])))),
                turn=self.turn[agent],
                policy=chosen.name,
            )
            # its place: requests made side by side keep their order, whichever is answered first
            replies.append(None)
            if agent in self.recorded:
                return self._recall(agent, chosen, request, call)
            reply = _bounded(await self._fly(agent, chosen, request), plan.limits.max_said)
            replies[call] = reply
            if reply.finish == "context_overflow":
                # kept here too: a behaviour may catch errors or wrap them in a group
                self.cut = End.CONTEXT
                raise _Cut(End.CONTEXT)
            return reply

        return sample

    def _recall(self, agent: str, policy: Policy, request: Request, call: int) -> Reply:
        """What the record holds for this request; an engine that keeps conversations learns of
        it, so that its next prompt goes on from it."""
        if call >= len(self.recorded[agent]):
            raise ReplayError(
                f"agent {agent!r} asks its model more often than on record, so its play cannot be"
                " forked"
            )
        reply = self.recorded[agent][call]
        engine = policy.core
        if hasattr(engine, "recall"):
            engine.recall(request, reply)
        return reply

    async def take_over(self, turns: Sequence[Turn], branch: Branch) -> None:
        """Brings the behaviours to where the recorded ones stood, by letting them act again on
        recorded replies; then reseeds them."""
        views: dict[str, list[Message]] = {agent: [] for agent in self.players}
        reseeded = dict(branch.of.forks)
        for turn in turns:
            self._reseed(reseeded, turn.step)
            views[turn.agent] += turn.observed
            self.replies[turn.agent], self.recorded = [], {turn.agent: turn.replies}
            said = await self._act(
                turn.agent,
                Asked(
                    turn.observed, Transcript(views[turn.agent]), turn.legal, turn.tools, turn.step
                ),
            )
            if (
                read(said, Pending(turn.legal, turn.tools), self.plan.limits.max_said)
                != turn.action
            ):
                raise ReplayError(
                    f"agent {turn.agent!r}, step {turn.step}: its behaviour does not repeat what it"
                    " did, so its play cannot be forked"
                )
            views[turn.agent].append(spoken(turn.agent, turn.action))
            self.turn[turn.agent] += 1
        self.recorded = {}
        self._reseed({**reseeded, branch.step: branch.seed}, branch.step)

    def _reseed(self, forks: dict[int, str], step: int) -> None:
        for at in [at for at in forks if at <= step]:
            seed = forks.pop(at)
            for agent, rng in self.rngs.items():
                rng.seed(f"{seed}/{agent}")

    async def _fly(self, agent: str, policy: Policy, request: Request) -> Reply:
        """Awaits the engine. Of requests side by side, the gate counts each beyond the first as
        a coroutine of its own."""
        gate = GATE.get()
        if gate is not None and self.flying[agent]:
            gate.start()
        self.flying[agent] += 1
        try:
            return await policy.engine.sample(request)
        except (EndpointError, BudgetError) as error:
            self.stop = self.stop or error
            raise
        finally:
            self.flying[agent] -= 1
            if gate is not None and self.flying[agent]:
                gate.stop()

    async def act(self, game: Game) -> tuple[dict[str, Action | str], dict[str, tuple[Reply, ...]]]:
        """Awaits all pending agents together and gives their actions and model calls."""
        asked = {
            a: Asked(game.new(a), game.transcript(a), p.legal, p.tools, game.step)
            for a, p in game.pending.items()
        }
        for agent in asked:
            # a new list: what an abandoned request of an earlier turn still brings belongs to no
            # turn
            self.replies[agent] = []
        try:
            said = (
                {agent: await self._act(agent, one) for agent, one in asked.items()}
                if len(asked) == 1
                else await self._together(asked)
            )
        except Exception:
            if self.cut is None and self.stop is None:
                raise
        if self.stop is not None:
            raise self.stop
        if self.cut is not None:
            raise _Cut(self.cut)
        for agent in asked:
            self.turn[agent] += 1
        return said, {
            agent: tuple(reply for reply in self.replies[agent] if reply is not None)
            for agent in asked
        }

    async def _together(self, asked: Mapping[str, Asked]) -> dict[str, Action | str]:
        """All act at once. Waits for all even if one fails, so that which failure is told does
        not depend on timing."""
        gate, left = GATE.get(), len(asked)
        if gate is not None:
            gate.start(left - 1)

        # a callback, because a task that is cancelled before it starts runs no `finally`
        def ended(task: asyncio.Task[Action | str]) -> None:
            nonlocal left
            left -= 1
            if gate is not None and left:  # the last one goes on as the episode's own coroutine
                gate.stop()

        tasks = []
        for agent, one in asked.items():
            tasks.append(asyncio.ensure_future(self._act(agent, one)))
            tasks[-1].add_done_callback(ended)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        said = {}
        for agent, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            said[agent] = outcome
        return said

    async def _act(self, agent: str, asked: Asked) -> Action | str:
        try:
            return await self.players[agent].act(asked)
        except SystemExit as error:  # would end the whole run
            raise RuntimeError(
                f"agent {agent!r}: its behaviour raised SystemExit({error})"
            ) from error


def _check_limits(game: Game, limits: Limits, counted: _Counted) -> None:
    if game.over or limits is NO_LIMITS:
        return
    if limits.max_steps is not None and game.step >= limits.max_steps:
        raise _Cut(End.MAX_STEPS)
    if limits.max_turns is not None and len(game.turns) >= limits.max_turns:
        raise _Cut(End.MAX_TURNS)
    if limits.max_tokens is not None and counted.tokens(game) >= limits.max_tokens:
        raise _Cut(End.MAX_TOKENS)


class _Counted:
    """Tokens sampled so far in a play, by count of ids or else by the server's word; each turn
    is looked at once."""

    def __init__(self) -> None:
        self._turns = self._tokens = 0

    def tokens(self, game: Game) -> int:
        for turn in game.turns[self._turns :]:
            self._tokens += sum(
                len(r.token_ids) or r.usage.completion_tokens or 0 for r in turn.replies
            )
        self._turns = len(game.turns)
        return self._tokens


def _bounded(reply: Reply, max_said: int | None) -> Reply:
    """The reply with what the record keeps of it, thinking included; a server may send 32 MB."""
    limit = None if max_said is None else max_said * REPLY_TIMES
    text, calls, cut = bounded(reply.text, reply.tool_calls, limit)
    reasoning, _, more = bounded(reply.reasoning, (), limit)
    return (
        replace(reply, text=text, tool_calls=calls, reasoning=reasoning, cut=cut + more)
        if cut or more
        else reply
    )


def _only_silent(game: Game, policies: Mapping[str, Policy]) -> str:
    """A policy that gave nothing but empty replies, where its engine takes that for a failure of
    the server; "" where there is none."""
    spoke: dict[str, bool] = {}
    for turn in game.turns:
        for reply in turn.replies:
            spoke[reply.policy] = spoke.get(reply.policy, False) or not reply.silent
    silent = (name for name, said in spoke.items() if not said and name in policies)
    return next(
        (name for name in silent if getattr(policies[name].core, "silence_fails", False)), ""
    )


def _close(game: Game, error: str | None, end: End) -> tuple[str | None, End]:
    try:
        game.close()
    except ScenarioError as caught:
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


def _forget(policies: Mapping[str, Policy]) -> None:
    for policy in policies.values():
        engine = policy.core
        if hasattr(engine, "forget"):
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
    composition does not depend on timing. Engines forget before what they have kept: a cached
    beginning differs from a computed one by rounding, so a resumed run must begin as the
    unbroken did; and after, since the update wants the memory. Closing the iterator cancels what
    still runs and closes those plays.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1; got {concurrency}")
    queue: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()
    waiting = iter(plans)
    gate = Gate() if deterministic else None
    if deterministic:
        _forget(policies or {})

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
        if gate is not None:
            gate.close()
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        if deterministic:
            _forget(policies or {})
