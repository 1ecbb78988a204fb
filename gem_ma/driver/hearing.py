"""Behaviours that want to know how a play begins and ends, such as a program outside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Sampling

Player = TypeVar("Player")


@runtime_checkable
class HearsPlay(Protocol):
    """A behaviour that is told how the policy of its seat samples, None where it has none; and how
    its play ended, whatever ended it but a cancelled run."""

    def hear_begin(self, sampling: Sampling | None) -> None: ...
    def hear_end(self, episode: Episode) -> None: ...


def hears(player: object) -> TypeGuard[HearsPlay]:
    """Whether a behaviour is told of its play."""
    # The name first: most behaviours lack it, and for them `isinstance` of a protocol takes 40 us
    # in Python 3.11, twice a seat and play, which is a tenth of a short play.
    return hasattr(player, "hear_end") and isinstance(player, HearsPlay)


def begun(player: Player, policy: Policy | None) -> Player:
    """The player of a seat, told how its policy samples."""
    if hears(player):
        player.hear_begin(None if policy is None else policy.sampling)
    return player


def ended(players: Iterable[object], episode: Episode) -> Episode:
    """The episode, told to those of its players that want to know it."""
    for player in players:
        if hears(player):
            player.hear_end(episode)
    return episode
