"""OpenSpiel's games as scenarios: `openspiel:kuhn_poker`; `openspiel:goofspiel`, `num_cards: 4`.

The options are OpenSpiel's parameters. Chance is drawn by the play's own rng, so small games have
exact exploitability here too. A player is shown its information state, where nothing hidden stands.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from gem_ma.kernel.effects import Reward, Tell
from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds.foreign import LISTED, Foreign
from gem_ma.worlds.guest import library, starting, still, unknown
from gem_ma.worlds.line import Stop

# A first call in a process of its own, for libraries in C++ that end their process where they
# should raise.

# what making a scenario asks of a game, at most
OPENSPIEL = """
import json, sys, pyspiel
state = pyspiel.load_game(sys.argv[1], json.loads(sys.argv[2])).new_initial_state()
while state.is_chance_node():
    state.apply_action(state.legal_actions()[0])
state.legal_actions()
"""


TRIAL_S = 60.0  # of a trial, at most; what a game takes to be made is below a second


def openspiel_survives(game: str, parameters: Mapping[str, Any]) -> None:
    """Raises ConfigError where a game with these parameters ends the process, or never comes back.
    Without any it does neither: all games are played in the tests."""
    if parameters and (fault := _fault(OPENSPIEL, game, json.dumps(parameters))):
        options = ", ".join(f"{name}: {value!r}" for name, value in parameters.items())
        raise ConfigError(f"openspiel:{game}: the library {fault} with {options}")


# what Python raises, the caller meets again; a library may also call exit() by itself
_CAUGHT = """
import sys
code = sys.argv.pop(1)
try:
    exec(code)
except Exception:
    pass
"""


@cache
def _fault(code: str, *words: str) -> str:
    """What a process does instead of coming to its end; empty where it comes there."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CAUGHT, code, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TRIAL_S,
        ).returncode
    except subprocess.TimeoutExpired:
        return f"does not come back within {TRIAL_S:g} s"
    if not done:
        return ""
    return f"ends its process ({f'signal {-done}' if done < 0 else f'code {done}'})"


NO_CLONE = ("morpion_solitaire",)  # a clone of which ends the process when it is stepped


class OpenSpiel(Foreign):
    """A game of OpenSpiel in text: private information states, legal strings, exact forks."""

    version = 2  # 1 paid again at draws what was paid before them
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
            raise TypeError("its clone is not a copy, so a fork steps again")
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
        if state.is_chance_node():
            return ()  # the library says nothing of rewards there; the next stop pays the step
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
