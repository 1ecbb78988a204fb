"""The AEC environment: agents act one at a time, those of a simultaneous decision point one after
the other, none seeing another's action.

A projection of `Game`, never a second form of a scenario. PettingZoo's converters refuse it by
`is_parallelizable`; use `parallel_env`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pettingzoo

from gem_ma.envs.projection import Projection
from gem_ma.envs.session import Session
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ActionError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action
from gem_ma.kernel.views import read


class ChatAEC(Projection, pettingzoo.AECEnv[str, dict[str, Any], "str | Action | None"]):
    """A scenario as a `pettingzoo.AECEnv`. `game` is the play itself, for what the API does not
    show."""

    def __init__(self, session: Session) -> None:
        # PettingZoo's converters would lose what a simultaneous step means
        super().__init__(session, is_parallelizable=False)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Plays episode `seed`, or the next one drawn from the stream that the last seed began.
        `options={"task": ...}` names the task."""
        # until a reset has succeeded: one that raises leaves nothing to step
        self.agents = []
        game = self._session.reset(seed, options)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = self._session.infos(self.agents)
        self._paid: dict[str, float] = {}  # what the last decision point paid
        self._actions: dict[str, Action] = {}
        # a field of PettingZoo's own: it would send the next step to an agent of the last episode
        self._skip_agent_selection = None
        self.agent_selection = next(iter(game.pending))
        if self.render_mode == "human":
            self._session.render()

    def observe(self, agent: str) -> dict[str, Any]:
        """Everything that the agent has seen and said, as of the open decision point."""
        return self._session.observe(agent)

    def last(self, observe: bool = True) -> Any:
        """What `agent_selection` sees, its reward, whether it is over, and its info. Raises
        ActionError before `reset` and after the end."""
        self._session.playing()
        if not self.agents:
            raise self._session.refuse()
        return super().last(observe)

    def step(self, action: str | Action | None) -> None:
        """Takes the action of `agent_selection`. The last one of a decision point commits them all.

        Raises ActionError, and changes nothing, for anything that is not an action; ScenarioError
        where the scenario's code fails.
        """
        session = self._session
        game = session.playing()
        if not self.agents:
            raise session.refuse()
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            # PettingZoo asks for one None per agent whose part is over
            self._was_dead_step(action)
            return
        if game.closed:
            raise session.refuse()
        if action is None:
            raise ActionError(
                f"{session.name}, step {game.step}: {agent!r} must act; None is for agents whose"
                " part is over"
            )
        actions = self._actions
        asked = game.pending
        try:
            actions[agent] = read(action, asked[agent], game.max_said)
        except ActionError as error:
            raise ActionError(
                f"{session.name}, step {game.step}, agent {agent!r}: {error}"
            ) from error
        # who acts has been told what it got until now
        self._cumulative_rewards[agent] = 0.0
        if self._paid:
            self._clear_rewards()
            self._paid = {}
        # PettingZoo's order is fixed at reset; ours is that of the Ask
        for other in asked:
            if other not in actions:
                self.agent_selection = other
                return
        self._actions = {}
        session.commit(actions)
        self._publish(game)

    def _publish(self, game: Game) -> None:
        """Tells those whom the step concerns: most of 64 agents were neither paid nor asked."""
        session = self._session
        rewards = self.rewards
        self._paid = session.rewards()
        for agent, paid in self._paid.items():
            if agent in rewards:
                rewards[agent] = paid
                self._cumulative_rewards[agent] += paid
        self.infos = session.infos(self.agents)
        self.agent_selection = next(iter(game.pending), self.agent_selection)
        if session.any_over:
            over, cut = session.over(self.agents)
            self.terminations.update(over)
            self.truncations.update(cut)
            # agents that leave step with None before anybody acts again
            self._deads_step_first()
        if self.render_mode == "human":
            session.render()


def aec_env(
    scenario: str | Scenario | type[Scenario],
    *,
    task: Any = None,
    split: str = "train",
    limits: Limits | None = None,
    max_steps: int | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> ChatAEC:
    """A scenario (id, class or instance) as a `pettingzoo.AECEnv`; `options` go to its constructor.

    `task`: a task of the scenario, `<split>/<index>`, or an index in `split`. `limits` and
    `max_steps` are the driver's: they truncate.
    """
    return ChatAEC(
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
