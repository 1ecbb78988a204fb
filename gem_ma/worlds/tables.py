"""A table of PettingZoo, the same for both of its kinds: AEC, which is asked agent by agent, and
Parallel, which is asked at once.

Agents are called by the text of what the environment calls them, which may be a number or a tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.worlds.results import RESET, STEP, amount, noted, parts

ALL = "__all__"  # some environments say with this key that the play is over


@dataclass(slots=True)
class Table:
    """An environment, what it shows and allows now, and what was paid on the way here. `ids`: what
    the environment calls each agent."""

    env: Any
    ids: Mapping[str, Any]
    observations: dict[str, Any] = field(default_factory=dict)
    infos: Mapping[str, Any] = field(default_factory=dict)
    paid: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    out: set[str] = field(default_factory=set)  # who ended, though it may still be listed
    cut: dict[str, Any] = field(default_factory=dict)  # who was truncated here -> what it saw then
    gone: set[str] = field(default_factory=set)  # who has ended or been truncated once

    @property
    def turn_based(self) -> bool:
        return hasattr(self.env, "observe")  # of AEC alone

    @property
    def asked(self) -> Sequence[str]:
        """Who must act; nobody where the play is over. Raises ValueError where the environment asks
        somebody who does not play."""
        env = self.env
        names = [str(agent) for agent in env.agents]
        if strangers := [name for name in names if name not in self.ids]:
            raise ValueError(f"agent {strangers[0]!r} is none of possible_agents")
        left = [name for name in names if name not in self.out]
        if not self.turn_based or not left:
            return left
        if (turn := str(env.agent_selection)) not in left:
            raise ValueError(f"agent_selection is {turn!r}, who is out; {', '.join(left)} play on")
        return [turn]

    def space(self, name: str) -> Any:
        return self.env.action_space(self.ids[name])

    def seen(self, name: str) -> Any:
        """What an agent who has to act is shown."""
        if name not in self.observations:
            raise ValueError(f"agent {name!r} has to act, and got no observation")
        return self.observations[name]

    def begin(self, seed: int) -> None:
        first = self.env.reset(seed=seed)
        if self.turn_based:
            self._wait()
        else:
            seen, infos = parts(first, RESET, "reset")
            self.observations = _named(seen, "observations")
            self.infos = _named(noted(infos), "infos")

    def go(self, move: Mapping[str, Any]) -> None:
        """Steps by the actions of all who were asked."""
        self.steps += 1
        self.cut = {}
        if self.turn_based:
            (action,) = move.values()
            self.env.step(action)
            paid = _named(self.env.rewards, "rewards")
            self._wait()
        else:
            result = self.env.step({self.ids[name]: action for name, action in move.items()})
            seen, paid, ends, cuts, infos = parts(result, STEP, "step")
            self.observations = _named(seen, "observations")
            paid = _named(paid, "rewards")
            self.infos = _named(noted(infos), "infos")
            self._note(_named(ends, "terminations"), _named(cuts, "truncations"))
        if strangers := paid.keys() - self.ids.keys():
            raise ValueError(f"a reward for {min(strangers)!r}, who is none of possible_agents")
        amounts = {name: amount(value) for name, value in paid.items()}
        self.paid = {name: value for name, value in amounts.items() if value}

    def _note(self, ends: Mapping[str, Any], cuts: Mapping[str, Any]) -> None:
        """Who is out by these. An environment may leave its agents listed; who was dropped from
        its list, and stands there again later, plays again."""
        over, cut = ({*self.ids} if which.get(ALL) else _true(which) for which in (ends, cuts))
        for name in self.ids if self.steps else ():  # in their order
            if name in cut - over - self.out - self.gone:
                self.cut[name] = self._last(name)
        self.gone |= over | cut
        self.out |= over | cut
        self.out &= {str(agent) for agent in self.env.agents}

    def _last(self, name: str) -> Any:
        """What an agent saw when it was truncated; None where the environment shows it nothing."""
        if not self.turn_based:
            return self.observations.get(name)
        return self.env.observe(self.ids[name])

    def _wait(self) -> None:
        """Steps on to an agent that can act; PettingZoo wants None of those that are out."""
        env = self.env
        for _ in range(2 * len(self.ids)):  # an environment that drops nobody would go on for ever
            ends = _named(env.terminations, "terminations"), _named(env.truncations, "truncations")
            self._note(*ends)
            if {str(agent) for agent in env.agents} <= self.out:
                break
            if str(env.agent_selection) not in self.out or env.agent_selection not in env.agents:
                break
            env.step(None)
        self.infos = _named(noted(env.infos), "infos")
        if env.agents and env.agent_selection in env.agents:
            self.observations = {str(env.agent_selection): env.observe(env.agent_selection)}


def _true(which: Mapping[str, Any]) -> set[str]:
    return {name for name, value in which.items() if value}


def _named(values: Any, what: str) -> dict[str, Any]:
    """Values by the names of agents. Raises TypeError for anything that is not a dict."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} have to be a dict of agents; got {type(values).__name__}")
    return {str(agent): value for agent, value in values.items()}
