"""What was played for a step, as a training passes it on, and as a checkpoint holds it where it was
played ahead (`gem_ma.training.loop.overlap`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import DataError, GemMaError
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.record.images import with_bytes

FILE = "episodes@ahead"  # what the names of such files of a checkpoint begin with


@dataclass(frozen=True, slots=True)
class Played:
    """What was played for a step (from 0): its `plays` in the order of their plans, after them
    what was played in the place of some (`refills`), and the branches.

    `aside`: the ids of those that others took the place of. `forks`, `refilled` and `chosen` (the
    tasks that a curriculum took) are logged.
    """

    step: int
    plays: tuple[Episode, ...]
    branches: tuple[Episode, ...] = ()
    forks: Mapping[str, Any] | None = None
    refills: tuple[Episode, ...] = ()
    aside: frozenset[tuple[str, int, int]] = frozenset()
    refilled: Mapping[str, Any] | None = None
    chosen: Mapping[str, Any] | None = None

    @property
    def episodes(self) -> list[Episode]:
        """All that is recorded."""
        return [*self.plays, *self.refills, *self.branches]

    @property
    def taught(self) -> list[Episode]:
        """All that is learned from."""
        return [episode for episode in self.episodes if episode.id not in self.aside]

    @property
    def counts(self) -> dict[str, Mapping[str, Any]]:
        """What is logged of forks, refills and chosen tasks, where there are any."""
        told = {"forks": self.forks, "refill": self.refilled, "curriculum": self.chosen}
        return {name: numbers for name, numbers in told.items() if numbers is not None}

    def with_images(self, bytes_of: Callable[[str], bytes]) -> Played:
        """The same with the bytes of all images: lines of the record have their digests alone."""
        plays, refills, branches = (
            tuple(with_bytes(episode, bytes_of) for episode in episodes)
            for episodes in (self.plays, self.refills, self.branches)
        )
        return replace(self, plays=plays, refills=refills, branches=branches)

    def dump(self) -> bytes:
        """A file of a checkpoint: a line of facts, then one per episode."""
        # whole: played again after a resume, they would come from weights that are a step newer
        note: dict[str, Any] = {"step": self.step, "plays": len(self.plays), "forks": self.forks}
        if self.refilled is not None:
            note |= {"refills": len(self.refills), "refilled": self.refilled}
            note["aside"] = sorted(map(list, self.aside))
        if self.chosen is not None:
            note["chosen"] = self.chosen
        lines = (json.dumps(note), *map(dump_episode, self.episodes))
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def load(cls, data: bytes) -> Played:
        """The inverse of `dump`. Raises DataError."""
        try:
            head, *lines = data.decode().rstrip("\n").split("\n")
            note = json.loads(head)
            episodes = tuple(map(load_episode, lines))
            first = note["plays"]
            refills = note.get("refills", 0)
            return cls(
                int(note["step"]),
                episodes[:first],
                episodes[first + refills :],
                note["forks"],
                episodes[first : first + refills],
                frozenset(
                    (str(task), int(seed), int(n)) for task, seed, n in note.get("aside", ())
                ),
                note.get("refilled"),
                note.get("chosen"),
            )
        # RecursionError: JSON that is nested too deep; all of these are damage
        except (ValueError, KeyError, TypeError, RecursionError, GemMaError) as error:
            raise DataError(
                f"the episodes that a checkpoint holds cannot be read ({type(error).__name__}:"
                f" {error})"
            ) from error


def dumped(ahead: Iterable[Played]) -> dict[str, bytes]:
    """The files of a checkpoint, one for each step."""
    # the first is called as in checkpoints of before there could be several
    return {
        f"{FILE}{f'-{number}' if number > 1 else ''}.jsonl": played.dump()
        for number, played in enumerate(ahead, 1)
    }
