"""Another try for an answer that is none of the legal ones, before the rules see it."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gem_ma.kernel.effects import Ask, Effect, Play, Reward, Scenario
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action, Malformed, ToolCall
from gem_ma.wrappers.around import Around, TimeLimit, layers_of, relay, without

AGAIN = "That is none of the choices. Choose one of: {choices}"
UNREADABLE = "That call could not be read: {why}. Write it again."
LISTED = 40  # choices that are listed again


class Retry(Around):
    """Who answers with none of the legal strings, or with a call that cannot be read, is told so
    and asked again, at most `times` times; the last answer goes to the rules as it is.

    Each retry is paid -`penalty`, and is a decision point. Others who were asked at the same
    moment are neither told nor asked again.
    """

    def __init__(self, inner: Scenario, times: int = 1, penalty: float = 0.0) -> None:
        if type(times) is not int or times < 1:
            raise ConfigError(f"retry: times is 1 or more; got {times!r}")
        if isinstance(penalty, bool) or not isinstance(penalty, (int, float)) or penalty < 0:
            raise ConfigError(f"retry: penalty is 0 or more, and is taken off; got {penalty!r}")
        for layer in layers_of(inner):
            if isinstance(layer, TimeLimit):
                raise ConfigError(
                    "retry stands around time_limit, which would count its retries: write"
                    " time_limit behind retry"
                )
            if isinstance(layer, Retry):
                raise ConfigError("retry stands around retry: write one, with more times")
        super().__init__(inner)
        self.times = times
        self.penalty = float(penalty)
        if inner.ends_within is not None:
            self.ends_within = inner.ends_within * (1 + times)
        if penalty:
            self.pays_otherwise()

    def play(self, rng: random.Random, task: Any) -> Play:
        return relay(self.played(rng, task), self._handled)

    def _handled(self, effect: Effect) -> Generator[Any, Any, Any]:
        actions = yield effect
        if not isinstance(effect, Ask):
            return actions
        legal = by_agent(effect.legal, effect.to)
        tools = by_agent(effect.tools, effect.to)
        for _ in range(self.times):
            faults = {
                agent: why
                for agent in effect.to
                if (why := fault(actions[agent], legal.get(agent), tools.get(agent)))
            }
            if not faults:
                break
            if self.penalty:
                costs = dict.fromkeys(faults, -self.penalty)
                yield Reward(costs, why="wrapper: retry", original=dict.fromkeys(faults, 0.0))
            # of these agents alone: what another one may choose is not theirs to see
            again = yield Ask(
                faults,
                {agent: legal.get(agent) for agent in faults},
                {agent: tools.get(agent) or () for agent in faults},
            )
            actions = {**actions, **again}
        return actions

    def as_ruled(self, episode: Episode) -> Episode:
        tries = []
        for agent in episode.cast:
            for turn, after in pairwise(turn for turn in episode.turns if turn.agent == agent):
                why = fault(turn.action, turn.legal, turn.tools)
                if why and any(message.text == why for message in after.observed):
                    tries.append(turn)
        return without(super().as_ruled(episode), tries)


def by_agent(value: Any, agents: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an Ask says once for all, or by agent, by agent."""
    return value if isinstance(value, Mapping) else dict.fromkeys(agents, value)


def fault(action: Action, legal: Sequence[str] | None, tools: Sequence[Any] | None) -> str:
    """What an agent is told that must try again; "" for an answer that the rules can read."""
    calls = action.tool_calls
    called = {call.name for call in calls if isinstance(call, ToolCall)}
    # beside a choice a call stands for a move only where its tool is there
    known = called if legal is None else called & {tool.name for tool in tools or ()}
    if known or action.parsed is not None:
        return ""
    if legal is not None:
        more = " ..." if len(legal) > LISTED else ""
        return AGAIN.format(choices=", ".join(list(legal)[:LISTED]) + more)
    broken = [call.reason for call in calls if isinstance(call, Malformed)]
    return UNREADABLE.format(why=broken[0]) if broken and tools else ""
