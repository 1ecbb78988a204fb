"""Players of `hanoi`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gem_ma.agents.games.player import GamePlayer, Texts

TOWER = re.compile(r"^([ABC]):([\d ]*)$", re.MULTILINE)
MOVED = re.compile(r"Disk (\d+) is on tower [ABC] now")

Towers = Mapping[str, Sequence[int]]  # name -> disks, the top one last


def towers_of(text: str) -> Towers:
    """The towers in a text."""
    towers = TOWER.findall(text)
    return {name: [int(disk) for disk in disks.split()] for name, disks in towers}


class HanoiSimple(GamePlayer):
    """Draws a move, but never moves the same disk twice in a row."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        towers = towers_of(texts[-1])
        # two moves of one disk could have been one
        moved = MOVED.search(texts[-1])
        disk = int(moved[1]) if moved else 0
        tops = {name: disks[-1] for name, disks in towers.items() if disks}
        others = [move for move in legal if tops.get(move[0]) != disk]
        return self.any_of(others or legal)


class HanoiStrong(GamePlayer):
    """Plays the shortest way, from any state."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        return best_move(towers_of(texts[-1])) or self.any_of(legal)


def best_move(towers: Towers) -> str:
    """The first move of the shortest way to tower C; "" where all disks are there.

    >>> best_move({"A": [3, 2, 1], "B": [], "C": []})
    'A C'
    """
    where = {disk: name for name, disks in towers.items() for disk in disks}
    target, move = "C", ""
    # a disk that must move needs all smaller ones on the third tower first
    for disk in sorted(where, reverse=True):
        if where[disk] != target:
            move = f"{where[disk]} {target}"
            target = (set("ABC") - {where[disk], target}).pop()
    return move
