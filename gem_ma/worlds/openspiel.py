"""OpenSpiel's games as scenarios: `openspiel:kuhn_poker`; `openspiel:goofspiel`, `num_cards: 4`.

The options are OpenSpiel's parameters. Chance is drawn by the play's own rng, so small games have
exact exploitability here too. A player is shown its information state, where nothing hidden stands.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from gem_ma.kernel.effects import Reward, Tell
from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds.foreign import LISTED, Foreign
from gem_ma.worlds.guest import library, starting, still, unknown
from gem_ma.worlds.line import Stop
from gem_ma.worlds.trial import openspiel_survives

NO_CLONE = ("morpion_solitaire",)  # a clone of which ends the process when it is stepped


class OpenSpiel(Foreign):
    """A game of OpenSpiel in text: private information states, legal strings, exact forks."""

    borrows = False  # C++

    def __init__(self, game: str, *, listed: int = LISTED, **parameters: Any) -> None:
        self.game = game
        self.parameters = parameters
        self.listed = listed
        self.key = f"openspiel {json.dumps([game, parameters], sort_keys=True)}"
        openspiel_survives(game, parameters)
        loaded = _loaded(game, parameters)
        kind = loaded.get_type()
        types = library("pyspiel", "openspiel").GameType
        # of these games the outcomes cannot be listed: the game draws them with a seed of its own
        self.seeded = kind.chance_mode == types.ChanceMode.SAMPLED_STOCHASTIC
        draws = self.seeded or loaded.max_chance_outcomes() > 1  # one outcome is not a draw
        self.chance = draws and kind.chance_mode != types.ChanceMode.DETERMINISTIC
        self.zero_sum = kind.utility == types.Utility.ZERO_SUM
        self.cooperative = kind.utility == types.Utility.IDENTICAL
        self.agents = tuple(f"player_{seat}" for seat in range(loaded.num_players()))
        self.ends_within = loaded.max_game_length()
        self.worst = float(loaded.min_utility())
        self.long_name = kind.long_name
        self.paid_by_step = kind.reward_model == types.RewardModel.REWARDS
        # the board alone where all is open: an information state repeats the moves before it
        views = {
            "__str__": kind.information == types.Information.PERFECT_INFORMATION,
            "information_state_string": kind.provides_information_state_string,
            "observation_string": kind.provides_observation_string,
        }
        self.view = next((name for name, is_there in views.items() if is_there), "")
        if not self.view:
            raise ConfigError(f"openspiel:{game} has no text of what a player may see")

    def opened(self, seed: int) -> Any:
        # a game that draws holds its random state itself: such a game is never shared
        drawn = {"rng_seed": seed} if self.seeded else {}
        return _loaded(self.game, self.parameters | drawn).new_initial_state()

    def copied(self, state: Any) -> Any:
        # a clone of a game that draws would share the random state of the game it belongs to
        if self.seeded or self.game in NO_CLONE:
            raise TypeError("its clone is no copy, so a fork steps again")
        return state.clone()

    def stepped(self, state: Any, move: Any, seed: int) -> Any:
        if state.is_simultaneous_node():
            state.apply_actions([move.get(agent, 0) for agent in self.agents])
        else:  # of one agent, or of chance
            state.apply_action(*move.values() if isinstance(move, dict) else (move,))
        return state

    def stop(self, state: Any) -> Stop:
        before = self._before(state)
        if state.is_terminal():
            return Stop(before)
        if state.is_chance_node():
            return Stop(before, outcomes=state.chance_outcomes())
        asked = [state.current_player()]
        if state.is_simultaneous_node():
            asked = [seat for seat in range(len(self.agents)) if state.legal_actions(seat)]
        look = getattr(state, self.view)
        views = {seat: (look() if self.view == "__str__" else look(seat)) for seat in asked}
        moves = {self.agents[seat]: _moves(state, seat) for seat in asked}
        return Stop(before, {self.agents[seat]: views[seat] for seat in asked}, moves)

    def _before(self, state: Any) -> tuple[Reward | Tell, ...]:
        if state.is_initial_state():
            name = self.long_name
            count = len(self.agents)
            seats = enumerate(self.agents)
            return (Tell({a: f"{name}. You are player {seat} of {count}." for seat, a in seats}),)
        over = state.is_terminal()
        amounts = state.rewards() if self.paid_by_step else state.returns() if over else ()
        if not over and not any(amounts):
            return ()
        why = "end" if over else "step"
        return (Reward(dict(zip(self.agents, amounts, strict=True)), why=why),)


def _moves(state: Any, seat: int) -> dict[str, int]:
    """The actions by their names on one line; by number and name where two names are read alike."""
    raw = {a: state.action_to_string(seat, a) for a in state.legal_actions(seat)}
    names = {a: " ".join(name.split()) for a, name in raw.items()}
    twins = Counter(name.casefold() for name in names.values())
    return {f"{a} {name}" if twins[name.casefold()] > 1 else name: a for a, name in names.items()}


def _loaded(game: str, parameters: dict[str, Any]) -> Any:
    pyspiel = library("pyspiel", "openspiel")
    known = pyspiel.registered_names()
    if (name := game.partition("(")[0]) not in known:
        raise unknown("openspiel: no game", name, known)
    with starting(f"openspiel:{game}"), still():
        loaded = pyspiel.load_game(game, parameters) if parameters else pyspiel.load_game(game)
        if loaded.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
            raise ConfigError(f"openspiel:{game} is a mean-field game, which has no players to ask")
        state = loaded.new_initial_state()
        if not state.is_chance_node():
            state.legal_actions()  # raises where the game cannot list its moves
    return loaded
