"""Actions of Gymnasium and PettingZoo in words: a space as a row of numbers, what of it can be
listed, and the action that an answer means.

A space of numbers is Discrete, MultiBinary, MultiDiscrete, Box, or a Dict or Tuple of them: its row
are the numbers of its parts, in order. Text is read as it is. Nothing else can be answered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, product
from typing import Any

from gem_ma.kernel.errors import ConfigError

NAMES = {  # of toy_text, whose actions are numbers
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
}
MOST = 4096  # choices of several numbers at once that are listed
MOST_ALONE = 65_536  # of one number
TRIED = ("0", "0.5", "a")  # of a text
LONGEST = 160  # characters of a space in a text
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_KINDS = ("Discrete", "MultiBinary", "MultiDiscrete", "Box", "Dict", "Tuple", "Text")
# the least and the greatest number at a place of a row, and whether it is a choice of whole numbers
Place = tuple[float, float, bool]


def kind_of(space: Any) -> str:
    """What a space is called, a user's own kind of Box included; "" for one that nobody can
    answer in words."""
    names = (base.__name__ for base in type(space).__mro__)
    return next((name for name in names if name in _KINDS), "")


def places_of(space: Any, name: str) -> tuple[Place, ...] | None:
    """The row of numbers that an action is; None where it is a text. Raises ConfigError, for the
    environment of this name, where it is neither."""
    kind = kind_of(space)
    if kind == "Text":
        return None
    if kind == "Discrete":
        return ((int(space.start), int(space.start) + int(space.n) - 1, True),)
    if kind == "MultiBinary":
        return ((0, 1, True),) * math.prod(space.shape)
    if kind == "MultiDiscrete":
        # older versions of Gymnasium count from 0 everywhere
        firsts = getattr(space, "start", space.nvec * 0).flat
        pairs = zip(firsts, space.nvec.flat, strict=True)
        return tuple((int(first), int(first + size) - 1, True) for first, size in pairs)
    if kind == "Box":
        bounds = zip(space.low.flat, space.high.flat, strict=True)
        return tuple((float(low), float(high), False) for low, high in bounds)
    parts = [places_of(part, name) for part in _parts(space)]
    if not parts or None in parts:
        raise ConfigError(
            f"{name}: no answer in words is an action of {space_line(space)}; it wants Text, or"
            " numbers: Discrete, MultiBinary, MultiDiscrete, Box, and Dict or Tuple of them"
        )
    return tuple(chain.from_iterable(part for part in parts if part))


def _parts(space: Any) -> Sequence[Any]:
    kind = kind_of(space)
    if kind == "Dict":
        return [*space.spaces.values()]
    return space.spaces if kind == "Tuple" else ()


def space_line(space: Any) -> str:
    """A space on one line; bounds of many numbers are cut."""
    line = " ".join(str(space).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def form(space: Any, places: tuple[Place, ...] | None) -> str:
    """What an answer is, for who has to give one; "" where its choices speak for themselves."""
    if kind_of(space) == "Discrete" and rows_of(places) is not None:
        return ""
    what = "a text" if places is None else f"{len(places)} number{'s' * (len(places) != 1)}"
    return f"An action is {what}, of {space_line(space)}."


@lru_cache(64)  # asked at each step; chess has 4,672
def rows_of(places: tuple[Place, ...] | None) -> tuple[str, ...] | None:
    """All rows of whole numbers, in order; None where they cannot be listed."""
    if places is None or not all(whole for *_, whole in places):
        return None
    # counted before they are made: 40 switches are a million million rows
    count = math.prod(int(high - low) + 1 for low, high, _ in places)
    if count > (MOST if len(places) > 1 else MOST_ALONE):
        return None
    ranges = [range(int(low), int(high) + 1) for low, high, _ in places]
    return tuple(" ".join(map(str, row)) for row in product(*ranges))


def action_names(env: Any, name: str, typed: Sequence[str] | None) -> tuple[str, ...] | None:
    """The actions of a finite space in order; None where an answer is a text or numbers. Raises
    ConfigError where the names that were typed do not fit."""
    space = env.action_space
    places = places_of(space, name)
    numbers = rows_of(places)
    if numbers is None or kind_of(space) != "Discrete":
        if typed:
            raise ConfigError(f"{name}: only the choices of a Discrete space have names")
        return numbers
    family = next((key for key in NAMES if name.startswith(key)), "")
    enum = getattr(getattr(env, "unwrapped", env), "actions", ())
    members = tuple(getattr(action, "name", "") for action in enum) if _listable(enum) else ()
    for names in (tuple(typed or ()), NAMES.get(family, ()), members):
        if len(names) == len(numbers) and all(names):
            return names
    if typed:
        raise ConfigError(f"{name} has {len(numbers)} actions; got {len(typed)} names of actions")
    return numbers


def _listable(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (str, dict))


def chosen(names: Sequence[str], mask: Any) -> list[int]:
    """Places of the actions that a mask allows; None allows all. Raises ValueError for a mask that
    does not fit, or allows nothing."""
    if mask is None:
        return [*range(len(names))]
    shape = getattr(mask, "shape", None)
    if shape is None:
        shape = (len(mask) if _listable(mask) else 0,)
    if len(shape) != 1:
        raise ValueError(f"an action_mask is one row of places; it has the shape {tuple(shape)}")
    if shape[0] != len(names):
        raise ValueError(f"an action_mask of {shape[0]} places came with {len(names)} actions")
    places = [place for place, allowed in enumerate(mask) if allowed]
    if not places:
        raise ValueError("an action_mask allowed no action, and the play was not over")
    return places


def row_of(places: Sequence[Place], text: str) -> list[float] | None:
    """The numbers in an answer; None where they are not an action. Beyond the bounds of a Box a
    number means the bound."""
    # one more than there should be is enough to see that they are too many
    numbers = [float(match[0]) for match in islice(_NUMBER.finditer(text), len(places) + 1)]
    if len(numbers) != len(places):
        return None
    row = []
    for number, (low, high, whole) in zip(numbers, places, strict=True):
        bounded = min(max(number, low), high)
        if not math.isfinite(bounded) or (whole and (bounded != number or number % 1)):
            return None
        row.append(bounded)
    return row


def tries(places: Sequence[Place] | None) -> tuple[str, ...]:
    """Answers to try a space with, where they are not listed."""
    if places is None:
        return TRIED
    lows = []
    highs = []
    for low, high, whole in places:
        # of a Box, numbers around 0: it may have no bounds
        lows.append(low if whole else min(max(low, -1.0), high))
        highs.append(high if whole else max(min(high, 1.0), low))
    mixed = [pair[place % 2] for place, pair in enumerate(zip(lows, highs, strict=True))]
    return tuple(" ".join(map(str, row)) for row in (lows, highs, mixed))


def move_of(space: Any, text: str) -> Any:
    """The action that an answer means; None where it is none."""
    places = places_of(space, "")
    if places is None:
        return text if space.contains(text) else None
    row = row_of(places, text)
    try:
        action = None if row is None else made_of(space, iter(row))
    except OverflowError:  # the bounds of int64, as floats, lie a little outside of it
        return None
    return action if action is not None and space.contains(action) else None


def made_of(space: Any, row: Iterator[float]) -> Any:
    """The action of a space that a row of numbers is; takes as many as it needs."""
    kind = kind_of(space)
    if kind == "Discrete":
        return int(next(row))
    if kind == "Dict":
        return {key: made_of(part, row) for key, part in space.spaces.items()}
    if kind == "Tuple":
        return tuple(made_of(part, row) for part in space.spaces)
    numbers = islice(row, math.prod(space.shape))
    # rounded for a Box of whole numbers: numpy would cut what stands behind the point
    whole = space.dtype.kind in "iub"
    values = [round(number) if whole else number for number in numbers]
    action = space.dtype.type(values).reshape(space.shape)
    if not all(map(math.isfinite, action.flat)):  # 1e39 is too much for float32
        raise OverflowError
    return action
