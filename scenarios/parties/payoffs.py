"""Payoffs of matrix games: those that have a name, and one that is written down as a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.kernel.errors import ConfigError

Moves = tuple[str, ...]
MOST = 1024  # combinations of choices of a table: it is told row by row
TOP = 100  # the largest guess


@dataclass(frozen=True, slots=True)
class Payoff:
    """What N agents may choose, and the points of each seat for what all have chosen, in the order
    of the seats. `rules` says it in words. `counts`: what others did is told as numbers of agents,
    since who did it decides nothing; `news` tells it instead. `verb`: as in "The other chose to
    defect"."""

    choices: tuple[tuple[str, ...], ...]
    pays: Callable[[Moves], Sequence[float]]
    rules: str = ""
    counts: bool = True
    news: Callable[[Moves], str] | None = None
    verb: str = "chose"

    @property
    def is_table(self) -> bool:
        """True where all combinations of choices can be written down."""
        return math.prod(map(len, self.choices)) <= MOST

    def profiles(self) -> Iterator[tuple[str, ...]]:
        """All combinations of choices; seats in order."""
        return itertools.product(*self.choices)


def table(choices: Sequence[Sequence[str]], points: Sequence[Any], verb: str = "chose") -> Payoff:
    """The payoff of a tensor: `points[a][b]...` are the points of all seats where the first seat
    has chosen its a-th string, the second its b-th."""
    kept = tuple(map(tuple, choices))
    rows = dict(zip(itertools.product(*kept), _rows(points, len(kept)), strict=True))
    return Payoff(kept, rows.__getitem__, _told(kept, rows), counts=False, verb=verb)


def tensor(points: Any, choices: Any) -> Payoff:
    """A tensor out of a config, checked: nested lists, of which the innermost holds a number for
    each agent. `choices`: a list of names for all agents, or one for each; None = a, b, c ..
    Raises ConfigError."""
    sizes: list[int] = []
    inner = points
    while isinstance(inner, (list, tuple)) and inner and isinstance(inner[0], (list, tuple)):
        sizes.append(len(inner))
        inner = inner[0]
    if not isinstance(inner, (list, tuple)) or not 2 <= len(sizes) == len(inner):
        depth = f"{len(sizes)} lists deep"
        raise ConfigError(
            "scenario.payoff: for N agents lists within each other, N deep, and in each innermost"
            f" place a list of N numbers, N from 2; got {depth}"
        )
    names = _named(choices, sizes)
    combinations = math.prod(sizes)
    if combinations > MOST:
        raise ConfigError(f"scenario.payoff: at most {MOST} combinations; got {combinations}")
    try:
        rows = list(_rows(points, len(sizes)))
        whole = len(rows) == combinations and all(len(row) == len(sizes) for row in rows)
        whole = whole and all(math.isfinite(point) for row in rows for point in row)
    except (TypeError, ValueError):
        whole = False
    if not whole:
        shape = " x ".join(map(str, sizes))
        raise ConfigError(f"scenario.payoff: {len(sizes)} numbers for each of {shape} choices")
    return table(names, points)


def _named(choices: Any, sizes: Sequence[int]) -> list[tuple[str, ...]]:
    if choices is None:
        return [tuple(map(_letter, range(size))) for size in sizes]
    flat = isinstance(choices, (list, tuple)) and all(isinstance(name, str) for name in choices)
    listed = [choices] * len(sizes) if flat else choices
    wanted = " x ".join(map(str, sizes))
    try:
        names = [tuple(part) for part in listed]
        fits = [len(set(part)) for part in names] == list(sizes) == [len(part) for part in names]
        fits = fits and all(
            isinstance(name, str) and name.strip() for part in names for name in part
        )
    except TypeError:
        fits = False
    if not fits:
        raise ConfigError(f"scenario.choices: names that differ, for {wanted} choices; {choices!r}")
    return names


def _letter(place: int) -> str:
    return chr(ord("a") + place) if place < 26 else f"choice {place + 1}"


def _rows(points: Any, depth: int) -> Iterator[tuple[float, ...]]:
    """The innermost lists, the last seat's choice changing fastest."""
    if not depth:
        yield tuple(points)
        return
    for part in points:
        yield from _rows(part, depth - 1)


def _told(choices: Sequence[Moves], rows: dict[tuple[str, ...], tuple[float, ...]]) -> str:
    """A table in words, a line for each combination."""
    lines = [
        f"{', '.join(moves)}: {', '.join(f'{point:g}' for point in points)}"
        for moves, points in rows.items()
    ]
    seats = ", ".join(f"player_{seat}" for seat in range(len(choices)))
    return f"Choices of {seats}, and the points of each:\n" + "\n".join(lines)


# -- games that have a name ------------------------------------------------------------------------


def _pair(
    first: str, second: str, *points: tuple[float, float], verb: str = "chose"
) -> Callable[[int], Payoff]:
    """A game of two with two choices; points of both for (first, first), (first, second) ..."""
    return lambda agents: table([(first, second)] * 2, (points[:2], points[2:]), verb)


def _alike(choices: Moves, agents: int, **rest: Any) -> Payoff:
    return Payoff((tuple(choices),) * agents, **rest)


def stag_hunt(agents: int) -> Payoff:
    """A stag needs everybody; a hare needs nobody."""

    def pays(moves: Moves) -> list[float]:
        stag = 0.0 if "hare" in moves else 4.0
        return [stag if move == "stag" else 3.0 for move in moves]

    told = "Who hunts the hare gets 3 points. Who hunts the stag gets 4 if all do, else 0."
    return _alike(("stag", "hare"), agents, pays=pays, rules=told)


def bar(agents: int) -> Payoff:
    """El Farol: an evening out is good unless more than six of ten think so."""
    room = 6 * agents // 10

    def pays(moves: Moves) -> list[float]:
        out = 2.0 if moves.count("go") <= room else 0.0
        return [out if move == "go" else 1.0 for move in moves]

    told = (
        f"A bar has room for {room} of {agents}. Who goes gets 2 points if no more than {room} go,"
        " else 0. Who stays at home gets 1."
    )
    return _alike(("go", "stay"), agents, pays=pays, rules=told)


def volunteer(agents: int) -> Payoff:
    """One is enough, and it need not be me."""

    def pays(moves: Moves) -> list[float]:
        helped = 2.0 if "volunteer" in moves else 0.0
        return [helped - (move == "volunteer") for move in moves]

    told = "All get 2 points if anybody volunteers, else 0. A volunteer pays 1 point."
    return _alike(("volunteer", "wait"), agents, pays=pays, rules=told)


def guess_two_thirds(agents: int) -> Payoff:
    """Who is nearest to two thirds of the mean of all guesses wins."""

    def pays(moves: Moves) -> list[float]:
        guesses = list(map(int, moves))
        # in thirds of points times the number of agents: whole numbers tie exactly
        target = 2 * sum(guesses)
        apart = [abs(3 * agents * guess - target) for guess in guesses]
        least = min(apart)
        return [(distance == least) / apart.count(least) for distance in apart]

    def news(moves: Moves) -> str:
        mean = sum(map(int, moves)) / agents
        return f"The mean was {mean:.2f}, two thirds of it {mean * 2 / 3:.2f}"

    told = (
        f"All guess a whole number from 0 to {TOP}. Who is nearest to two thirds of the mean of all"
        " guesses gets 1 point; those who are equally near share it."
    )
    numbers = tuple(map(str, range(TOP + 1)))
    return _alike(numbers, agents, pays=pays, rules=told, news=news)


PAIRS = {
    "dilemma": _pair("cooperate", "defect", (3, 3), (0, 5), (5, 0), (1, 1), verb="chose to"),
    "chicken": _pair("swerve", "straight", (0, 0), (-1, 1), (1, -1), (-10, -10)),
    "battle_of_the_sexes": _pair("opera", "football", (3, 2), (0, 0), (0, 0), (2, 3)),
    "pennies": _pair("heads", "tails", (1, -1), (-1, 1), (-1, 1), (1, -1)),
}
CROWDS: dict[str, Callable[[int], Payoff]] = {
    "stag_hunt": stag_hunt,
    "guess_two_thirds": guess_two_thirds,
    "bar": bar,
    "volunteer": volunteer,
}
# games whose first choice is the one that is good for all
COOPERATIVE = ("dilemma", "stag_hunt", "chicken", "volunteer")
