"""What several agents of a play came to together: returns by team, role, policy and behaviour, and
how they spread; which team won; welfare and equality.

Each is one number a play, so that intervals, comparisons and studies take it as any other score:

- `return role wolf`: the mean return of those who are wolves in the play
- `spread role wolf`: the standard deviation of their returns, of the play alone (divided by their
  number); none where one is a wolf
- `won team village`: 1 where the mean return of the team is above that of every other team, 1/k
  where k teams share the best one, else 0
- `welfare`: the sum of all returns
- `equality`: 1 - Gini: 1 where all have the same, 1/n where one of n has all; none where a return
  is below 0, since parts of such a sum are not shares, or where nobody has anything

Above `MOST_RETURNS` agents those that are called alike but for a number are a group too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ScenarioError
from gem_ma.kernel.parsing.text import clean

MOST_RETURNS = 8  # of agents or groups in a table; all are in summary.json
KINDS = ("team", "role", "policy", "behaviour", "agents")  # of groups, in the order of a table
WELFARE = "welfare"
EQUALITY = "equality"
WON = "won "
SPREAD = "spread "
Told = Callable[[Episode, str], str]  # a scenario's `team` or `role`


class Group(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Agents of one play that have a team, a role or a player in common, and their returns.
    `members`: a hexadecimal number whose bit k stands for the k-th agent of the cast."""

    members: str
    mean: float
    spread: float

    @classmethod
    def of(cls, members: Sequence[int], returns: Sequence[float]) -> Group:
        """
        >>> Group.of([0, 2], [1.0, 5.0, 3.0])
        Group(members='5', mean=2.0, spread=1.0)
        """
        named = f"{sum(1 << place for place in members):x}"
        count = len(members)
        if count == 1:
            return cls(named, returns[members[0]], 0.0)
        paid = [returns[place] for place in members]
        # parts first: a sum of numbers that are finite may not be
        mean = math.fsum(value / count for value in paid)
        spread = math.hypot(*(apart(mean, value) for value in paid)) / math.sqrt(count)
        return cls(named, mean, spread)

    @property
    def agents(self) -> int:
        return int(self.members, 16).bit_count()


Groups = Mapping[str, Group]  # `role wolf` -> those of one play


def groups_of(
    episode: Episode, team: Told | None = None, role: Told | None = None
) -> dict[str, Group]:
    """The groups of a scored play of several agents, {} of any other; `team` and `role` as a
    scenario has them. Raises ScenarioError where these do not give texts."""
    if len(episode.cast) < 2 or not episode.end.scored:
        return {}
    members: dict[str, list[int]] = {}
    returns = episode.returns()
    for kind, told in (("team", team), ("role", role)):
        for place, agent in enumerate(returns if told is not None else ()):
            if name := _asked(kind, told, episode, agent):
                members.setdefault(f"{kind} {name}", []).append(place)
    for place, agent in enumerate(returns):
        members.setdefault(_player(episode.cast[agent]), []).append(place)
    paid = list(returns.values())
    return {name: Group.of(places, paid) for name, places in members.items()}


def _player(seat: Seat) -> str:
    return f"policy {seat.policy}" if seat.policy else f"behaviour {seat.behaviour}"


def _asked(kind: str, told: Any, episode: Episode, agent: str) -> str:
    where = f"{episode.scenario}: {kind}({agent!r}) of task {episode.id[0]}, seed {episode.seed}"
    try:
        name = told(episode, agent)
    except Exception as error:  # an author's code may raise anything
        raise ScenarioError(f"{where} raised {type(error).__name__}: {error}") from error
    if not isinstance(name, str):
        raise ScenarioError(f"{where} returned {type(name).__name__}; a text is wanted")
    return clean(name)


def alike(returns: Mapping[str, float]) -> dict[str, Group]:
    """Groups of agents that are called alike but for a number, where there are many.

    >>> list(alike({f"buyer_{n}": 1.0 for n in range(9)} | {"broker": 2.0}))
    ['agents buyer_*']
    """
    if len(returns) <= MOST_RETURNS:
        return {}
    named: dict[str, list[int]] = {}
    for place, agent in enumerate(returns):
        named.setdefault(agent.rstrip("0123456789"), []).append(place)
    paid = list(returns.values())
    several = {stem: places for stem, places in named.items() if len(places) > 1}
    return {f"agents {stem}*": Group.of(places, paid) for stem, places in several.items()}


def won(groups: Groups) -> dict[str, float]:
    """`team NAME` -> 1, 0 or a share of the first place; {} of less than two teams."""
    teams = {name: group.mean for name, group in groups.items() if name.startswith("team ")}
    if len(teams) < 2:
        return {}
    best = max(teams.values())
    first = [name for name, mean in teams.items() if is_tie(mean, best)]
    return {name: (1 / len(first) if name in first else 0.0) for name in teams}


def is_tie(mean: float, other: float) -> bool:
    """Whether two means are one, but for rounding: those of teams of two sizes that are all paid
    alike may differ in the last digit.

    >>> is_tie(sum([0.1] * 6) / 6, sum([0.1] * 2) / 2), is_tie(0.1, 0.2)
    (True, False)
    """
    return math.isclose(mean, other, rel_tol=1e-9, abs_tol=1e-12)


def apart(first: float, second: float) -> float:
    """Second less first, 0 where that is rounding."""
    return 0.0 if is_tie(first, second) else second - first


def together(returns: Mapping[str, float]) -> dict[str, float]:
    """Welfare and equality of a play, as far as it has them; {} of a single agent."""
    if len(returns) < 2:
        return {}
    paid = returns.values()
    shares = equality(paid)
    try:
        whole = {WELFARE: math.fsum(paid)}
    except OverflowError:  # each of them is finite
        whole = {}
    return whole if shares is None else {**whole, EQUALITY: shares}


def equality(values: Iterable[float]) -> float | None:
    """1 - Gini of amounts, 1 - sum_ij |x_i - x_j| / (2 n sum_i x_i); None where one is below 0 or
    all are 0.

    >>> equality([2, 2, 2]), equality([0, 0, 0, 8]), equality([3, -1])
    (1.0, 0.25, None)
    """
    ordered = sorted(values)
    largest = ordered[-1]
    if ordered[0] < 0 or not largest:
        return None
    # the i-th smallest is the larger one of i pairs and the smaller one of the others; by the
    # largest, since a sum of what is finite may not be
    count = len(ordered)
    parts = [value / largest for value in ordered]
    apart = math.fsum((2 * place + 1 - count) * part for place, part in enumerate(parts))
    return 1.0 - apart / (count * math.fsum(parts))


def repeated(
    groups: Mapping[str, Sequence[tuple[Any, str]]], agents: Sequence[str]
) -> dict[str, str]:
    """Group -> the agent, or the group before it, that it is in each play; `groups` has (play,
    members) of each, `agents` is the cast.

    >>> repeated({"role a": [(0, "1")], "team b": [(0, "6")], "role c": [(0, "6")]}, ["x", "y"])
    {'role a': 'x', 'role c': 'team b'}
    """
    alone = {f"{1 << place:x}": agent for place, agent in enumerate(agents)}
    found: dict[str, str] = {}
    kept: dict[tuple[tuple[Any, str], ...], str] = {}
    for name, plays in groups.items():
        members = {of for _, of in plays}
        one = alone.get(next(iter(members))) if len(members) == 1 else None
        if (same := one or kept.setdefault(tuple(plays), name)) != name:
            found[name] = same
    return found


def is_of_group(score: str) -> bool:
    """Whether the return or spread is one of a group; the name may have its world before it."""
    return any(f" {kind} " in score for kind in KINDS)


def shown(agents: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Which of these a table has: the first groups, and the agents where all of it has room.

    >>> shown(["ann", "bob"], ["team red"]), shown([*"abcdefgh"], ["team red"])
    (['team red', 'ann', 'bob'], ['team red'])
    """
    whole = [*groups, *agents]
    return whole if len(whole) <= MOST_RETURNS else list(groups or agents)[:MOST_RETURNS]
