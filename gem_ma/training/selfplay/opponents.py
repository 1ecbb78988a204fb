"""What an opponent may be, and how likely one is drawn. Knows seats and settings; holds no weights
and no results.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gem_ma import registry
from gem_ma.config.playing import AgentSettings
from gem_ma.config.settings import Config
from gem_ma.config.training import PoolSettings, Seating, TrainSettings
from gem_ma.driver.behaviour import needs_policy
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError

Seated = Mapping[str, AgentSettings]


def prioritised(rates: Sequence[float], settings: PoolSettings) -> list[float]:
    """The weight of each rival by the learner's win rate p against it: (1-p)^2 under `hard`, p(1-p)
    under `even`; all alike where all are 0.

    >>> prioritised([0.5, 1.0], PoolSettings()), prioritised([1.0, 1.0], PoolSettings())
    ([0.25, 0.0], [1.0, 1.0])
    """
    weights = [(1 - p) ** 2 if settings.prioritised == "hard" else p * (1 - p) for p in rates]
    return weights if sum(weights) > 0 else [1.0] * len(weights)


def anchor_seat(seat: Seat, anchor: str, policies: Iterable[str]) -> Seat:
    """The seat of an anchor: the same behaviour with the frozen policy of this name, else the
    behaviour of this name."""
    return replace(seat, policy=anchor) if anchor in policies else Seat(anchor)


def check_opponents(config: Config, settings: TrainSettings, casts: Sequence[Seated]) -> None:
    """Raises ConfigError for opponents that this config cannot have; `casts`: who sits in each
    world that it plays."""
    wanted = settings.opponents
    if wanted is None:
        return
    for name in wanted.anchors:
        if name in settings.policies:
            raise ConfigError(
                f"train.opponents.anchors.{name}: an anchor stands still, and this policy learns"
            )
        # an anchor is a policy or a behaviour; a behaviour that wants a policy has none here
        try:
            sampled = name not in config.policies and needs_policy(
                name, registry.load("agents", name)
            )
        except ConfigError as error:
            raise ConfigError(f"train.opponents.anchors.{name}: {error}") from error
        if sampled:
            raise ConfigError(
                f"train.opponents.anchors.{name}: this behaviour samples from a policy; name the"
                " policy instead"
            )
    # a record with such a name could not say who played
    odd = [name for name in config.policies if "@" in name]
    if odd:
        raise ConfigError(
            f"policies.{odd[0]}: with train.opponents, a name with @ is that of a snapshot"
        )
    learned = max(sum(seat.policy in settings.policies for seat in cast.values()) for cast in casts)
    if wanted.uniform + wanted.prioritised > 0 and learned < 2:
        raise ConfigError(
            "train.opponents: the pool holds snapshots of learned policies, and no other agent is"
            " played by one; use anchors"
        )
    if wanted.latest < 1 and all(len(cast) < 2 for cast in casts):
        raise ConfigError("train.opponents: this scenario has one agent, which has no opponents")


# Who sits where: the casts of one start, as a pure function of the seats, the seed of the run and
# the number of the start.


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
