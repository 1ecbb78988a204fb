"""What the AEC and the Parallel environment have in common: the spaces, the names, and the play
behind them. How an agent steps is each environment's own."""

from __future__ import annotations

import copy
from typing import Any, Self

from gem_ma.envs.session import RENDER_MODES, Session
from gem_ma.envs.spaces import ChatText, observation_space
from gem_ma.kernel.scenario import Game, Scenario


class Projection:
    """The head of an environment. It stands before PettingZoo's class among the bases, so that its
    methods are the ones that count."""

    def __init__(self, session: Session, **metadata: Any) -> None:
        self._session = session
        self.metadata = {"name": session.name, "render_modes": list(RENDER_MODES), **metadata}
        self.render_mode = session.render_mode
        self.possible_agents = list(session.agents)
        self.agents: list[str] = []
        # one space for all: an observation has no bounds that an agent could tell apart
        seen = observation_space()
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        # one of its own for each, since a space samples from a stream of its own
        self.action_spaces = {agent: ChatText() for agent in self.possible_agents}

    @property
    def scenario(self) -> Scenario:
        return self._session.scenario

    @property
    def game(self) -> Game:
        """The play itself, for what the API does not show."""
        return self._session.playing()

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def render(self) -> str | None:
        """The turns so far, in the god's view: text for `ansi`; `human` prints them."""
        return self._session.render()

    def state(self) -> Any:
        """The scenario's own numeric features, `scenario.state(game)`, if it defines them."""
        # for a centralised critic of other libraries; ours reads the record
        features = getattr(self.scenario, "state", None)
        # PettingZoo's own says that there are none
        return features(self.game) if callable(features) else super().state()  # type: ignore[misc]

    def close(self) -> None:
        self._session.close()

    def __copy__(self) -> Self:
        # a shallow one would play the same game; a play that runs says that it cannot be copied
        return copy.deepcopy(self)
