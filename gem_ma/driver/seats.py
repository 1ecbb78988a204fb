"""The seats of one play: the behaviour in each, what it samples from, what its model is shown of a
long play, and the model calls of the running turn.

A memory stands between a behaviour and its model: a window of the last messages, with a summary of
those before it where that is wanted. The record stays whole, the behaviour keeps its own view, and
the prompt that the model got is what a learner trains on. A window that moves shortens the front of
a prompt, so each turn is a token row of its own (`restarts`).

It knows behaviours, policies and requests; rules and rewards it does not. `gem_ma.driver.rollout`
plays.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

from gem_ma.driver.behaviour import (
    Behaviour,
    Sample,
    act_of,
    as_factory,
    is_privileged,
    no_policy,
    seat,
    waits,
)
from gem_ma.driver.limits import Cut, bounded_reply, drawn_otherwise
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.engines.batching import GATE
from gem_ma.engines.capabilities import Remembers
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import BudgetError, ConfigError, EndpointError, ReplayError
from gem_ma.kernel.parsing.reasoning import without_thought
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import SYSTEM, TOOL, Action, Asked, Message, Reply, Request, Sampling, Tool
from gem_ma.kernel.views import Transcript
from gem_ma.registry import load, names_code

SUMMARY = "memory.summary"  # what the policy is called by that writes the summary
ORDER = (
    "You keep the memory of a player. Write in a few sentences what the player must still know:"
    " facts, promises, what was tried and what came of it. Write nothing else."
)
HEAD = "What happened before, in short: "


@dataclass(frozen=True, slots=True)
class Memory:
    """The last `window` messages, or the last `turns` turns of the agent, and the first `first`
    messages of all (a briefing). `summary`: a policy, or a function `f(messages) -> str` by its
    name, that says in short what falls out between them."""

    window: int | None = None
    turns: int | None = None
    first: int = 1
    summary: str | None = None

    @classmethod
    def of(cls, agent: str, settings: Mapping[str, Any]) -> Memory:
        """The memory of a seat. Raises ConfigError for what is none."""
        where = f"agent {agent!r}: memory"
        names = [field.name for field in fields(cls)]
        for name in settings:
            if name not in names:
                raise ConfigError(f"{where} has no {name!r}; it has {', '.join(names)}")
        memory = cls(**settings)
        if (memory.window is None) == (memory.turns is None):
            raise ConfigError(f"{where} is either {{window: messages}} or {{turns: turns}}")
        for name, least in (("window", 1), ("turns", 0), ("first", 0)):
            value = getattr(memory, name)
            if value is not None and (type(value) is not int or value < least):
                raise ConfigError(f"{where}: {name} is at least {least}; got {value!r}")
        return memory

    @property
    def policy(self) -> str | None:
        """The policy that writes the summary; None where a function does, or nobody."""
        return summarist({"summary": self.summary})

    def cut(self, agent: str, messages: Sequence[Message]) -> tuple[int, int]:
        """(messages that stay at the beginning, index of the first one of the window)."""
        first = min(self.first, len(messages))
        start = 0
        if self.window is not None:
            start = len(messages) - self.window
        else:
            turns = [place for place, each in enumerate(messages) if each.sender == agent]
            if len(turns) > (self.turns or 0):
                start = turns[-1 - (self.turns or 0)] + 1
        # a result of a tool without its call is refused by chat templates and by servers
        while first < start and messages[first].sender == TOOL:
            first += 1
        while first < start and messages[start].sender == TOOL:
            start -= 1
        # templates want somebody else to speak first, and a briefing is nobody
        if all(each.sender == SYSTEM for each in messages[:first]):
            while (
                first < start < len(messages) - 1
                and messages[start].sender == agent
                and messages[start + 1].sender != TOOL
            ):
                start += 1
        return first, max(first, start)

    def window_of(self, agent: str, messages: Sequence[Message]) -> tuple[Message, ...]:
        """These messages as the agent's model is shown them, less any summary."""
        first, start = self.cut(agent, messages)
        return (*messages[:first], *messages[start:])


def summarist(settings: Mapping[str, Any]) -> str | None:
    """The policy that writes the summary of such a memory; None where none does."""
    summary = settings.get("summary")
    return None if not isinstance(summary, str) or names_code(summary) else summary


def policies_of(seat: Seat) -> set[str]:
    """The policies that a seat samples from, that of its memory included."""
    names = (seat.policy, summarist(seat.memory), *seat.policies.values())
    return {name for name in names if name is not None}


def remembered(seat: Seat, agent: str, messages: Sequence[Message]) -> Sequence[Message]:
    """What the model in this seat is shown of a recorded view, less any summary."""
    if not seat.memory:
        return messages
    return Memory.of(agent, seat.memory).window_of(agent, messages)


class Remembering:
    """The `sample` of a seat with a memory: shortens each prompt. Keeps the summary of each
    thread, and what it is a summary of."""

    def __init__(self, agent: str, memory: Memory, sample: Sample) -> None:
        self._agent = agent
        self._memory = memory
        self._sample = sample
        self._rule: Callable[[Sequence[Message]], str] | None = None
        if memory.summary is not None and memory.policy is None:
            self._rule = load("agents", memory.summary)
        self._folded: dict[str, tuple[tuple[Message, ...], str]] = {}

    async def __call__(self, messages: Sequence[Message], *, thread: str = "", **how: Any) -> Reply:
        whole = tuple(messages)
        if self._memory.summary is None:
            return await self._sample(
                self._memory.window_of(self._agent, whole), thread=thread, **how
            )
        first, start = self._memory.cut(self._agent, whole)
        old, text = await self._summary(whole[first:start], thread)
        # what is folded in already is never shown beside its summary
        rest = whole[first + len(old) :]
        short = (Message(HEAD + text),) if text else ()
        return await self._sample((*whole[:first], *short, *rest), thread=thread, **how)

    async def _summary(
        self, old: tuple[Message, ...], thread: str
    ) -> tuple[tuple[Message, ...], str]:
        """The messages that are folded in, of those before the window, and their summary."""
        if self._rule is not None:
            return old, self._checked_text(self._rule(old)) if old else ""
        folded, text = self._folded.get(thread, ((), ""))
        if old[: len(folded)] != folded:
            # another conversation under the same name
            folded = ()
            text = ""
        new = old[len(folded) :]
        # a call for each message would cost more than the window saves, so some gather first; and
        # between two summaries the prompt only grows, as one token row
        if len(new) >= max(2, (self._memory.window or 2 * (self._memory.turns or 0)) // 2):
            lines = "\n".join(f"{message.sender}: {_text(message)}" for message in new)
            before = f"The memory so far:\n{text}\n\n" if text else ""
            prompt = (
                Message.system(ORDER),
                Message(f"{before}The player is {self._agent}. What followed:\n{lines}"),
            )
            # a thread of its own: it is not part of the conversation that the agent has
            reply = await self._sample(prompt, thread=f"{thread}/summary", policy=SUMMARY)
            # a model that thought until its room was full has said nothing: the messages stay
            if said := reply.text.strip():
                folded = old
                text = said
                self._folded[thread] = (folded, text)
        return folded, text

    def _checked_text(self, text: Any) -> str:
        if not isinstance(text, str):
            raise ConfigError(
                f"agent {self._agent!r}: memory.summary: {self._memory.summary} gives a text; got"
                f" {type(text).__name__}"
            )
        return text


def _text(message: Message) -> str:
    calls = "".join(f" {call!r}" for call in message.tool_calls)
    return f"{message.text}{calls}"


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
        behaviours: Mapping[str, Any],
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
            factory = as_factory(behaviours.get(agent, taken.behaviour))
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
        for name in sorted(policies_of(taken)):
            if name not in policies:
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
