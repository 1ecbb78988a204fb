"""TextArena's games as scenarios: `textarena:SimpleNegotiation-v0`, `textarena:TicTacToe-v0`.

An answer is free text with the move in [brackets], which the game reads. Beside the game's options:
`players`, `turns`, `chance`. Some rules are wrong: its scores are not ground truth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from gem_ma.kernel.effects import Reward, Tell
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Message
from gem_ma.worlds.foreign import Foreign
from gem_ma.worlds.guest import guest, library, starting, unknown
from gem_ma.worlds.line import Stop
from gem_ma.worlds.ordered import words_in_order
from gem_ma.worlds.wordlists import words_lent

TURNS = 200
COUNTS = (2, 1, *range(3, 16))  # players of a game, most likely first
TRIED = ("[0]", "[1]", "[2]", "[3]", "[A4]")  # answers of a look at whether seeds matter


@dataclass(slots=True)
class Arena:
    """A game, whose turn it is, and what was said since that player's last turn."""

    env: Any
    player: int = 0
    news: list[Any] = field(default_factory=list)
    over: bool = False
    paid: dict[int, float] = field(default_factory=dict)
    why: str = "end"


class TextArena(Foreign):
    """A game of TextArena: free text, the move in [brackets]."""

    def __init__(
        self,
        env: str,
        *,
        players: int | None = None,
        turns: int = TURNS,
        chance: bool | None = None,
        **options: Any,
    ) -> None:
        known = library("textarena.envs.registration", "textarena").ENV_REGISTRY
        # the plain id adds wrappers for models that see one text; a view holds the whole talk
        self.env = f"{env}-raw" if f"{env}-raw" in known else env
        if self.env not in known:
            raise unknown("textarena: no game", env, known)
        self.options = options
        self.turns = turns
        self.players = self._seats(players)
        self.agents = tuple(f"player_{seat}" for seat in range(self.players))
        self.key = f"textarena {json.dumps([self.env, options, self.players], sort_keys=True)}"
        self.declare_chance(chance, TRIED)

    def _seats(self, players: int | None) -> int:
        """The number of players that the game takes; nothing but a reset knows it."""
        first: Exception | None = None
        with starting(f"textarena:{self.env.removesuffix('-raw')}"), guest(0):
            for self.players in [players] if players else COUNTS:
                try:
                    self.opened(0)
                    return self.players
                except Exception as error:  # of any class: some assert, some index
                    first = first or error
            raise first or AssertionError

    def opened(self, seed: int) -> Arena:
        with words_lent("textarena"):
            env = words_in_order(library("textarena", "textarena").make(self.env, **self.options))
            env.reset(num_players=self.players, seed=seed)
        return self._next(Arena(env))

    def stepped(self, state: Arena, move: Any, seed: int) -> Arena:
        (text,) = move.values()
        state.news = []
        try:
            state.over = bool(state.env.step(action=text)[0])
            if state.over:
                state.paid = {int(seat): float(v) for seat, v in state.env.close()[0].items()}
            else:
                self._next(state)
        except Exception as error:  # an answer on which the game breaks loses, for its agent alone
            state.over = True
            state.paid = {state.player: -1.0}
            state.why = f"the game raised {type(error).__name__}"
        return state

    @staticmethod
    def _next(state: Arena) -> Arena:
        state.player, [*state.news] = state.env.get_observation()
        return state

    def stop(self, state: Arena) -> Stop:
        if not state.over:
            messages = self._messages(state.news, state.player) or "Your move."
            return Stop((), {self.agents[state.player]: messages})
        last = getattr(getattr(state.env, "state", None), "observations", None) or {}
        late = {self.agents[seat]: self._messages(lines, seat) for seat, lines in last.items()}
        values = {self.agents[seat]: value for seat, value in state.paid.items()}
        tell = Tell({a: messages for a, messages in late.items() if messages})
        return Stop((tell,) * any(late.values()) + (Reward(values, why=state.why),) * bool(values))

    def _messages(self, lines: Any, player: int) -> tuple[Message | str, ...]:
        messages: list[Message | str] = []
        for who, text, kind in lines:
            # some games write who and what in another order; then nobody's name stands there
            name = self.agents[who] if isinstance(who, int) and 0 <= who < self.players else ""
            # what a player did itself stands in its view already
            if who != player or getattr(kind, "name", "") != "PLAYER_ACTION":
                messages.append(Message(str(text), name) if name else str(text))
        return tuple(messages)

    def success(self, episode: Episode) -> bool | None:
        """Of a game of one: it was paid in full, which is 1."""
        return None if self.players > 1 else sum(entry.value for entry in episode.ledger) >= 1
