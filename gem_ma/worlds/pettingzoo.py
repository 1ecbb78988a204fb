"""PettingZoo's environments as scenarios: `pettingzoo:tictactoe_v3`, `pettingzoo:leduc_holdem_v4`.

AEC environments are asked agent by agent, Parallel ones all at once. The options are those of the
environment, and `turns`, `chance`, `zero_sum`, `worst` (what a forfeit pays).
"""

from __future__ import annotations

from typing import Any

from gem_ma.kernel.effects import Reward, Tell
from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds.actions import form, move_of, places_of, rows_of
from gem_ma.worlds.boards import drawn
from gem_ma.worlds.copies import whole_copy
from gem_ma.worlds.foreign import LISTED, Foreign
from gem_ma.worlds.guest import guest, starting
from gem_ma.worlds.line import Stop
from gem_ma.worlds.makers import key_of, pettingzoo_env
from gem_ma.worlds.tables import Table

TURNS = 1000  # decision points; the games of `classic` end by their rules long before


class PettingZoo(Foreign):
    """An environment of PettingZoo in text, AEC or Parallel. Actions that are not listed
    choice are read out of the answer as numbers or text."""

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
        self.env = env
        self.options = options
        self.turns = turns
        self.listed = listed
        self.key = self._key()
        known = drawn(env)
        self.zero_sum = known.worst is not None if zero_sum is None else zero_sum
        self.worst = worst if worst is not None else known.worst or -1.0
        self.chance = self.seeded = chance and known.chance
        with starting(self.title), guest(0):
            made = self._made()
            ids = list(made.possible_agents or ())
            self.agents = tuple(map(str, ids))
            spaces = {str(agent): made.action_space(agent) for agent in ids}
            # those whose actions are not listed: an answer is read as one of them
            self.spaces = {
                name: space
                for name, space in spaces.items()
                if rows_of(places_of(space, self.title)) is None
            }
        if not ids or len(spaces) < len(ids):
            raise ConfigError(f"{self.title}: possible_agents wants names that differ; got {ids}")

    @property
    def title(self) -> str:
        """What faults begin with."""
        return f"pettingzoo:{self.env}"

    def _brief(self, agent: str) -> str:
        text = f"{self.env}. You are {agent}."
        if agent not in self.spaces:
            return text
        space = self.spaces[agent]
        return f"{text} {form(space, places_of(space, self.title))}"

    def _key(self) -> str:
        return key_of("pettingzoo", self.env, self.options)

    def _made(self) -> Any:
        return pettingzoo_env(self.env, self.options)

    def opened(self, seed: int) -> Table:
        made = self._made()
        table = Table(made, {str(agent): agent for agent in made.possible_agents})
        table.begin(seed)
        return table

    def copied(self, state: Table) -> Table:
        return whole_copy(state)

    def read(self, agent: str, text: str) -> str | None:
        # the text itself: what a play is remembered by is short, and exact
        return text if move_of(self.spaces[agent], text) is not None else None

    def stepped(self, state: Table, move: Any, seed: int) -> Table:
        state.go(
            {
                agent: move_of(state.space(agent), choice) if isinstance(choice, str) else choice
                for agent, choice in move.items()
            }
        )
        return state

    def stop(self, state: Table) -> Stop:
        known = drawn(self.env)
        before: tuple[Reward | Tell, ...] = ()
        if state.paid:
            before = (Reward(dict(state.paid), why="step"),)
        elif not state.steps:
            before = (Tell({agent: self._brief(agent) for agent in self.agents}),)
        asks = {}
        moves = {}
        for agent in state.asked:
            seen = state.seen(agent)
            asks[agent] = known.text(state.env, seen)
            listed = known.moves(state, agent, seen)
            if listed is not None:
                moves[agent] = listed
        cut = {
            agent: "" if seen is None else known.text(state.env, seen)
            for agent, seen in state.cut.items()
        }
        return Stop(before, asks, moves, cut=cut or None)
