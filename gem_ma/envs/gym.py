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
from gymnasium.utils import seeding

from gem_ma.envs.others import Others
from gem_ma.envs.session import RENDER_MODES, Session
from gem_ma.envs.spaces import ChatText, observation_space
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ActionError, ConfigError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action
from gem_ma.kernel.views import read


class ChatGym(gymnasium.Env[dict[str, Any], Any]):
    """One agent of a scenario as a `gymnasium.Env`. `game` is the play itself, for what the API
    does not show."""

    def __init__(self, session: Session, agent: str, others: Mapping[str, Any]) -> None:
        self._session = session
        self.agent = agent
        self._others = Others(session, agent, others)
        self.metadata = {"name": session.name, "render_modes": list(RENDER_MODES), "render_fps": 4}
        self.render_mode = session.render_mode
        self.observation_space = observation_space()
        self.action_space = ChatText()
        self._done = True
        self._generator: Any = None

    @property
    def _np_random(self) -> Any:
        """Gymnasium's own generator, which no play draws from. Made when it is asked for: that
        takes as long as two turns."""
        if self._generator is None and self._np_random_seed is not None:
            self._generator, _ = seeding.np_random(self._np_random_seed)
        return self._generator

    @_np_random.setter
    def _np_random(self, generator: Any) -> None:
        self._generator = generator

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
        if seed is not None:
            self._np_random = None
            self._np_random_seed = game.seed
        self._others.seat(game)
        self._done = False
        self._play_on(game)
        return self._observed(), session.info(self.agent)

    def _observed(self) -> Any:
        """What the agent sees: the whole transcript."""
        return self._session.observe(self.agent)

    def step(
        self, action: str | Action
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Acts, and plays the others until the agent is asked again, has left, or the play is over.
        The reward is all it was paid meanwhile.

        Raises ActionError, and changes nothing, for anything that is not an action; ScenarioError
        where the scenario's code fails.
        """
        session = self._session
        agent = self.agent
        game = session.playing()
        if self._done or (game.closed and session.end is None):
            raise session.refuse()
        # else the play ended before the agent was asked, and this step only pays
        if agent in game.pending:
            actions: dict[str, str | Action] = {agent: action}
            if len(game.pending) > 1:
                # read first, so that nobody acts beside a fault
                actions = {agent: self._read(action, game)}
                # all others of a simultaneous step act before anything is committed
                actions |= self._others.act(game)
            session.commit(actions)
            self._play_on(game)
        terminated = session.terminated(agent)
        truncated = session.truncated(agent)
        self._done = terminated or truncated
        return (
            self._observed(),
            session.rewards().get(agent, 0.0),
            terminated,
            truncated,
            session.info(agent),
        )

    def _read(self, action: str | Action, game: Game) -> Action:
        try:
            return read(action, game.pending[self.agent], game.max_said)
        except ActionError as error:
            raise ActionError(
                f"{self._session.name}, step {game.step}, agent {self.agent!r}: {error}"
            ) from error

    def _play_on(self, game: Game) -> None:
        # an agent that has left is never asked again, and its episode is over
        while game.pending and self.agent not in game.pending and self.agent not in game.left:
            self._session.commit(self._others.act(game))
        if self.render_mode == "human":
            self._session.render()

    def render(self) -> str | None:
        """The turns so far, in the god's view: text for `ansi`; `human` prints them."""
        return self._session.render()

    def close(self) -> None:
        self._session.close()

    def __copy__(self) -> ChatGym:
        # a shallow one would play the same game; a play that runs says that it cannot be copied
        return copy.deepcopy(self)


class TextGym(ChatGym):
    """The same with plain texts: an observation is what the agent was shown since it acted last,
    a message a paragraph, with the speaker's name before what another agent said."""

    def __init__(self, session: Session, agent: str, others: Mapping[str, Any]) -> None:
        super().__init__(session, agent, others)
        self.observation_space = ChatText()
        self._seen = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._seen = 0
        return super().reset(seed=seed, options=options)

    def _observed(self) -> str:
        messages = self._session.observe(self.agent)["messages"]
        new = messages[self._seen :]
        self._seen = len(messages)
        # its own words stand there too, as `assistant`
        heard = [message for message in new if message["role"] != "assistant"]
        return "\n\n".join(
            f"{message['name']}: {message['content']}" if message["name"] else message["content"]
            for message in heard
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
    obs: str = "chat",
    **options: Any,
) -> ChatGym:
    """One agent of a scenario as a `gymnasium.Env`; further arguments as in `aec_env`.

    `others`: who plays each other agent: the id of a behaviour, a factory, a plain `f(messages,
    legal, rng) -> str`, a ready object with `act`, or a `Seat` with options. `obs`: `chat`, a dict
    of messages, or `text`, what is new as one text.
    """
    if obs not in ("chat", "text"):
        raise ConfigError(f"obs is chat or text; got {obs!r}; arrays come from gem_ma.discrete")
    session = Session(
        scenario,
        task=task,
        split=split,
        limits=limits,
        max_steps=max_steps,
        render_mode=render_mode,
        options=options,
    )
    return (TextGym if obs == "text" else ChatGym)(session, agent, others or {})
