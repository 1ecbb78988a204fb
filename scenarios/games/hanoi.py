"""Tower of Hanoi: no chance, nothing hidden. Type `gem-ma run hanoi`."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import NamedTuple

from gem_ma.scenarios.games.solo import Board, Form, Outcome, Solo, ladder

TOWERS = "ABC"
PAIRS = tuple((source, target) for source in TOWERS for target in TOWERS if source != target)


class Size(NamedTuple):
    """`disks` on tower A; the fewest moves are 2^disks - 1."""

    disks: int
    turns: int


class Hanoi(Solo):
    """One agent moves a tower of disks from A to C, never a larger one onto a smaller one."""

    levels = {
        "easy": (Size(3, 10),),
        "hard": (Size(5, 35),),
        "random": (Size(3, 10), Size(4, 20), Size(5, 35)),
    }
    form = Form(r"([ABC])\s*,?\s*([ABC])")
    example = "A C"
    baseline_casts = ladder("hanoi")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        disks: int | None = None,
        turns: int | None = None,
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        super().__init__(level, rewards, foul, disks=disks, turns=turns)
        # only the level `random` draws anything
        self.chance = len(self.sizes) > 1

    def problem(self, size: Size) -> str:
        return "" if 1 <= size.disks <= 20 else f"there are 1 to 20 disks; got {size.disks}"

    def board(self, size: Size, rng: random.Random) -> Board:
        return Towers(size.disks)


class Towers(Board):
    """Three towers of disks, the largest disk first."""

    def __init__(self, disks: int) -> None:
        self.disks = disks
        tower = list(range(disks, 0, -1))
        self.towers: dict[str, list[int]] = {"A": tower, "B": [], "C": []}
        self.lines = {"A": " ".join(["A:", *map(str, tower)]), "B": "B:", "C": "C:"}
        self._refresh()

    def rules(self) -> str:
        return (
            f"Tower of Hanoi: move all {self.disks} disks from tower A to tower C. A move takes"
            " the top disk of a tower to another one, never onto a smaller disk. The top disk"
            " stands last."
        )

    def text(self) -> str:
        return self._text

    def moves(self) -> tuple[str, ...]:
        return self._moves

    def _refresh(self) -> None:
        # after a move alone: many answers of a beginner change nothing
        self._text = "\n".join(self.lines.values())
        self._moves = listed(*[disks[-1] if disks else 99 for disks in self.towers.values()])

    def move(self, *parts: str) -> Outcome:
        source = parts[0].upper()
        target = parts[1].upper()
        disks = self.towers[source]
        onto = self.towers[target]
        if not disks:
            return Outcome(f"Tower {source} is empty.")
        if onto and disks[-1] > onto[-1]:
            return Outcome(f"Disk {disks[-1]} is larger than disk {onto[-1]} on tower {target}.")
        onto.append(disks.pop())
        for name in (source, target):
            self.lines[name] = " ".join([f"{name}:", *map(str, self.towers[name])])
        self._refresh()
        if len(self.towers["C"]) == self.disks:
            return Outcome("All disks are on tower C.", 1.0, "win")
        return Outcome(f"Disk {onto[-1]} is on tower {target} now.")

    def last(self, paid: float) -> float:
        return len(self.towers["C"]) / self.disks


# the same tuple each time, which is checked once
@lru_cache(maxsize=4096)
def listed(*tops: int) -> tuple[str, ...]:
    """The moves where these are the top disks of A, B and C."""
    top = dict(zip(TOWERS, tops, strict=True))
    return tuple(f"{a} {b}" for a, b in PAIRS if top[a] < top[b])
