"""PettingZoo's environments as scenarios: `pettingzoo:tictactoe_v3`, `pettingzoo:leduc_holdem_v4`.

AEC environments are asked agent by agent, Parallel ones all at once. The options are those of the
environment, and `turns`, `chance`, `zero_sum`, `worst` (what a forfeit pays).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from gem_ma.adapters.boards import DRAWN, Drawn
from gem_ma.adapters.copies import whole_copy
from gem_ma.adapters.foreign import LISTED, Foreign
from gem_ma.adapters.guest import guest, library
from gem_ma.adapters.line import Stop
from gem_ma.adapters.spaces import words
from gem_ma.effects import Reward, Tell
from gem_ma.episode import Limits
from gem_ma.errors import ConfigError

FAMILIES = ("classic", "butterfly")
TURNS = 1000  # decision points; the games of `classic` end by their rules long before


@dataclass(slots=True)
class Table:
    """An environment, what it shows and allows now, and what was paid on the way here."""

    env: Any
    shown: dict[str, Any] = field(default_factory=dict)
    infos: Mapping[str, Any] = field(default_factory=dict)
    paid: dict[str, float] = field(default_factory=dict)
    steps: int = 0


class PettingZoo(Foreign):
    """An environment of PettingZoo in text, AEC or Parallel, with discrete actions."""

    def __init__(
        self,
        env: str,
        *,
        turns: int = TURNS,
        chance: bool = True,
        zero_sum: bool | None = None,
        worst: float | None = None,
        listed: int = LISTED,
        **options: Any,
    ) -> None:
        self.env, self.options, self.turns, self.listed = env, options, turns, listed
        self.key = f"pettingzoo {json.dumps([env, options], sort_keys=True, default=repr)}"
        known = DRAWN.get(env.rpartition("_v")[0], Drawn())
        self.zero_sum = known.worst is not None if zero_sum is None else zero_sum
        self.worst = worst if worst is not None else known.worst or -1.0
        self.chance = self.seeded = chance and known.chance
        self._declare()

    def _declare(self) -> None:
        try:
            with guest(0):
                made = self._made()
                self.agents = tuple(map(str, made.possible_agents))
                spaces = [made.action_space(agent) for agent in made.possible_agents]
        except ConfigError:
            raise
        except Exception as error:  # of any class: an option, a library that is missing
            raise ConfigError(f"pettingzoo:{self.env}: {' '.join(str(error).split())}") from error
        other = next((space for space in spaces if type(space).__name__ != "Discrete"), None)
        if other is not None:
            raise ConfigError(f"pettingzoo:{self.env}: its actions are {other}, not a choice")

    @property
    def limits(self) -> Limits:  # type: ignore[override]
        return Limits(max_steps=self.turns)

    def _made(self) -> Any:
        library("pettingzoo", "pettingzoo")
        family, _, name = self.env.rpartition("/")
        places = [f"pettingzoo.{place}" for place in ([family] if family else FAMILIES)]
        place = next((place for place in places if _is_there(place, name)), None)
        if not name.isidentifier() or place is None:
            raise ConfigError(f"pettingzoo: there is no environment {self.env!r}, as tictactoe_v3")
        module = library(f"{place}.{name}", "pettingzoo")
        # without PettingZoo's wrappers: they end a play at an illegal move in words of their own
        maker = getattr(module, "raw_env", None) or module.parallel_env
        modes = getattr(maker, "metadata", {}).get("render_modes", ())
        return maker(**({"render_mode": "ansi"} if "ansi" in modes else {}), **self.options)

    def opened(self, seed: int) -> Table:
        env = self._made()
        first = env.reset(seed=seed)
        table = Table(env)
        if not _turn_based(env):
            table.shown, table.infos = first
        return self._waiting(table)

    def copied(self, state: Table) -> Table:
        return whole_copy(state)

    def stepped(self, state: Table, move: Any, seed: int) -> Table:
        env, state.steps = state.env, state.steps + 1
        if not _turn_based(env):
            state.shown, paid, *_, state.infos = env.step(move)
            state.paid = {agent: float(value) for agent, value in paid.items() if value}
            return state
        state.paid = {}
        env.step(move[env.agent_selection])
        self._collect(state)
        return self._waiting(state)

    def _waiting(self, state: Table) -> Table:
        """Steps on to an agent that can act; PettingZoo wants None of those that are out."""
        env = state.env
        if not _turn_based(env):
            return state
        while env.agents and _out(env, env.agent_selection):
            env.step(None)
        state.infos = dict(env.infos)
        if env.agents:
            state.shown = {env.agent_selection: env.observe(env.agent_selection)}
        return state

    @staticmethod
    def _collect(state: Table) -> None:
        for agent, value in state.env.rewards.items():
            if value:
                state.paid[agent] = state.paid.get(agent, 0.0) + float(value)

    def stop(self, state: Table) -> Stop:
        env = state.env
        before: tuple[Reward | Tell, ...] = ()
        if state.paid:
            before = (Reward(dict(state.paid), why="step"),)
        if not env.agents:
            return Stop(before)
        asked = [env.agent_selection] if _turn_based(env) else list(env.agents)
        if not state.steps:
            briefs = {agent: f"{self.env}. You are {agent}." for agent in self.agents}
            before = (Tell(briefs),)
        known = DRAWN.get(self.env.rpartition("_v")[0], Drawn())
        asks, moves = {}, {}
        for agent in asked:
            seen = state.shown[agent]
            asks[agent] = known.text(env, seen) if known.text else _text(env, seen)
            moves[agent] = {known.action(env, a): a for a in self._legal(state, agent, seen)}
        return Stop(before, asks, moves)

    def _legal(self, state: Table, agent: str, seen: Any) -> list[int]:
        mask = seen.get("action_mask") if isinstance(seen, dict) else None
        if mask is None:
            mask = (state.infos.get(agent) or {}).get("action_mask")
        space = state.env.action_space(agent)
        count, start = int(space.n), int(space.start)
        return [start + n for n in range(count) if mask is None or mask[n]]


def _is_there(place: str, name: str) -> bool:
    try:
        return find_spec(f"{place}.{name}") is not None
    except ModuleNotFoundError:  # there is no such family
        return False


def _turn_based(env: Any) -> bool:
    return hasattr(env, "observe")  # of AEC alone


def _out(env: Any, agent: str) -> bool:
    return bool(env.terminations[agent] or env.truncations[agent])


def _text(env: Any, seen: Any) -> str:
    if getattr(env, "render_mode", None) == "ansi":
        return str(env.render())
    inner = seen.get("observation", seen) if isinstance(seen, dict) else seen
    return words(inner)
