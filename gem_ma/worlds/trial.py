"""A first call in a process of its own, for libraries in C++ that end their process where they
should raise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from gem_ma.kernel.errors import ConfigError

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
