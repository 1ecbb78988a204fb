"""The seats of one play: the behaviour in each, what it samples from, and the model calls of the
running turn.

It knows behaviours, policies and requests; rules and rewards it does not. `gem_ma.driver.rollout`
plays.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

from gem_ma.driver.behaviour import (
    Behaviour,
    Factory,
    Sample,
    act_of,
    as_factory,
    is_privileged,
    no_policy,
    seat,
    waits,
)
from gem_ma.driver.limits import Cut, bounded_reply, drawn_otherwise
from gem_ma.driver.memory import SUMMARY, Memory, Remembering
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.engines.batching import GATE
from gem_ma.engines.capabilities import Remembers
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import BudgetError, ConfigError, EndpointError, ReplayError
from gem_ma.kernel.parsing.reasoning import without_thought
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action, Asked, Message, Reply, Request, Sampling, Tool
from gem_ma.kernel.views import Transcript

# Behaviours that are told when a play begins and ends, such as an external program.

Player = TypeVar("Player")


@runtime_checkable
class HearsPlay(Protocol):
    """A behaviour that is told how the policy of its seat samples, None where it has none; and how
    its play ended, whatever ended it but a cancelled run."""

    def hear_begin(self, sampling: Sampling | None) -> None: ...
    def hear_end(self, episode: Episode) -> None: ...


def hears(player: object) -> TypeGuard[HearsPlay]:
    """Whether a behaviour is told of its play."""
    # The name first: most behaviours lack it, and for them `isinstance` of a protocol takes 40 us
    # in Python 3.11, twice a seat and play, which is a tenth of a short play.
    return hasattr(player, "hear_end") and isinstance(player, HearsPlay)


def begun(player: Player, policy: Policy | None) -> Player:
    """The player of a seat, told how its policy samples."""
    if hears(player):
        player.hear_begin(None if policy is None else policy.sampling)
    return player


def ended(players: Iterable[object], episode: Episode) -> Episode:
    """The episode, told to those of its players that want to know it."""
    for player in players:
        if hears(player):
            player.hear_end(episode)
    return episode


# What the agents of one step do, side by side.

Result = TypeVar("Result")


async def together(acts: Mapping[str, Coroutine[Any, Any, Result]]) -> dict[str, Result]:
    """All act at once; gives what each came to. Waits for all even if one fails, so that which
    failure is raised does not depend on timing."""
    gate = GATE.get()
    running = len(acts)
    if gate is not None:
        gate.start(running - 1)

    # a callback, because a task that is cancelled before it starts runs no `finally`
    def ended(task: asyncio.Task[Result]) -> None:
        nonlocal running
        running -= 1
        if gate is not None and running:  # the last one goes on as the episode's own coroutine
            gate.stop()

    tasks = []
    for act in acts.values():
        tasks.append(asyncio.ensure_future(act))
        tasks[-1].add_done_callback(ended)
    # return_exceptions: a task left running would sample for a turn that is over
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    results = {}
    for agent, outcome in zip(acts, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            raise outcome
        results[agent] = outcome
    return results


class Seats:
    """The seats of one play and the model calls of the running turn."""

    def __init__(
        self,
        scenario: Scenario,
        cast: Mapping[str, Seat],
        policies: Mapping[str, Policy],
        behaviours: Mapping[str, Factory],
        *,
        task: Any,
        id_: tuple[str, int, int],
        first: int,
        max_said: int | None,
        alone: str | None = None,
    ) -> None:
        """`id_` is the episode's; `first` the repeat that its behaviours draw for, which differs
        from the episode's own in a branch. `max_said`: as in Limits. `alone`: the only agent whose
        behaviour is made."""
        agents = scenario.agents
        unknown = sorted(set(cast) - set(agents))
        empty = [agent for agent in agents if agent not in cast]
        if unknown or empty:
            raise ConfigError(
                f"{scenario.id}: its agents are {', '.join(agents)}; not in it: {unknown},"
                f" without a seat: {empty}"
            )
        self.max_said = max_said
        self._id = id_
        self.cast: dict[str, Seat] = {}
        self.players: dict[str, Behaviour] = {}
        self.rngs: dict[str, random.Random] = {}
        self._waiting: set[str] = set()  # agents whose behaviour may wait for something
        self._turns = dict.fromkeys(agents, 0)  # that each agent has ended
        # of the running turn, by order of request
        self._replies: dict[str, list[Reply | None]] = {agent: [] for agent in agents}
        self._flying = dict.fromkeys(agents, 0)  # requests without a reply
        self._recorded: dict[str, tuple[Reply, ...]] = {}  # of the turn that is taken over
        # what agents have done already at the first step of a branch
        self.kept: dict[str, tuple[Action, tuple[Reply, ...]]] = {}
        # Both are kept apart from what is raised: a behaviour may catch errors, or wrap them in a
        # group.
        self._cut: End | None = None
        self._stop: ConfigError | EndpointError | BudgetError | None = None
        for agent, taken in cast.items():
            if alone not in (None, agent):
                continue
            factory = behaviours.get(agent) or as_factory(taken.behaviour)
            if waits(factory):
                self._waiting.add(agent)
            sample = self._sample_of(agent, taken, policies)
            rng = random.Random(f"{id_[0]}/{id_[1]}/{first}/{agent}")
            self.rngs[agent] = rng
            privileged = is_privileged(factory)
            if privileged != taken.privileged:
                taken = replace(taken, privileged=privileged)
            self.cast[agent] = taken
            player = seat(factory, agent, sample, rng, task, **taken.options)
            self.players[agent] = begun(player, policies.get(taken.policy or ""))

    def _sample_of(self, agent: str, taken: Seat, policies: Mapping[str, Policy]) -> Sample:
        """The `sample` of a seat. Raises ConfigError for a policy that is not there."""
        memory = Memory.of(agent, taken.memory) if taken.memory else None
        writer = memory.policy if memory is not None else None
        for name in (taken.policy, writer, *taken.policies.values()):
            if name is not None and name not in policies:
                raise ConfigError(
                    f"agent {agent!r}: no policy is called {name!r}; policies are"
                    f" {', '.join(policies) or 'none'}"
                )
        further = {key: policies[name] for key, name in taken.policies.items()}
        if not taken.policy:
            return no_policy(agent)
        if writer is not None:
            further[SUMMARY] = policies[writer]
        sample = self._sampler(agent, policies[taken.policy], further)
        return sample if memory is None else Remembering(agent, memory, sample)

    # -- acting -----------------------------------------------------------------------------------

    async def act(self, game: Game) -> tuple[dict[str, Action | str], dict[str, tuple[Reply, ...]]]:
        """Awaits all pending agents together and gives their actions and model calls."""
        asked = {}
        open_ = game.pending
        kept = self.kept
        if kept:
            open_ = {agent: pending for agent, pending in open_.items() if agent not in kept}
            self.kept = {}
        for agent, pending in open_.items():
            turns = game.turns if self.cast[agent].privileged else ()
            asked[agent] = Asked(
                game.new(agent),
                game.transcript(agent),
                pending.legal,
                pending.tools,
                game.step,
                turns,
            )
            # a new list: late replies to requests abandoned in an earlier turn go nowhere
            self._replies[agent] = []
        try:
            actions = await self._actions(asked)
        except Exception:
            if self._cut is None and self._stop is None:
                raise
        if self._stop is not None:
            raise self._stop
        if self._cut is not None:
            raise Cut(self._cut)
        replies = {}
        for agent in asked:
            self._turns[agent] += 1
            # a request that was abandoned has a place and no reply
            replies[agent] = tuple(reply for reply in self._replies[agent] if reply is not None)
        for agent, (action, said) in kept.items():
            actions[agent] = action
            replies[agent] = said
        return actions, replies

    async def _actions(self, asked: Mapping[str, Asked]) -> dict[str, Action | str]:
        """What each comes to, in the order of the Ask. A task costs more than all else of a turn,
        so one alone has none, and neither has a behaviour that never waits."""
        if len(asked) == 1 or self._waiting.isdisjoint(asked):
            return {agent: await self._act(agent, request) for agent, request in asked.items()}
        acts = {agent: self._act(agent, request) for agent, request in asked.items()}
        return await together(acts)

    async def repeat(self, agent: str, asked: Asked, replies: tuple[Reply, ...]) -> Action | str:
        """Lets an agent act once more on the replies of a recorded turn."""
        self._replies[agent], self._recorded = [], {agent: replies}
        try:
            return await self._act(agent, asked)
        finally:
            self._recorded = {}
            self._turns[agent] += 1

    async def _act(self, agent: str, asked: Asked) -> Action | str:
        try:
            return await act_of(self.players[agent], asked)
        except SystemExit as error:  # would end the whole run
            raise RuntimeError(
                f"agent {agent!r}: its behaviour raised SystemExit({error})"
            ) from error

    # -- sampling ---------------------------------------------------------------------------------

    def _sampler(self, agent: str, main: Policy, further: Mapping[str, Policy]) -> Sample:
        """What the behaviour of this seat calls its model by."""

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
            replies = self._replies[agent]
            call = len(replies)
            sampling = replace(chosen.sampling, **options) if options else chosen.sampling
            # also raised again by `act`, where the behaviour swallows it
            if refused := drawn_otherwise(agent, chosen, sampling):
                self._stop = self._stop or refused
                raise refused
            id_ = self._id
            request = Request(
                agent=agent,
                messages=messages if isinstance(messages, Transcript) else tuple(messages),
                tools=tuple(tools),
                legal=legal,
                sampling=sampling,
                seed=stable_seed(*id_, agent, self._turns[agent], call),
                conversation="/".join(map(str, (*id_, agent, *([thread] if thread else [])))),
                turn=self._turns[agent],
                policy=chosen.name,
            )
            # its place: requests made side by side keep their order, whichever is answered first
            replies.append(None)
            if agent in self._recorded:
                return self._recall(agent, chosen, request, call)
            reply = without_thought(await self._fly(agent, chosen, request))
            replies[call] = reply = bounded_reply(reply, self.max_said)
            if reply.finish == "context_overflow":
                self._cut = End.CONTEXT
                raise Cut(End.CONTEXT)
            return reply

        return sample

    def _recall(self, agent: str, policy: Policy, request: Request, call: int) -> Reply:
        """What the record holds for this request; an engine that keeps conversations learns of
        it, so that its next prompt goes on from it."""
        if call >= len(self._recorded[agent]):
            raise ReplayError(
                f"agent {agent!r} asks its model more often than on record, so its play cannot be"
                " forked"
            )
        reply = self._recorded[agent][call]
        # the core: what wraps it for batching keeps nothing of a conversation
        engine = policy.core
        if isinstance(engine, Remembers):
            engine.recall(request, reply)
        return without_thought(reply)

    async def _fly(self, agent: str, policy: Policy, request: Request) -> Reply:
        """Awaits the engine. Of requests side by side, the gate counts each beyond the first as
        a coroutine of its own."""
        # a context variable, since an engine call may be made by any task of the behaviour
        gate = GATE.get()
        if gate is not None and self._flying[agent]:
            gate.start()
        self._flying[agent] += 1
        try:
            return await policy.engine.sample(request)
        except (EndpointError, BudgetError) as error:
            self._stop = self._stop or error
            raise
        finally:
            self._flying[agent] -= 1
            if gate is not None and self._flying[agent]:
                gate.stop()
