"""Who sits where: the casts of one start, as a pure function of the seats, the seed of the run
and the number of the start."""

from __future__ import annotations

import random
from collections.abc import Mapping

from gem_ma.config.training import Seating
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Seat


def casts(cast: Mapping[str, Seat], how: Seating, seed: int, start: int) -> list[dict[str, Seat]]:
    """The casts with which one start is played: `fixed` as it is; `random` one permutation of the
    players; `swap` every rotation of them.

    A player is all that a seat holds: behaviour, options, policies. With two agents, `swap` is the
    start once from each side.

    >>> cast = {"a": Seat(policy="x"), "b": Seat(policy="y")}
    >>> [[seat.policy for seat in turned.values()] for turned in casts(cast, "swap", 0, 0)]
    [['x', 'y'], ['y', 'x']]
    """
    agents = list(cast)
    players = list(cast.values())
    # by the number of the start in the run, so that the same task is met from both sides in time
    if how == "random":
        random.Random(stable_seed(seed, "seats", start)).shuffle(players)
    # rotations, not permutations: n casts, in which every player has every seat once
    turns = plays_per_start(how, len(agents))
    return [
        dict(zip(agents, players[turn:] + players[:turn], strict=True)) for turn in range(turns)
    ]


def plays_per_start(how: Seating, agents: int) -> int:
    """How many casts one start has."""
    return agents if how == "swap" else 1
