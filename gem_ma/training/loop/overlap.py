"""Playing ahead: the episodes of the next step are sampled while this step's update runs, so a
learner is off-policy by one publish.

The update runs in a thread, on modules of its own; the loop goes on sampling from what was
published before. Both end before anything is published, so timing never decides which weights
played what. Replies carry their version, and a checkpoint holds the episodes that were played
ahead, as lines of the record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gem_ma.codec import dump_episode, load_episode
from gem_ma.episode import Episode
from gem_ma.errors import DataError, GemMaError

FILE = "episodes@ahead.jsonl"  # of a checkpoint
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Played:
    """What was played for a step (from 0): its `plays` in the order of their plans, the branches
    after them, and what is logged of forks."""

    step: int
    plays: tuple[Episode, ...]
    branches: tuple[Episode, ...] = ()
    forks: Mapping[str, Any] | None = None

    @property
    def episodes(self) -> list[Episode]:
        """All that is learned from and recorded."""
        return [*self.plays, *self.branches]

    def dump(self) -> bytes:
        """A file of a checkpoint: a line of facts, then one per episode."""
        # whole: played again after a resume, they would come from weights that are a step newer
        head = json.dumps({"step": self.step, "plays": len(self.plays), "forks": self.forks})
        return "".join(f"{line}\n" for line in (head, *map(dump_episode, self.episodes))).encode()

    @classmethod
    def load(cls, data: bytes) -> Played:
        """The inverse of `dump`. Raises DataError."""
        try:
            head, *lines = data.decode().rstrip("\n").split("\n")
            note, episodes = json.loads(head), tuple(map(load_episode, lines))
            return cls(
                int(note["step"]),
                episodes[: note["plays"]],
                episodes[note["plays"] :],
                note["forks"],
            )
        # RecursionError: JSON that is nested too deep; all of these are damage
        except (ValueError, KeyError, TypeError, RecursionError, GemMaError) as error:
            raise DataError(
                f"the episodes that a checkpoint holds cannot be read ({type(error).__name__}:"
                f" {error})"
            ) from error


async def beside(work: Callable[[], S], play: Coroutine[Any, Any, T]) -> tuple[S, T]:
    """The results of `work`, which runs in a thread, and of `play`, which runs here meanwhile. Both
    have ended when this returns or raises; of two errors the one of `work` is raised.
    """
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    playing = asyncio.ensure_future(play)
    try:
        await asyncio.wait((thread, playing), return_when=asyncio.FIRST_EXCEPTION)
        # an update that failed ends the run, so playing on would be for nothing
        if thread.done() and thread.exception() is not None:
            playing.cancel()
        await asyncio.gather(thread, playing, return_exceptions=True)
        return thread.result(), playing.result()
    finally:  # a thread cannot be cancelled; the event loop waits for it when it closes
        playing.cancel()
