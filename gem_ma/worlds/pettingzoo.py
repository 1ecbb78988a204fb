"""PettingZoo's environments as scenarios: `pettingzoo:tictactoe_v3`, `pettingzoo:leduc_holdem_v4`.

AEC environments are asked agent by agent, Parallel ones all at once. The options are those of the
environment, and `turns`, `chance`, `zero_sum`, `worst` (what a forfeit pays).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gem_ma.kernel.effects import Reward, Tell
from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds.actions import chosen, form, kind_of, move_of, places_of, rows_of
from gem_ma.worlds.copies import whole_copy
from gem_ma.worlds.foreign import LISTED, Foreign
from gem_ma.worlds.guest import guest, starting
from gem_ma.worlds.line import Stop
from gem_ma.worlds.makers import key_of, pettingzoo_env
from gem_ma.worlds.results import noted
from gem_ma.worlds.spaces import picture_of, words
from gem_ma.worlds.tables import Table

# What PettingZoo's environments look like in words, what their actions are called, and what is lost
# in the classic ones at most.

HOLDEM = ("call", "raise", "fold", "check")
NO_LIMIT = ("fold", "check or call", "raise half the pot", "raise the pot", "all in")
RPS = ("rock", "paper", "scissors", "spock", "lizard")  # the last two where there are five or more


def _number(env: Any, action: int) -> str:
    return str(action)


def _as_it_draws(env: Any, seen: Any) -> str:
    if (picture := picture_of(env)) is not None:
        return picture
    return words(seen.get("observation", seen) if isinstance(seen, dict) else seen)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A game in words. `worst`: the lowest payment of a zero-sum game; None = not zero-sum."""

    text: Callable[[Any, Any], str] = _as_it_draws  # (environment, observation)
    action: Callable[[Any, int], str] = _number
    worst: float | None = None
    chance: bool = True

    def moves(self, table: Table, agent: str, seen: Any) -> dict[str, Any] | None:
        """Legal strings and their actions; None where an answer is read out of its text. The mask
        stands in what the agent sees, or in its info."""
        space = table.space(agent)
        rows = rows_of(places_of(space, ""))
        if rows is None:
            return None
        mask = seen.get("action_mask") if isinstance(seen, dict) else None
        mask = noted(table.infos.get(agent)).get("action_mask") if mask is None else mask
        places = chosen(rows, mask)
        if kind_of(space) != "Discrete":
            return {rows[place]: rows[place] for place in places}
        actions = [int(space.start) + place for place in places]
        return {self.action(table.env, action): action for action in actions}


def _named(names: tuple[str, ...]) -> Callable[[Any, int], str]:
    # an option may give a game more actions than have names
    return lambda env, action: names[action] if action < len(names) else str(action)


def _board(planes: Any, swapped: bool) -> str:
    """Two planes of 0 and 1, those of the agent that looks first, as rows of X, O and dots."""
    board = planes.swapaxes(0, 1) if swapped else planes
    return "\n".join(
        "".join("X" if own else "O" if other else "." for own, other in row)
        for row in board[..., :2].tolist()
    )


def _tic_tac_toe(env: Any, seen: Any) -> str:
    board = _board(seen["observation"], swapped=True)
    return f"{board}\nX is you. Squares are numbered down the columns from 0."


def _connect_four(env: Any, seen: Any) -> str:
    return f"{_board(seen['observation'], swapped=False)}\nX is you. A move is a column from 0."


def _go(env: Any, seen: Any) -> str:
    board = _board(seen["observation"], swapped=False)
    return f"{board}\nX is you. A move is a point, row by row from 0; the last number passes."


def _rps(env: Any, seen: Any) -> str:
    # the number after the last action stands for none
    none = int(seen) == env.action_space(env.possible_agents[0]).n
    last = "none yet" if none else _named(RPS)(env, int(seen))
    return f"The other chose: {last}."


def _leduc(env: Any, seen: Any) -> str:
    cells = seen["observation"].tolist()
    own = _marked(cells[:3], "JQK")
    public = _marked(cells[3:6], "JQK")
    chips = _marked(cells[6:21], range(15))
    others = _marked(cells[21:36], range(15))
    return f"Your card: {own}. Public card: {public}. In the pot: you {chips}, the other {others}."


def _texas(env: Any, seen: Any) -> str:
    cells = seen["observation"].tolist()
    cards = [f"{rank}{suit}" for suit in "shdc" for rank in "A23456789TJQK"]
    text = f"Your cards and the public ones: {_marked(cells[:52], cards)}."
    if len(cells) == 72:  # with limits: raises of each of four rounds, 0 to 4
        raises = [_marked(cells[place : place + 5], range(5)) for place in range(52, 72, 5)]
        return f"{text} Raises by round: {' '.join(raises)}."
    return f"{text} In the pot: you {cells[52]:g}, the other {cells[53]:g}."


def _marked(cells: Any, names: Any) -> str:
    names = list(names)
    return " ".join(str(names[n]) for n, cell in enumerate(cells) if cell) or "none"


def _chess_move(env: Any, action: int) -> str:
    from pettingzoo.classic.chess import chess_utils

    inner = env.unwrapped
    player = inner.possible_agents.index(inner.agent_selection)
    return str(chess_utils.action_to_move(inner.board, action, player).uci())


def drawn(env: str) -> Drawn:
    """What is known of an environment by its name, as tictactoe_v3."""
    return DRAWN.get(env.rpartition("_v")[0], Drawn())


DRAWN = {
    "tictactoe": Drawn(_tic_tac_toe, worst=-1.0, chance=False),
    "connect_four": Drawn(_connect_four, worst=-1.0, chance=False),
    "go": Drawn(_go, worst=-1.0, chance=False),
    "chess": Drawn(_as_it_draws, _chess_move, worst=-1.0, chance=False),
    "rps": Drawn(_rps, _named(RPS), worst=-15.0, chance=False),  # fifteen rounds
    # with limits in big blinds, what all raises come to; without, in chips
    "leduc_holdem": Drawn(_leduc, _named(HOLDEM), worst=-7.0),
    "texas_holdem": Drawn(_texas, _named(HOLDEM), worst=-25.0),
    "texas_holdem_no_limit": Drawn(_texas, _named(NO_LIMIT), worst=-100.0),
}


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
