"""Environments of other libraries as scenarios: `openspiel:kuhn_poker`, `gymnasium:FrozenLake-v1`.

`CATALOG` says which class opens what stands behind a prefix; it is called with the rest of the id
and the options, as `OpenSpiel("goofspiel", num_cards=4)`. An adapter imports its library when it
is made, never when it is listed, and each library is an extra of the prefix's name.

`wrap` is for an environment object that a user has already.

Decisions: docs/decisions.md#worlds
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_ma.kernel.effects import Scenario

CATALOG: dict[str, str] = {
    "gem": "gem_ma.worlds.gem:Gem",
    "gymnasium": "gem_ma.worlds.gymnasium:Gymnasium",
    "openspiel": "gem_ma.worlds.openspiel:OpenSpiel",
    "pettingzoo": "gem_ma.worlds.pettingzoo:PettingZoo",
    "reasoning_gym": "gem_ma.worlds.reasoning_gym:ReasoningGym",
    "sklearn": "gem_ma.worlds.sklearn:Digits",
    "textarena": "gem_ma.worlds.textarena:TextArena",
    "textworld": "gem_ma.worlds.textworld:TextWorld",
}


def wrap(env: Any, **options: Any) -> Scenario:
    """A user's Gymnasium or PettingZoo environment (AEC or Parallel) as a scenario. `env`: the
    object, of which every play gets a copy, or a function that makes one. Options are those of the
    adapter: `turns`, `actions`, `brief`, `chance`, `foul`, `zero_sum`, `worst`, `listed`. Raises
    ConfigError where `env` is not such an environment, or cannot be copied.

    >>> import gymnasium
    >>> from gem_ma.kernel.scenario import Game
    >>> game = Game(wrap(gymnasium.make("FrozenLake-v1", render_mode="ansi")), seed=1)
    >>> game.pending["player"].legal
    ('left', 'down', 'right', 'up')
    """
    from gem_ma.worlds.wrapping import wrapped  # late: a catalog imports no adapter

    return wrapped(env, options)
