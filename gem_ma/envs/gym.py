"""The Gymnasium environment: one agent is yours, behaviours play the others, as in "the assistant
against a simulated user".

Each behaviour draws from a stream of its own, derived from the episode's seed; so an episode is
a function of its seed and your actions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium

from gem_ma.behaviour import (
    Behaviour,
    Factory,
    as_factory,
    behaviour_rng,
    no_policy,
    seat,
    waits,
)
from gem_ma.envs.loop import act_together
from gem_ma.envs.session import RENDER_MODES, Session
from gem_ma.envs.spaces import ChatText, observation_space
from gem_ma.episode import Limits, Seat
from gem_ma.errors import ActionError, ConfigError
from gem_ma.exchange import read
from gem_ma.scenario import Game, Scenario
from gem_ma.types import Action, Asked


class ChatGym(gymnasium.Env[dict[str, Any], Any]):
    """One agent of a scenario as a `gymnasium.Env`. `game` is the play itself, for what the API
    does not show."""

    def __init__(self, session: Session, agent: str, others: Mapping[str, Any]) -> None:
        self._session, self.agent = session, agent
        _check_seats(session, agent, others)
        self._others: dict[str, tuple[Factory, dict[str, Any]]] = {}
        for other, player in others.items():
            if isinstance(player, Seat):
                self._others[other] = as_factory(player.behaviour), dict(player.options)
            else:
                self._others[other] = as_factory(player), {}
        # those that declare it are spared the hop to another thread
        self._immediate = {
            other for other, (factory, _) in self._others.items() if not waits(factory)
        }
        self.metadata = {"name": session.name, "render_modes": list(RENDER_MODES), "render_fps": 4}
        self.render_mode = session.render_mode
        self.observation_space = observation_space()
        self.action_space = ChatText()
        self._players: dict[str, Behaviour] = {}
        self._done = True

    @property
    def scenario(self) -> Scenario:
        return self._session.scenario

    @property
    def game(self) -> Game:
        return self._session.playing()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Plays the others until the agent is asked. If the play ends before, `info["active"]`
        is False and the first step only pays."""
        # until a reset has succeeded: one that raises leaves nothing to step
        self._done = True
        session = self._session
        game = session.reset(seed, options)
        # numpy knows no negative seeds
        super().reset(seed=None if seed is None else abs(game.seed))
        self._players = {
            other: seat(
                factory,
                other,
                no_policy(other),
                behaviour_rng(game.seed, other),
                game.task,
                **chosen,
            )
            for other, (factory, chosen) in self._others.items()
        }
        self._done = False
        self._play_on(game)
        return session.observe(self.agent), session.info(self.agent)

    def step(
        self, action: str | Action
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Acts, and plays the others until the agent is asked again, has left, or the play is over.
        The reward is all it was paid meanwhile.

        Raises ActionError, and changes nothing, for what is no action; ScenarioError where the
        scenario's code fails.
        """
        session, agent = self._session, self.agent
        game = session.playing()
        if self._done or (game.closed and session.end is None):
            raise session.refuse()
        # else the play ended before the agent was asked, and this step only pays
        if agent in game.pending:
            try:
                own_action = read(action, game.pending[agent])
            except ActionError as error:
                raise ActionError(
                    f"{session.name}, step {game.step}, agent {agent!r}: {error}"
                ) from error
            # all others of a simultaneous step act before anything is committed
            session.commit({**self._act(game), agent: own_action})
            self._play_on(game)
        terminated = session.terminated(agent)
        # an agent that left ended by the rules, whatever cut the others
        truncated = session.end is not None and not terminated
        self._done = terminated or truncated
        return (
            session.observe(agent),
            session.rewards().get(agent, 0.0),
            terminated,
            truncated,
            session.info(agent),
        )

    def _play_on(self, game: Game) -> None:
        # an agent that has left is never asked again, and its episode is over
        while game.pending and self.agent not in game.pending and self.agent not in game.left:
            self._session.commit(self._act(game))
        if self.render_mode == "human":
            self._session.render()

    def _act(self, game: Game) -> dict[str, Action | str]:
        asked = {
            other: Asked(game.new(other), game.view(other), asked.legal, asked.tools, game.step)
            for other, asked in game.pending.items()
            if other != self.agent
        }
        return act_together(self._players, asked, self._immediate)

    def render(self) -> str | None:
        """The turns so far, in the god's view: text for `ansi`; `human` prints them."""
        return self._session.render()

    def close(self) -> None:
        self._session.close()

    def __copy__(self) -> ChatGym:
        # a shallow one would play the same game; a play that runs says that it cannot be copied
        return copy.deepcopy(self)


def _check_seats(session: Session, agent: str, others: Mapping[str, Any]) -> None:
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
                f"{session.name}: others names {other!r}, which is no agent; its agents are {names}"
            )
    # nobody is seated by default: who plays against you decides the result
    for other in session.agents:
        if other != agent and other not in others:
            raise ConfigError(
                f"{session.name}: nobody plays {other!r}; give others={{{other!r}: behaviour}}, as"
                " in 'random_legal'"
            )


def gym_env(
    scenario: str | Scenario | type[Scenario],
    *,
    agent: str,
    others: Mapping[str, Any] | None = None,
    task: Any = None,
    split: str = "train",
    limits: Limits | None = None,
    max_steps: int | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> ChatGym:
    """One agent of a scenario as a `gymnasium.Env`; further arguments as in `aec_env`.

    `others`: who plays each other agent: the id of a behaviour, a factory, a plain `f(messages,
    legal, rng) -> str`, a ready object with `act`, or a `Seat` with options.
    """
    session = Session(
        scenario,
        task=task,
        split=split,
        limits=limits,
        max_steps=max_steps,
        render_mode=render_mode,
        options=options,
    )
    return ChatGym(session, agent, others or {})
