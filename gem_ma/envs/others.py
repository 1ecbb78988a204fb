"""Who plays the agents that are not the caller's: behaviours, each with a random stream of its own
that the episode's seed decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.driver.behaviour import (
    Behaviour,
    Factory,
    as_factory,
    behaviour_rng,
    is_privileged,
    no_policy,
    seat,
    waits,
)
from gem_ma.envs.loop import Flights, begin, landed
from gem_ma.envs.session import Session
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action, Asked
from gem_ma.registry import as_scenario, load


class Others:
    """All agents of a session but one. Raises ConfigError where one of them has no player."""

    def __init__(self, session: Session, agent: str, others: Mapping[str, Any]) -> None:
        check_seats(session, agent, others)
        self._agent = agent
        self._factories: dict[str, tuple[Factory, dict[str, Any]]] = {
            other: (as_factory(player.behaviour), dict(player.options))
            if isinstance(player, Seat)
            else (as_factory(player), {})
            for other, player in others.items()
        }
        # those that declare it are spared the hop to another thread
        self._immediate = {
            other for other, (factory, _) in self._factories.items() if not waits(factory)
        }
        self._privileged = {
            other for other, (factory, _) in self._factories.items() if is_privileged(factory)
        }
        self._players: dict[str, Behaviour] = {}

    def seat(self, game: Game) -> None:
        """Makes their behaviours for a new episode."""
        self._players = {
            other: seat(
                factory,
                other,
                no_policy(other),
                behaviour_rng(game.seed, other),
                game.task,
                **options,
            )
            for other, (factory, options) in self._factories.items()
        }

    def begin(self, game: Game) -> tuple[dict[str, Any], Flights]:
        """What those who are asked do at once, and what the others will have done."""
        if not self._players:
            return {}, {}
        asked = {
            other: Asked(
                game.new(other),
                game.transcript(other),
                pending.legal,
                pending.tools,
                game.step,
                game.turns if other in self._privileged else (),
            )
            for other, pending in game.pending.items()
            if other != self._agent
        }
        return begin(self._players, asked, self._immediate)

    def act(self, game: Game) -> dict[str, Action | str]:
        """What those who are asked do; waits for all."""
        return landed(*self.begin(game))


def check_seats(session: Session, agent: str, others: Mapping[str, Any]) -> None:
    """Raises ConfigError where the agent is none, or the others are not those besides it."""
    names = ", ".join(session.agents)
    if agent not in session.agents:
        raise ConfigError(f"{session.name}: no agent is called {agent!r}; its agents are {names}")
    if not isinstance(others, Mapping):
        raise ConfigError(
            f"{session.name}: others is {{agent: behaviour}}; got {type(others).__name__}"
        )
    for other in others:
        if other == agent:
            raise ConfigError(f"{session.name}: {agent!r} is yours to play; leave it out of others")
        if other not in session.agents:
            raise ConfigError(
                f"{session.name}: others names {other!r}, which is not an agent; its agents are"
                f" {names}"
            )
    # nobody is seated by default: who plays against you decides the result
    for other in session.agents:
        if other != agent and other not in others:
            raise ConfigError(
                f"{session.name}: nobody plays {other!r}; give others={{{other!r}: behaviour}}, as"
                " in 'random_legal'"
            )


def seated(
    scenario: str | Scenario | type[Scenario],
    agent: str | None,
    others: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """`agent` and `others` of an environment: the first agent, and the default of each other one,
    where nobody is named."""
    factory: Any = load("scenarios", scenario) if isinstance(scenario, str) else scenario
    # a few know their agents only once they are made
    made = factory if getattr(factory, "agents", ()) else as_scenario(scenario, **options)
    mine = agent if agent is not None else made.agents[0]
    if others is not None and not isinstance(others, Mapping):
        raise ConfigError(f"others is {{agent: behaviour}}; got {type(others).__name__}")
    named = dict(others or {})
    for name in made.agents:
        if name != mine:
            named.setdefault(name, made.default_cast.get(name, "random_legal"))
    return {"agent": mine, "others": named}
