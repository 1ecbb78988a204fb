"""Players of `sokoban`."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from gem_ma.agents.games.player import GamePlayer, Texts
from gem_ma.scenarios.games.sokoban import Room, steps

MOST_STATES = 6_000  # of a search; a room of 6 x 6 has fewer
WEIGHT = 1.5  # of the pushes that are left against the way so far
ROOM = re.compile(r"(?:^[#@+$*.-]{5,}\n?)+", re.MULTILINE)

State = tuple[int, frozenset[int]]  # player, boxes


def room_of(text: str) -> Room | None:
    """The room in a text; None where there is none."""
    match = ROOM.search(text)
    if match is None:
        return None
    lines = match[0].split()
    signs = "".join(lines)

    def squares(of: str) -> frozenset[int]:
        return frozenset(square for square, sign in enumerate(signs) if sign in of)

    players = squares("@+")
    if len(signs) != len(lines) ** 2 or not players:
        return None
    floor, goals, boxes = map(squares, ("-@+$*.", ".+*", "$*"))
    return Room(len(lines), floor, goals, boxes, min(players))


class SokobanSimple(GamePlayer):
    """Goes to the nearest push that brings a box nearer to a goal, and looks no further."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        room = room_of(texts[-1])
        if room is None:
            return self.any_of(legal)
        near = nearest(room.side, room.floor, room.goals)
        side, floor, _, boxes, player = room
        for way, box, step in pushes(side, floor, player, boxes):
            # no plan: a box in a corner, or in the way of another one, stays there
            if near.get(box + step, 99) < near.get(box, 99):
                return way[0]
        return self.any_of(legal)


class SokobanStrong(GamePlayer):
    """Searches a way to the end, and plays it."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        room = room_of(texts[-1])
        if room is None:
            return self.any_of(legal)
        state = room.player, room.boxes
        if state not in self.plan:
            self.plan = solution(room)
        return self.plan.get(state) or self.any_of(legal)


@lru_cache(maxsize=256)
def nearest(side: int, floor: frozenset[int], goals: frozenset[int]) -> dict[int, int]:
    """Square -> pushes that bring a box from there to the nearest goal of an empty room. From a
    square that is missing no box ever comes to a goal."""
    result = dict.fromkeys(goals, 0)
    queue = list(goals)
    for square in queue:
        for step in steps(side).values():
            # a box is pulled to `other` from the far side, where the player needs a square too
            other, behind = square - step, square - 2 * step
            if other in floor and behind in floor and other not in result:
                result[other] = result[square] + 1
                queue.append(other)
    return result


def pushes(
    side: int, floor: Collection[int], player: int, boxes: Collection[int]
) -> Iterator[tuple[list[str], int, int]]:
    """(moves up to and with the push, box, step) of every push that can be reached, the nearest
    first."""
    ways: dict[int, list[str]] = {player: []}
    queue = [player]
    for square in queue:
        for name, step in steps(side).items():
            target = square + step
            if target in boxes:
                if target + step in floor and target + step not in boxes:
                    yield [*ways[square], name], target, step
            elif target in floor and target not in ways:
                ways[target] = [*ways[square], name]
                queue.append(target)


def solution(room: Room) -> dict[State, str]:
    """State -> move, for every state on a way to the solved room; {} where none was found. The
    search is A* over pushes, with the pushes that are left counted half as much again."""
    side, floor, goals = room.side, room.floor, room.goals
    near = nearest(side, floor, goals)
    start: State = (room.player, room.boxes)
    came: dict[State, tuple[State, list[str]] | None] = {start: None}
    queue: list[tuple[float, int, int, State]] = [(0.0, 0, 0, start)]
    while queue and len(came) < MOST_STATES:
        _, _, length, state = heapq.heappop(queue)
        player, boxes = state
        if boxes == goals:
            return _way(side, came, state)
        for way, box, step in pushes(side, floor, player, boxes):
            after: State = (box, boxes - {box} | {box + step})
            if after not in came and box + step in near:
                came[after] = (state, way)
                left = sum(near[square] for square in after[1])
                moves = length + len(way)
                # a number that never repeats: states themselves have no order
                entry = (moves + WEIGHT * left, len(came), moves, after)
                heapq.heappush(queue, entry)
    return {}


def _way(
    side: int, came: dict[State, tuple[State, list[str]] | None], state: State
) -> dict[State, str]:
    """The moves that led to a state, by the state in which each is made."""
    plan: dict[State, str] = {}
    while (step := came[state]) is not None:
        before, way = step
        player, boxes = before
        for name in way:
            plan[player, boxes] = name
            player += steps(side)[name]
        state = before
    return plan
