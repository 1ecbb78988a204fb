"""OpenSpiel's games as scenarios: `openspiel:kuhn_poker`; `openspiel:goofspiel`, `num_cards: 4`.

The options are OpenSpiel's parameters of the game. Chance is drawn by the play's own rng, so small
games have exact exploitability here too. A player is shown its information state, which holds
nothing that is hidden from it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from gem_ma.adapters.foreign import LISTED, Foreign
from gem_ma.adapters.guest import library
from gem_ma.adapters.line import Stop
from gem_ma.effects import Reward, Tell
from gem_ma.errors import ConfigError


class OpenSpiel(Foreign):
    """A game of OpenSpiel in text: private information states, legal strings, exact forks."""

    borrows = False  # C++

    def __init__(self, game: str, *, listed: int = LISTED, **parameters: Any) -> None:
        self.game, self.parameters, self.listed = game, parameters, listed
        self.key = f"openspiel {json.dumps([game, parameters], sort_keys=True)}"
        loaded = _loaded(game, parameters)
        kind, types = loaded.get_type(), library("pyspiel", "openspiel").GameType
        # of these games the outcomes cannot be listed: the game draws them with a seed of its own
        self.seeded = kind.chance_mode == types.ChanceMode.SAMPLED_STOCHASTIC
        self.chance = kind.chance_mode != types.ChanceMode.DETERMINISTIC
        self.zero_sum = kind.utility == types.Utility.ZERO_SUM
        self.cooperative = kind.utility == types.Utility.IDENTICAL
        self.agents = tuple(f"player_{seat}" for seat in range(loaded.num_players()))
        self.ends_within = loaded.max_game_length()
        self.worst = float(loaded.min_utility())
        self.long_name = kind.long_name
        self.paid_by_step = kind.reward_model == types.RewardModel.REWARDS
        perfect = kind.information == types.Information.PERFECT_INFORMATION
        # the board alone where all is open: an information state repeats the moves before it
        self.view = (
            "board"
            if perfect
            else "information"
            if kind.provides_information_state_string
            else "observation"
            if kind.provides_observation_string
            else ""
        )
        if not self.view:
            raise ConfigError(f"openspiel:{game} has no text of what a player may see")

    def opened(self, seed: int) -> Any:
        # a game that draws holds its random state itself: such a game is never shared
        drawn = {"rng_seed": seed} if self.seeded else {}
        return _loaded(self.game, {**self.parameters, **drawn}).new_initial_state()

    def copied(self, state: Any) -> Any:
        # a clone of a game that draws would share the random state of the game it belongs to
        if self.seeded:
            raise TypeError("its random state lies in the game")
        return state.clone()

    def stepped(self, state: Any, move: Any, seed: int) -> Any:
        if not isinstance(move, dict):
            state.apply_action(move)
        elif state.is_simultaneous_node():
            state.apply_actions([move.get(agent, 0) for agent in self.agents])
        else:
            (action,) = move.values()
            state.apply_action(action)
        return state

    def stop(self, state: Any) -> Stop:
        before = self._paid(state)
        if state.is_terminal():
            return Stop(before)
        if state.is_chance_node():
            return Stop(before, outcomes=state.chance_outcomes())
        seats = range(len(self.agents))
        asked = (
            [seat for seat in seats if state.legal_actions(seat)]
            if state.is_simultaneous_node()
            else [state.current_player()]
        )
        moves = {self.agents[seat]: _moves(state, seat) for seat in asked}
        return Stop(before, {self.agents[seat]: self._shown(state, seat) for seat in asked}, moves)

    def _paid(self, state: Any) -> tuple[Reward | Tell, ...]:
        if state.is_initial_state():
            count = len(self.agents)
            return (
                Tell(
                    {
                        agent: f"{self.long_name}. You are player {seat} of {count}."
                        for seat, agent in enumerate(self.agents)
                    }
                ),
            )
        over = state.is_terminal()
        if not (over or self.paid_by_step):
            return ()
        amounts = state.rewards() if self.paid_by_step else state.returns()
        if not over and not any(amounts):
            return ()
        values = dict(zip(self.agents, amounts, strict=True))
        return (Reward(values, why="end" if over else "step"),)

    def _shown(self, state: Any, seat: int) -> str:
        if self.view == "board":
            return str(state)
        if self.view == "information":
            return str(state.information_state_string(seat))
        return str(state.observation_string(seat))


def _moves(state: Any, seat: int) -> dict[str, int]:
    """The actions by their names on one line; by number and name where two names are read alike."""
    names = {
        action: " ".join(state.action_to_string(seat, action).split())
        for action in state.legal_actions(seat)
    }
    twins = Counter(name.casefold() for name in names.values())
    return {
        f"{action} {name}" if twins[name.casefold()] > 1 else name: action
        for action, name in names.items()
    }


def _loaded(game: str, parameters: dict[str, Any]) -> Any:
    pyspiel = library("pyspiel", "openspiel")
    name = game.partition("(")[0]
    known = pyspiel.registered_names()
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {len(known)} games"
        raise ConfigError(f"openspiel: no game is called {name!r} ({hint})")
    try:
        with _still():
            loaded = pyspiel.load_game(game, parameters) if parameters else pyspiel.load_game(game)
            _asked_first(loaded)
    except (pyspiel.SpielError, IndexError) as error:  # IndexError: of C++, for a missing parameter
        raise ConfigError(f"openspiel:{game}: {error}") from error
    if loaded.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise ConfigError(f"openspiel:{game} is a mean-field game, which has no players to ask")
    return loaded


def _asked_first(game: Any) -> None:
    """Raises SpielError for a game that cannot list its moves."""
    if game.get_type().dynamics != type(game.get_type()).Dynamics.MEAN_FIELD:
        state = game.new_initial_state()
        if not state.is_chance_node():
            state.legal_actions()


@contextmanager
def _still() -> Iterator[None]:
    """The C++ side writes its errors to the descriptor itself, past Python's `sys.stderr`."""
    sys.stderr.flush()
    held, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(held, 2)
        os.close(held)
        os.close(nowhere)
