"""Sokoban: push boxes onto goals. Type `gem-ma run sokoban`.

A room is made by playing backwards from the solved one, so it can always be solved, and within its
turns. The signs are those of the usual level files (XSB).
"""

from __future__ import annotations

import random
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from gem_ma.scenarios.games.slides import FORM, STEPS, listed
from gem_ma.scenarios.games.solo import Board, Outcome, Solo, ladder

TRIES = 4  # rooms that are drawn before one with a box on its goal is taken


class Size(NamedTuple):
    """A square of `side` x `side`, its border of wall included."""

    side: int
    boxes: int
    turns: int


class Room(NamedTuple):
    """Squares are numbers, row by row."""

    side: int
    floor: frozenset[int]
    goals: frozenset[int]
    boxes: frozenset[int]
    player: int


class Sokoban(Solo):
    """One agent pushes boxes onto goals; it can neither pull them nor push two at once."""

    levels = {
        "easy": (Size(6, 2, 20),),
        "hard": (Size(8, 4, 50),),
        "random": (Size(6, 2, 20), Size(8, 5, 50)),
    }
    form = FORM
    example = "up"
    baseline_casts = ladder("sokoban")
    default_cast = baseline_casts["simple"]

    def __init__(
        self,
        level: str = "easy",
        side: int | None = None,
        boxes: int | None = None,
        turns: int | None = None,
        rewards: str = "win",
        foul: str = "",
    ) -> None:
        super().__init__(level, rewards, foul, side=side, boxes=boxes, turns=turns)

    def problem(self, size: Size) -> str:
        if not 5 <= size.side <= 20:
            return f"the side is 5 to 20 squares; got {size.side}"
        most = (size.side - 2) ** 2 // 5
        if not 1 <= size.boxes <= most:
            return f"there are 1 to {most} boxes in a room of this side; got {size.boxes}"
        # a box is pulled off its goal by one step at least, and pushed back by one
        return "" if size.turns >= 4 else f"a room takes 4 turns at least; got {size.turns}"

    def board(self, size: Size, rng: random.Random) -> Board:
        return Warehouse(room(size, rng))


class Warehouse(Board):
    """A room in play."""

    def __init__(self, room: Room) -> None:
        self.side = room.side
        self.floor = room.floor
        self.goals = room.goals
        self.boxes = set(room.boxes)
        self.player = room.player
        self.steps = steps(room.side)

    def rules(self) -> str:
        return (
            "Sokoban: push every box onto a goal. You walk up, down, left or right, and push a box"
            " that stands in your way if the square behind it is free. # wall, - floor, @ you,"
            " + you on a goal, $ box, . goal, * box on a goal."
        )

    def text(self) -> str:
        return drawn(self.side, self.floor, self.goals, self.boxes, self.player)

    def moves(self) -> tuple[str, ...]:
        return listed([name for name in self.steps if self._target(name) is not None])

    def _target(self, name: str) -> int | None:
        """The square that a move leads to; None where something stands in the way."""
        step = self.steps[name]
        target = self.player + step
        if target in self.boxes:
            behind = target + step
            return target if behind in self.floor and behind not in self.boxes else None
        return target if target in self.floor else None

    def move(self, *parts: str) -> Outcome:
        name = parts[0].lower()
        target = self._target(name)
        if target is None:
            return Outcome(f"The way {name} is blocked.")
        self.player = target
        if target not in self.boxes:
            return Outcome(f"You walked {name}.")
        self.boxes.remove(target)
        self.boxes.add(target + self.steps[name])
        if self.boxes == self.goals:
            return Outcome("All boxes are on goals.", 1.0, "win")
        return Outcome(f"You pushed a box {name}.")

    def last(self, paid: float) -> float:
        return len(self.boxes & self.goals) / len(self.goals)


@lru_cache(maxsize=32)
def steps(side: int) -> dict[str, int]:
    """Direction -> what is added to the number of a square."""
    return {name: row * side + column for name, (row, column) in STEPS.items()}


def drawn(
    side: int,
    floor: Collection[int],
    goals: Collection[int],
    boxes: Collection[int],
    player: int,
) -> str:
    """The room in signs, a line for each row."""
    signs = ["#"] * (side * side)
    for square in floor:
        signs[square] = "-"
    for square in goals:
        signs[square] = "."
    for square in boxes:
        signs[square] = "*" if square in goals else "$"
    signs[player] = "+" if player in goals else "@"
    return "\n".join(["".join(signs[row : row + side]) for row in range(0, side * side, side)])


def room(size: Size, rng: random.Random) -> Room:
    """A room whose boxes all stand off their goals, or as many of them as some tries could pull
    away."""
    best = _pulled(size, rng)
    tries = 1
    # one box at least: a room that is solved already is not a play
    while (off := len(best.boxes - best.goals)) < size.boxes and (tries < TRIES or not off):
        made = _pulled(size, rng)
        tries = tries + 1
        best = max(best, made, key=lambda room: len(room.boxes - room.goals))
    return best


def _pulled(size: Size, rng: random.Random) -> Room:
    """A room that was played backwards for at most `turns` steps. Sets of squares are the bits of
    an integer here, so that a way is looked for in microseconds."""
    side = size.side
    turns = size.turns
    inner = [row * side + column for row in range(1, side - 1) for column in range(1, side - 1)]
    rng.shuffle(inner)
    # a few walls inside; more of them leave rooms in which nothing can be pulled
    floor = inner[len(inner) // 8 :]
    goals = floor[: size.boxes]
    player = floor[size.boxes]
    free = _bits(floor)
    all_goals = _bits(goals)
    # backward steps so far; forward play needs no more
    boxes = all_goals
    walked = 0
    more = rng.randint(0, size.boxes)  # pulls after all boxes are off their goals
    while walked < turns and (boxes & all_goals or more):
        more -= not boxes & all_goals
        room_left = free & ~boxes
        reach = _reach(1 << player, room_left, side)
        # the player stands beside a box and steps away from it: the box follows
        options = [
            (box, step)
            for box in floor
            if (boxes & all_goals or boxes) >> box & 1
            for step in steps(side).values()
            if reach >> (box + step) & 1 and room_left >> (box + 2 * step) & 1
        ]
        if not options:
            break
        box, step = rng.choice(options)
        # what the player walks before the first pull comes after the last push, so it is free
        walked += _length(1 << player, 1 << (box + step), room_left, side) if walked else 0
        for _ in range(rng.randint(1, 3)):
            away = box + 2 * step
            if walked >= turns or not (free & ~boxes) >> away & 1:
                break
            boxes ^= 1 << box | 1 << (box + step)
            box = box + step
            player = away
            walked = walked + 1
    standing = frozenset(square for square in floor if boxes >> square & 1)
    return Room(side, frozenset(floor), frozenset(goals), standing, player)


def _bits(squares: Collection[int]) -> int:
    return sum(1 << square for square in squares)


def _spread(squares: int, side: int) -> int:
    """The squares beside these; the walls around a room keep them from running over its edge."""
    return squares << 1 | squares >> 1 | squares << side | squares >> side


def _reach(start: int, free: int, side: int) -> int:
    """All squares that can be walked to."""
    reach = start
    edge = start
    while edge:
        edge = _spread(edge, side) & free & ~reach
        reach |= edge
    return reach


def _length(start: int, target: int, free: int, side: int) -> int:
    """Steps of the shortest way to a square that can be walked to."""
    reach = start
    length = 0
    while not reach & target:
        reach |= _spread(reach, side) & free
        length += 1
    return length
