"""Actions and observations of Gymnasium and PettingZoo in words: names of actions, numbers read out
of an answer, boards and MiniGrid's field of view as text."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

NAMES = {  # of toy_text, whose actions are numbers
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
}
MOST = 4096  # choices of several numbers at once that are listed
# bounded, and without another mark inside: an environment of a user may show anything
_COLOURED = re.compile(r"\x1b\[\d{1,3}(?:;\d{1,3}){0,4}m([^\x1b\n]*)\x1b\[0m")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
# MiniGrid's codes
KINDS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOORS = ("open", "closed", "locked")


def action_names(env: Any, name: str, typed: Sequence[str] | None) -> tuple[str, ...] | None:
    """The actions of a finite space in order; None where an answer is a text or numbers. Raises
    ValueError where the names that were typed do not fit."""
    space = env.action_space
    kind = type(space).__name__
    if kind == "MultiDiscrete" and math.prod(map(int, space.nvec.flat)) <= MOST:
        ranges = [range(int(size)) for size in space.nvec.flat]
        return tuple(" ".join(map(str, pick)) for pick in itertools.product(*ranges))
    if kind != "Discrete":
        return None
    count, start = int(space.n), int(space.start)
    family = next((key for key in NAMES if name.startswith(key)), "")
    enum = getattr(env.unwrapped, "actions", ())
    members = tuple(getattr(action, "name", "") for action in enum) if _listable(enum) else ()
    for names in (tuple(typed or ()), NAMES.get(family, ()), members):
        if len(names) == count and all(names):
            return names
    if typed:
        raise ValueError(f"{name} has {count} actions; got {len(typed)} names of actions")
    return tuple(str(start + number) for number in range(count))


def _listable(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (str, dict))


def move_of(space: Any, choice: Any) -> Any:
    """The action behind a choice: the place of a name, or a text. None where it is none."""
    kind = type(space).__name__
    if kind == "Discrete":
        return int(space.start) + int(choice)
    if kind == "MultiDiscrete" and not isinstance(choice, str):
        sizes = [int(size) for size in space.nvec.flat]
        digits = []
        for size in reversed(sizes):
            choice, digit = divmod(int(choice), size)
            digits.append(digit)
        return space.dtype.type(digits[::-1]).reshape(space.shape)
    if kind == "Text":
        return choice if space.contains(choice) else None
    numbers = [float(word) for word in _NUMBER.findall(choice)]
    if kind != "Box" or len(numbers) != math.prod(space.shape):
        return None
    # beyond its bounds an answer means the bound
    filled = space.low.copy()
    filled.flat[:] = numbers
    return filled.clip(space.low, space.high)


def text_of(env: Any, seen: Any) -> str:
    """An observation in words: what the environment draws as text, else its numbers."""
    if getattr(env, "render_mode", None) == "ansi":
        # toy_text says by colour alone where the agent is
        return _COLOURED.sub(r"[\1]", str(env.render())).strip("\n")
    return words(seen)


def words(seen: Any) -> str:
    """A value of an observation space in words."""
    if isinstance(seen, str):
        return seen
    if isinstance(seen, dict):
        if getattr(seen.get("image"), "shape", ())[-1:] == (3,) and "mission" in seen:
            return field_of_view(seen)
        parts = (f"{key}: {words(value)}" for key, value in seen.items() if key != "action_mask")
        return "\n".join(parts)
    if isinstance(seen, tuple):
        return ", ".join(words(value) for value in seen)
    if getattr(seen, "shape", ()):
        flat = seen.ravel().tolist()
        if flat.count(0) * 2 > len(flat) > 16:  # mostly zeros: only the others are said
            some = " ".join(f"{i}:{value:g}" for i, value in enumerate(flat) if value)
            return f"index:value {some or 'all 0'}"
        return " ".join(f"{value:.4g}" for value in flat)
    return f"{seen:.4g}" if isinstance(seen, float) else str(seen)


def field_of_view(seen: Any) -> str:
    """MiniGrid's view as a mission and the things in sight, nearest first. The image is
    [column][row] of (kind, colour, state) codes; the agent stands in the middle of the last row and
    looks along its column."""
    image = seen["image"].tolist()
    here, last = len(image) // 2, len(image[0]) - 1
    things, walls = [], []
    for column, cells in enumerate(image):
        for row, (kind, colour, state) in enumerate(cells):
            side, ahead = column - here, last - row
            if KINDS[kind] == "wall":
                if not (side and ahead):
                    walls.append((abs(side) + ahead, _where(side, ahead)))
            elif kind > 3 and KINDS[kind] != "agent":
                door = f"{DOORS[state]} " if KINDS[kind] == "door" else ""
                name = f"{door}{COLOURS[colour]} {KINDS[kind]}"
                # what lies where the agent stands is what it carries
                place = _where(side, ahead) if side or ahead else "in your hands"
                things.append((abs(side) + ahead, f"{name} {place}"))
    # of each wall in line with the agent only the nearest stone tells something
    near: dict[str, str] = {}
    for _, place in sorted(walls):
        near.setdefault(place.split()[-1], f"wall {place}")
    listed = [*(text for _, text in sorted(things)), *near.values()]
    return f"Mission: {seen['mission']}\nYou see: {', '.join(listed) or 'nothing'}."


def _where(side: int, ahead: int) -> str:
    parts = [f"{ahead} ahead"] * bool(ahead)
    parts += [f"{abs(side)} {'right' if side > 0 else 'left'}"] * bool(side)
    return " and ".join(parts)
