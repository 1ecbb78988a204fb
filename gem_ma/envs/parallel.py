"""The Parallel environment: one `step` per decision point. Who must act stands in
`infos[agent]["active_agents"]`; what the others send is ignored.

A projection of `Game`, like the AEC environment, and independent of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pettingzoo

from gem_ma.envs.projection import Projection
from gem_ma.envs.session import Session
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ActionError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.types import Action

StepValues = tuple[
    dict[str, dict[str, Any]],
    dict[str, float],
    dict[str, bool],
    dict[str, bool],
    dict[str, dict[str, Any]],
]


class ChatParallel(Projection, pettingzoo.ParallelEnv[str, dict[str, Any], "str | Action | None"]):
    """A scenario as a `pettingzoo.ParallelEnv`. `game` is the play itself, for what the API does
    not show."""

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Plays episode `seed`, or the next one drawn from the stream that the last seed began.
        `options={"task": ...}` names the task."""
        # until a reset has succeeded: one that raises leaves nothing to step
        self.agents = []
        session = self._session
        session.reset(seed, options)
        self.agents = list(self.possible_agents)
        if self.render_mode == "human":
            session.render()
        return session.observations(self.agents), session.infos(self.agents)

    def step(self, actions: Mapping[str, str | Action | None]) -> StepValues:
        """Takes the actions of the active agents out of `actions`; five dicts keyed by the agents
        alive before.

        Raises ActionError, and changes nothing, where an active agent has no action;
        ScenarioError where the scenario's code fails.
        """
        session = self._session
        game = session.playing()
        if not self.agents:
            # what PettingZoo's own test wants: a step without agents is not an error
            warnings.warn(
                f"{session.name}: the episode is over; call reset()", UserWarning, stacklevel=2
            )
            return {}, {}, {}, {}, {}
        if game.closed:
            raise session.refuse()
        if not isinstance(actions, Mapping):
            raise ActionError(
                f"{session.name}: actions are {{agent: action}}; got {type(actions).__name__}"
            )
        unknown = [agent for agent in actions if agent not in self.possible_agents]
        if unknown:
            raise ActionError(
                f"{session.name}, step {game.step}: no agent is called {unknown[0]!r}; they are"
                f" {', '.join(self.possible_agents)}"
            )
        # checked before anything is sent: a step is committed whole or not at all
        missing = [agent for agent in game.pending if actions.get(agent) is None]
        if missing:
            raise ActionError(
                f"{session.name}, step {game.step}: no action of {', '.join(missing)};"
                f" {', '.join(game.pending)} must act"
            )
        session.commit({agent: actions[agent] for agent in game.pending})  # type: ignore[misc]
        # the dicts hold those who were there before the step: it is their last word
        alive = self.agents
        paid = session.rewards()
        rewards = {agent: paid.get(agent, 0.0) for agent in alive}
        over = dict.fromkeys(alive, False)
        cut = over.copy()
        if session.any_over:
            over, cut = session.over(alive)
            self.agents = [agent for agent in alive if not (over[agent] or cut[agent])]
        if self.render_mode == "human":
            session.render()
        return session.observations(alive), rewards, over, cut, session.infos(alive)


def parallel_env(
    scenario: str | Scenario | type[Scenario],
    *,
    task: Any = None,
    split: str = "train",
    limits: Limits | None = None,
    max_steps: int | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> ChatParallel:
    """A scenario (id, class or instance) as a `pettingzoo.ParallelEnv`; arguments as in
    `aec_env`."""
    return ChatParallel(
        Session(
            scenario,
            task=task,
            split=split,
            limits=limits,
            max_steps=max_steps,
            render_mode=render_mode,
            options=options,
        ),
    )
