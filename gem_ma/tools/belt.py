"""Tools for any agent of any scenario: a scenario around a scenario.

An agent that is asked may call its tools first. What comes of a call is shown to it alone and it
is asked again; the rules behind see nothing but its last word. A tool runs in a `Call`, so a
replay never repeats it, and a tool with a state rebuilds it when a fork goes on.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Protocol

from gem_ma.kernel.effects import Ask, Call, Effect, Play, Reward, Scenario
from gem_ma.kernel.episode import Episode, Limits
from gem_ma.kernel.errors import CallError, ConfigError
from gem_ma.kernel.types import Action, Malformed, Message, Tool, ToolCall
from gem_ma.wrappers.around import Around, relay, without


class Use:
    """One agent's tool in one play. `plan` gets every call, those of a replay too. `run` is called
    only where a call really runs, and first catches up with the calls that were planned before.
    `is_last`: no call may come after the one that was planned last."""

    is_last = False

    def plan(self, name: str, arguments: Mapping[str, Any]) -> None:
        """The agent calls the tool of this name."""
        raise NotImplementedError

    def run(self) -> Any:
        """What the call planned last comes to, a JSON value; it may raise."""
        raise NotImplementedError

    def text_of(self, result: Any) -> str:
        """The result as the agent sees it; None where the call failed. A pure function of what
        was planned and of earlier results."""
        return "" if result is None else str(result)

    def close(self) -> None:
        """The play is over."""


class Holds(Protocol):
    """A session that holds a process. `busy` is locked while it works: none is taken from it
    then."""

    busy: threading.Lock

    def release(self) -> None: ...


class Holders:
    """The sessions that hold a process. Above `most` the oldest one that is idle gives its own up,
    and is built again when it is needed."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: list[Holds] = []
        self._lock = threading.Lock()

    def enter(self, session: Holds) -> None:
        with self._lock:
            self._held.append(session)
            others = self._held[:-1] if len(self._held) > self.most else []
        for other in others:
            if other.busy.acquire(blocking=False):
                try:
                    other.release()
                finally:
                    other.busy.release()
                return

    def leave(self, session: Holds) -> None:
        with self._lock, suppress(ValueError):
            self._held.remove(session)


class Equipment:
    """What an agent is given: tools of one kind, with what they share."""

    tools: tuple[Tool, ...] = ()
    uses: int = 5  # calls in a play
    reward: float = 0.0  # paid for each of them

    def open(self) -> Use:
        """For one agent in one play. Starts nothing: most plays are replays, or never call."""
        raise NotImplementedError

    def texts(self) -> Iterable[str]:
        """What its results are made of, where that is known: words for a tokenizer."""
        return ()


@dataclass
class Hand:
    """What an agent holds in a play."""

    equipment: Sequence[Equipment]
    opened: dict[int, Use] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)

    def offered(self) -> dict[str, int]:
        """Name of a tool -> its equipment, of those that may still be called."""
        return {
            tool.name: index
            for index, equipment in enumerate(self.equipment)
            if self.used.get(index, 0) < equipment.uses
            for tool in equipment.tools
        }

    @property
    def tools(self) -> tuple[Tool, ...]:
        names = self.offered()
        return tuple(t for equipment in self.equipment for t in equipment.tools if t.name in names)

    def take(self, index: int) -> Use:
        """Counts a call."""
        self.used[index] = self.used.get(index, 0) + 1
        if index not in self.opened:
            self.opened[index] = self.equipment[index].open()
        return self.opened[index]


class WithTools(Around):
    """A scenario whose agents have tools."""

    def __init__(self, inner: Scenario, equipment: Mapping[str, Sequence[Equipment]]) -> None:
        super().__init__(inner)
        self.equipment = dict(equipment)
        everything = [each for several in equipment.values() for each in several]
        paid = [each for each in everything if each.reward]
        self.paid_calls = {f"tool: {tool.name}" for each in paid for tool in each.tools}
        if paid:
            self.pays_otherwise()
        # a call is a decision point more, for it and for the limits of the world
        calls = sum(max(0, each.uses) for each in everything)
        if inner.ends_within is not None:
            self.ends_within = inner.ends_within + calls
        if isinstance(inner.limits, Limits) and inner.limits.max_steps is not None:
            self.limits = replace(inner.limits, max_steps=inner.limits.max_steps + calls)

    def play(self, rng: random.Random, task: Any) -> Play:
        hands = {agent: Hand(several) for agent, several in self.equipment.items()}

        def handled(effect: Effect) -> Generator[Any, Any, Any]:
            if isinstance(effect, Ask):
                return (yield from _asked(effect, hands))
            return (yield effect)

        try:
            yield from relay(self.played(rng, task), handled)
        finally:
            for use in (use for hand in hands.values() for use in hand.opened.values()):
                use.close()

    def as_ruled(self, episode: Episode) -> Episode:
        calls = []
        for turn in episode.turns:
            names = {tool.name for tool in turn.tools}
            hand = Hand(self.equipment.get(turn.agent, ()))
            offered = {name: at for name, at in hand.offered().items() if name in names}
            if _is_call(turn.action, offered, names - offered.keys()):
                calls.append(turn)
        return without(super().as_ruled(episode), calls)


def _asked(ask: Ask, hands: Mapping[str, Hand]) -> Generator[Any, Any, Any]:
    """Asks until each agent has said a last word; gives those words."""
    legal = ask.legal if isinstance(ask.legal, Mapping) else dict.fromkeys(ask.to, ask.legal)
    tools = ask.tools if isinstance(ask.tools, Mapping) else dict.fromkeys(ask.to, ask.tools)
    if not any(agent in hands and hands[agent].offered() for agent in ask.to):
        return (yield ask)
    waiting: Mapping[str, Any] = ask.to
    words: dict[str, Action] = {}
    while waiting:
        offered = {
            agent: (*(tools.get(agent) or ()), *(hands[agent].tools if agent in hands else ()))
            for agent in waiting
        }
        for agent, several in offered.items():
            names = [tool.name for tool in several]
            # whose a call is could not be said
            if twice := {name for name in names if names.count(name) > 1}:
                raise ConfigError(f"agents.{agent}.tools: two tools are called {min(twice)}")
        choices = {agent: legal.get(agent) for agent in waiting}
        actions = yield Ask(waiting, choices, offered, ask.reveals)
        again = {}
        for agent, action in actions.items():
            theirs = {tool.name for tool in tools.get(agent) or ()}
            if agent in hands and _is_call(action, hands[agent].offered(), theirs):
                again[agent] = yield from _called(agent, action, hands[agent], theirs)
            else:
                words[agent] = action
        waiting = again
    return {agent: words[agent] for agent in ask.to}


def _is_call(action: Action, offered: Mapping[str, int], theirs: set[str]) -> bool:
    """Whether an action is for the tools: it calls one of them, or nothing that the rules
    behind would know."""
    names = {call.name for call in action.tool_calls if isinstance(call, ToolCall)}
    return bool(offered) and bool(names & offered.keys() or (action.tool_calls and not theirs))


def _called(agent: str, action: Action, hand: Hand, theirs: set[str]) -> Generator[Any, Any, Any]:
    """Runs the calls of an action, one after another; gives what the agent is shown of them."""
    results: list[Message] = []
    names = {call.name for call in action.tool_calls if isinstance(call, ToolCall)}
    is_idle = names.isdisjoint(hand.offered())
    for call in action.tool_calls:
        offered = hand.offered()
        if isinstance(call, Malformed):
            # counted: whoever cannot write a call may not ask for ever
            hand.take(next(iter(offered.values()), 0))
            results.append(Message(f"Error: this is not a call of a tool: {call.reason}"))
            continue
        if call.name not in offered:
            known = {tool.name for equipment in hand.equipment for tool in equipment.tools}
            why = "call it alone" if call.name in theirs else "no tool is called so"
            why = "no use of it is left" if call.name in known else why
            # an action that calls nothing costs a use, or it would be repeated for ever
            if offered and (is_idle or call.name not in known):
                hand.take(next(iter(offered.values())))
            results.append(Message.tool(call.id, f"Error: {call.name} was not called: {why}"))
            continue
        index = offered[call.name]
        use = hand.take(index)
        use.plan(call.name, call.arguments)
        use.is_last = index not in hand.offered().values()
        try:
            text = use.text_of((yield Call(use.run)))
        except CallError as error:
            text = use.text_of(None) or f"Error: {error}"
        results.append(Message.tool(call.id, text))
        if reward := hand.equipment[index].reward:
            yield Reward({agent: reward}, why=f"tool: {call.name}", original={agent: 0.0})
    return tuple(results)


# The tools that a config names, by agent; each kind is imported when it is named.

KINDS = {
    "python": "gem_ma.tools.python:Python",
    "shell": "gem_ma.tools.shell:Shell",
    "search": "gem_ma.tools.search:Search",
    "mcp": "gem_ma.tools.mcp:Mcp",
}


def equipped(
    scenario: Scenario, named: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]]
) -> Scenario:
    """The scenario in which these agents have these tools; itself where there are none. Raises
    ConfigError, which begins with a key, for a tool that cannot be had."""
    equipment = {
        agent: [_made(f"agents.{agent}.tools[{index}]", *tool) for index, tool in enumerate(tools)]
        for agent, tools in named.items()
        if tools
    }
    for agent, several in equipment.items():
        names = [tool.name for each in several for tool in each.tools]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"agents.{agent}.tools: two tools are called {sorted(twice)[0]}")
    return WithTools(scenario, equipment) if equipment else scenario


def _made(key: str, kind: str, options: Mapping[str, Any]) -> Equipment:
    module, _, name = KINDS[kind].partition(":")
    try:
        made: Equipment = getattr(import_module(module), name)(**options)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
    return made
