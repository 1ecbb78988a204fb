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
  is below 0, since parts of such a sum are no shares, or where nobody has anything

Above `MOST_RETURNS` agents those that are called alike but for a number are a group too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ScenarioError

MOST_RETURNS = 8  # of agents or groups in a table; all are in summary.json
KINDS = ("team", "role", "policy", "behaviour", "agents")  # of groups, in the order of a table
WELFARE = "welfare"
EQUALITY = "equality"
WON = "won "
SPREAD = "spread "
Told = Callable[[Episode, str], str]  # a scenario's `team` or `role`


class Group(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Agents of one play that have a team, a role or a player in common, and their returns."""

    agents: int
    mean: float
    spread: float

    @classmethod
    def of(cls, returns: Iterable[float]) -> Group:
        """
        >>> Group.of([1.0, 3.0])
        Group(agents=2, mean=2.0, spread=1.0)
        """
        paid = tuple(returns)
        count = len(paid)
        if count == 1:
            return cls(1, paid[0], 0.0)
        # parts first: a sum of numbers that are finite may not be
        mean = math.fsum(value / count for value in paid)
        return cls(count, mean, math.hypot(*(value - mean for value in paid)) / math.sqrt(count))


Groups = Mapping[str, Group]  # `role wolf` -> those of one play


def groups_of(
    episode: Episode, team: Told | None = None, role: Told | None = None
) -> dict[str, Group]:
    """The groups of a scored play of several agents, {} of any other; `team` and `role` as a
    scenario has them. Raises ScenarioError where these do not give texts."""
    if len(episode.cast) < 2 or not episode.end.scored:
        return {}
    members: dict[str, list[float]] = {}
    returns = episode.returns()
    for kind, told in (("team", team), ("role", role)):
        for agent in returns if told is not None else ():
            if name := _asked(kind, told, episode, agent):
                members.setdefault(f"{kind} {name}", []).append(returns[agent])
    for agent, value in returns.items():
        members.setdefault(_player(episode.cast[agent]), []).append(value)
    return {name: Group.of(paid) for name, paid in members.items()}


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
    return name


def alike(returns: Mapping[str, float]) -> dict[str, Group]:
    """Groups of agents that are called alike but for a number, where there are many.

    >>> list(alike({f"buyer_{n}": 1.0 for n in range(9)} | {"broker": 2.0}))
    ['agents buyer_*']
    """
    if len(returns) <= MOST_RETURNS:
        return {}
    named: dict[str, list[float]] = {}
    for agent, value in returns.items():
        named.setdefault(agent.rstrip("0123456789"), []).append(value)
    return {f"agents {stem}*": Group.of(paid) for stem, paid in named.items() if len(paid) > 1}


def won(groups: Groups) -> dict[str, float]:
    """`team NAME` -> 1, 0 or a share of the first place; {} of less than two teams."""
    teams = {name: group.mean for name, group in groups.items() if name.startswith("team ")}
    if len(teams) < 2:
        return {}
    best = max(teams.values())
    first = [name for name, mean in teams.items() if mean == best]
    return {name: (1 / len(first) if name in first else 0.0) for name in teams}


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
