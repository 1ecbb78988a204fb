"""Seats for a cast that names behaviours only, such as a scenario's baselines and examiners."""

from __future__ import annotations

from collections.abc import Mapping

from gem_ma.config.playing import AgentSettings
from gem_ma.config.seating import seats_of
from gem_ma.config.settings import Config
from gem_ma.driver.behaviour import as_factory, needs_policy
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario


def cast_with(
    config: Config, scenario: Scenario, cast: Mapping[str, str]
) -> dict[str, AgentSettings]:
    """The seats of a cast that names some agents' behaviours.

    Each other agent keeps its seat where that samples from no policy, else it gets the
    scenario's default. Raises ConfigError where a behaviour does not exist or would need a
    policy, and where an agent has neither.
    """
    unknown = [agent for agent in cast if agent not in scenario.agents]
    if unknown:
        raise ConfigError(
            f"no agent of {scenario.id} is called {unknown[0]!r}; its agents are"
            f" {', '.join(scenario.agents)}"
        )
    seats = {}
    seated = seats_of(scenario.agents, config.agents)
    for agent in scenario.agents:
        seat = seated.get(agent)
        if agent in cast:
            seats[agent] = AgentSettings(behaviour=cast[agent])
        # a seat that samples from nothing costs nothing, and is what the run plays with
        elif seat is not None and seat.policy is None and not seat.policies:
            seats[agent] = seat
        elif agent in scenario.default_cast:
            seats[agent] = AgentSettings(behaviour=scenario.default_cast[agent])
        else:
            raise ConfigError(
                f"agent {agent!r} samples from a policy here, and {scenario.id} names no default"
                " for it"
            )
        # an examiner or a baseline that costs tokens would not be the plain yardstick that it is
        # for
        behaviour = seats[agent].behaviour
        if needs_policy(behaviour, as_factory(behaviour)):
            raise ConfigError(f"agent {agent!r}: the behaviour {behaviour!r} samples from a policy")
    return seats
