"""Plays that are one play again: where nobody samples, and world and players draw nothing that
shows, thirty seeds are thirty copies, and tell no more than one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gem_ma.kernel.episode import Episode

ONE_PLAY = "deterministic: 1 play"  # the method of an interval that such plays have not


class Copies:
    """Whether the plays that it is shown are copies: of one task, of a cast without a policy, and
    alike in all that was shown, offered, done and paid. Equal returns alone say nothing."""

    def __init__(self) -> None:
        self.first: Episode | None = None
        self.count = 0
        self.alike = True

    def add(self, episode: Episode) -> None:
        """Takes in the next play."""
        if not self.alike:
            return
        self.count += 1
        if self.first is None:
            seats = episode.cast.values()
            self.first = episode
            self.alike = not any(seat.policy or seat.policies for seat in seats)
            return
        self.alike = _record(episode) == _record(self.first)

    def watching(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """The same episodes, each taken in as it passes."""
        for episode in episodes:
            self.add(episode)
            yield episode

    @property
    def one_play(self) -> bool:
        """Whether there are several plays, and all are one."""
        return self.alike and self.count > 1


def _record(episode: Episode) -> tuple[Any, ...]:
    return (
        episode.task,
        episode.world,
        episode.end,
        episode.cast,
        episode.ledger,
        episode.turns,
    )


def as_one_play(scores: Any) -> Any:
    """The scores of such plays: every interval in them is of one play, and has no bounds."""
    if not isinstance(scores, dict):
        return scores
    if {"mean", "low", "high", "n", "method"} <= scores.keys():
        return {**scores, "low": None, "high": None, "n": min(1, scores["n"]), "method": ONE_PLAY}
    return {key: as_one_play(value) for key, value in scores.items()}
