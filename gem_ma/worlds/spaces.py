"""Observations of Gymnasium and PettingZoo in words: what is drawn, numbers, MiniGrid's field of
view as text. What an agent answers is `actions`."""

from __future__ import annotations

import re
from typing import Any

# bounded, and without another mark inside: an environment of a user may show anything
_COLOURED = re.compile(r"\x1b\[\d{1,3}(?:;\d{1,3}){0,4}m([^\x1b\n]*)\x1b\[0m")
# the place in memory that Python prints of an object without a text of its own: it would make every
# play another one
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
# MiniGrid's codes
KINDS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOORS = ("open", "closed", "locked")


def text_of(env: Any, seen: Any) -> str:
    """An observation in words: what the environment draws as text, else its numbers."""
    picture = picture_of(env)
    # toy_text says by colour alone where the agent is
    return words(seen) if picture is None else _COLOURED.sub(r"[\1]", picture).strip("\n")


def picture_of(env: Any) -> str | None:
    """What the environment draws as text; None where it draws nothing."""
    drawn = env.render() if getattr(env, "render_mode", None) == "ansi" else None
    return None if drawn is None else str(drawn)


def words(seen: Any) -> str:
    """A value of an observation space in words."""
    if isinstance(seen, str):
        return seen
    if isinstance(seen, dict):
        if _of_minigrid(seen):
            return field_of_view(seen)
        parts = (f"{key}: {words(value)}" for key, value in seen.items() if key != "action_mask")
        return "\n".join(parts)
    if isinstance(seen, (tuple, list)):
        return ", ".join(words(value) for value in seen)
    if isinstance(seen, (set, frozenset)):  # whose order is another one in every process
        return ", ".join(sorted(map(words, seen)))
    if getattr(seen, "shape", ()):
        flat = seen.ravel().tolist()
        if getattr(seen.dtype, "kind", "f") not in "biuf":  # texts, dates, objects; torch has none
            return _ADDRESS.sub("", " ".join(map(str, flat)))
        if flat.count(0) * 2 > len(flat) > 16:  # mostly zeros: only the others are said
            some = " ".join(f"{i}:{value:g}" for i, value in enumerate(flat) if value)
            return f"index:value {some or 'all 0'}"
        # where an array has a mask, None stands in it
        return " ".join("--" if value is None else f"{value:.4g}" for value in flat)
    return f"{seen:.4g}" if isinstance(seen, float) else _ADDRESS.sub("", str(seen))


def _of_minigrid(seen: Any) -> bool:
    """Whether this is MiniGrid's observation. A user's own may have an image and a mission too, and
    then the codes do not fit, or it is of other numbers."""
    image = seen.get("image")
    if (
        getattr(image, "ndim", 0) != 3
        or image.shape[-1] != 3
        or getattr(image.dtype, "kind", "") not in ("i", "u")
    ):
        return False
    known = (len(KINDS), len(COLOURS), len(DOORS))
    return "mission" in seen and bool((image.max(axis=(0, 1), initial=0) < known).all())


def field_of_view(seen: Any) -> str:
    """MiniGrid's view as a mission and the things in sight, nearest first. The image is
    [column][row] of (kind, colour, state) codes; the agent stands in the middle of the last row and
    looks along its column."""
    image = seen["image"].tolist()
    here = len(image) // 2
    last = len(image[0]) - 1
    things = []
    walls = []
    for column, cells in enumerate(image):
        for row, (kind, colour, state) in enumerate(cells):
            side = column - here
            ahead = last - row
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
