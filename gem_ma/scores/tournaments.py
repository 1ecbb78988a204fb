"""Who is strongest in a tournament: ratings of players from the sides that they played on, and
which two should meet next.

A play has *sides*: the teams of its scenario, each agent alone where there are none. The higher
mean return is the better rank. Who sits on the same side never meets as an opponent. Axes: M
players.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from gem_ma.kernel.errors import DataError
from gem_ma.scores.groups import ONE_PLAY, Id, finite
from gem_ma.scores.ratings import ELO, Match, points, ratings
from gem_ma.scores.rows import PlayRow, last_attempts
from gem_ma.scores.stats import mean_interval
from gem_ma.scores.together import apart, is_tie

# of openskill's PlackettLuce, so that its numbers can be laid beside ours
MU = 25.0
SIGMA = MU / 3
BETA = MU / 6  # the luck of one play
TAU = MU / 300  # what a player may have changed between two plays
KAPPA = 1e-4  # the least share of a variance that one play leaves
K_FACTOR = 16.0  # points of Elo that one play moves at most

Side = tuple[tuple[str, ...], float]  # agents, or their players, and their mean return
Results = Mapping[Id, Sequence[Side]]


class Standing(NamedTuple):
    """A player's skill as a normal distribution, as `plackett_luce` has it."""

    mu: float = MU
    sigma: float = SIGMA


def results_of(rows: Iterable[PlayRow]) -> dict[Id, list[Side]]:
    """The sides of each scored play, with their agents."""
    found: dict[Id, list[Side]] = {}
    for row in last_attempts(rows):
        if not row.is_scored or not row.returns:
            continue
        agents = list(row.returns)
        teams = [one for name, one in row.groups.items() if name.startswith("team ")]
        sides: list[Side] = [
            (tuple(x for n, x in enumerate(agents) if int(team.members, 16) >> n & 1), team.mean)
            for team in teams
        ]
        # who has no team is one of its own
        seated = {agent for members, _ in sides for agent in members}
        sides += [((x,), paid) for x, paid in row.returns.items() if x not in seated]
        found[row.id] = sides
    return found


def played(results: Results, players: Mapping[str, str]) -> dict[Id, list[Side]]:
    """The same with `players` (agent -> its player) in place of agents; others are left out."""
    seated = {
        play: [
            (tuple(players[agent] for agent in members if agent in players), paid)
            for members, paid in sides
        ]
        for play, sides in results.items()
    }
    return {play: [side for side in sides if side[0]] for play, sides in seated.items()}


def matches_of(play: Id, sides: Sequence[Side]) -> list[Match]:
    """A match for every two players of different sides; nobody meets itself, and of two who both
    sit on both sides a play tells nothing."""
    found = []
    for (ours, mine), (theirs, other) in combinations(sides, 2):
        returns = (mine, mine if is_tie(mine, other) else other)
        for pair in product(dict.fromkeys(ours), dict.fromkeys(theirs)):
            are_mixed = pair[0] in theirs and pair[1] in ours
            if pair[0] != pair[1] and not are_mixed:
                found.append(Match(play[:2], pair, pair, returns, (False, False)))
    return found


def plackett_luce(plays: Iterable[Sequence[Side]]) -> dict[str, Standing]:
    """Skills from plays of any number of sides, one play after the other: Weng and Lin 2011,
    algorithm 4, with the constants of openskill.

    The strength of a side is what its members' skills are above `MU`: sides of different sizes
    begin alike, and of equal sizes the numbers are openskill's. Who has several seats counts as
    often.

    >>> won = plackett_luce([[(("a",), 1.0), (("b",), 0.0)]])
    >>> round(won["a"].mu, 3), round(won["b"].sigma, 3)
    (27.635, 8.066)
    """
    skills: dict[str, Standing] = {}
    for sides in plays:
        if len(sides) < 2:
            continue
        now = {
            player: Standing(old.mu, math.hypot(old.sigma, TAU))
            for player in dict.fromkeys(player for members, _ in sides for player in members)
            for old in [skills.get(player, Standing())]
        }
        skills |= _after(sides, now)
    return skills


def _after(sides: Sequence[Side], now: Mapping[str, Standing]) -> dict[str, Standing]:
    """The skills after one play."""
    mus = [math.fsum(now[player].mu - MU for player in members) for members, _ in sides]
    variances = [math.fsum(now[player].sigma ** 2 for player in members) for members, _ in sides]
    scale = math.sqrt(math.fsum(variances) + len(sides) * BETA**2)
    # sides that are tied share a rank
    ranks = [sum(paid > mine and not is_tie(paid, mine) for _, paid in sides) for _, mine in sides]
    ties = Counter(ranks)
    most = max(mus)
    odds = [math.exp((mu - most) / scale) for mu in mus]
    # of those who are not yet placed when a side gets its rank
    left = [math.fsum(o for o, r in zip(odds, ranks, strict=True) if r >= rank) for rank in ranks]
    moved: dict[str, float] = {}
    kept: dict[str, float] = {}
    for i, (members, _) in enumerate(sides):
        omega = delta = 0.0
        for q, rank in enumerate(ranks):
            if rank <= ranks[i]:
                chance = odds[i] / left[q]
                omega += ((q == i) - chance) / ties[rank]
                delta += chance * (1 - chance) / ties[rank]
        gamma = math.sqrt(variances[i]) / scale
        for player in members:
            variance = now[player].sigma ** 2
            moved[player] = moved.get(player, 0.0) + variance / scale * omega
            kept[player] = kept.get(player, 1.0) - gamma * variance / scale**2 * delta
    return {
        player: Standing(
            now[player].mu + moved[player], now[player].sigma * math.sqrt(max(kept[player], KAPPA))
        )
        for player in moved
    }


def elo(played: Iterable[Match]) -> dict[str, float]:
    """Points after all matches, one after the other, beginning at 0: each moves `K_FACTOR` times
    what it came to above what was expected (Elo 1978).

    >>> elo([Match(("t/0", 1), ("x", "o"), ("a", "b"), (1.0, 0.0), (False, False))])
    {'a': 8.0, 'b': -8.0}
    """
    rated: dict[str, float] = {}
    for game in played:
        first, second = (rated.get(player, 0.0) for player in game.players)
        gain = K_FACTOR * (game.score - 1 / (1 + math.exp((second - first) / ELO)))
        rated |= dict(zip(game.players, (first + gain, second - gain), strict=True))
    return rated


def wins_of(played: Iterable[Match]) -> dict[tuple[str, ...], float]:
    """(i, j) -> wins of i over j, half the ties included."""
    won: dict[tuple[str, ...], float] = {}
    for game in played:
        for pair, score in ((game.players, game.score), (game.players[::-1], 1 - game.score)):
            won[pair] = won.get(pair, 0.0) + score
    return won


def next_pair(
    wins: Iterable[Mapping[tuple[str, ...], float]],
    pairs: Sequence[tuple[str, ...]],
    prior: float = 1.0,
) -> tuple[str, ...]:
    """Which of these pairs tells most: the one whose match takes most from the volume of what is
    unsure in all ratings (D-optimal; Glickman and Jensen 2005). Of equals the first.

    `wins`: each as `wins_of` has them. Every pair begins with `prior` tied matches, as in
    `ratings`.
    """
    won = {met: prior / 2 for pair in pairs for met in (pair, pair[::-1])}
    for met, count in (one for part in wins for one in part.items()):
        won[met] = won.get(met, prior / 2) + count
    names = list(dict.fromkeys(name for pair in won for name in pair))
    strength = points({(a, b): count for (a, b), count in won.items()}, prior=0)
    place = {name: n for n, name in enumerate(names)}
    known = np.full((len(names), len(names)), 1.0)  # no comparison tells where zero is
    for a, b in won:
        if place[a] < place[b]:
            told = (won[a, b] + won.get((b, a), 0.0)) * _variance(strength, a, b)
            at = [place[a], place[b]]
            known[np.ix_(at, at)] += told * np.array([[1.0, -1.0], [-1.0, 1.0]])
    unsure = np.linalg.inv(known)

    def gain(pair: tuple[str, ...]) -> float:
        i, j = (place[name] for name in pair)
        spread = unsure[i, i] + unsure[j, j] - 2 * unsure[i, j]
        # rounded: two pairs that tell the same are not ordered by the last digit
        return round(float(_variance(strength, *pair) * spread), 12)

    return max(pairs, key=gain)


def _variance(strength: Mapping[str, float], first: str, second: str) -> float:
    """p (1 - p) of the first winning."""
    chance = 1 / (1 + math.exp((strength[second] - strength[first]) / ELO))
    return chance * (1 - chance)


# -- what a study tells of it ----------------------------------------------------------------------


def tournament_table(
    cells: Mapping[tuple[str, ...], Mapping[Id, Sequence[Side]]],
    copied: bool,
    gaps: Sequence[tuple[tuple[str, int], float]] = (),
) -> dict[str, Any]:
    """Ratings of the players of a tournament, best first (who has no rating last), as JSON values.

    `cells`: (player, opponent) -> the sides of each play, with players in place of agents. Keys:
    `plays`, `pairs` (player, opponent, plays); `players`, each with `name`, `plays`, `rating` (an
    interval in points of Bradley-Terry, None where no chain of plays compares all), `mu` and
    `sigma` of `plackett_luce`, and `elo`; `halves`: the interval of the `gaps` of all cells, as
    `halves` gives them. `copied`: all plays of a cell are one play again.
    """
    # of one start first one order, then the other: no player has its plays last
    ordered = sorted(
        ((play, names, sides) for names, plays in cells.items() for play, sides in plays.items()),
        key=lambda one: (one[0][1:], one[0][0]),
    )
    met = [match for play, _, sides in ordered for match in matches_of(play, sides)]
    skills = plackett_luce(sides for _, _, sides in ordered)
    moved = elo(met)
    rated = rated_of(met, copied)
    counts = Counter(name for _, names, _ in ordered for name in names)
    names = list(dict.fromkeys(name for pair in cells for name in pair))
    players = [
        {
            "name": name,
            "plays": counts[name],
            "rating": rated.get(name),
            **skills.get(name, Standing())._asdict(),
            "elo": moved.get(name, 0.0),
        }
        for name in names
    ]
    best_first = sorted(players, key=lambda row: -row["mu"])
    best_first.sort(key=lambda row: -row["rating"]["mean"] if row["rating"] else math.inf)
    pairs = [{"player": a, "opponent": b, "plays": len(plays)} for (a, b), plays in cells.items()]
    return {
        "plays": len(ordered),
        "players": best_first,
        "pairs": pairs,
        "halves": gap_of(gaps, copied),
    }


def gap_of(gaps: Sequence[tuple[tuple[str, int], float]], copied: bool) -> dict[str, Any] | None:
    """The mean of what `halves` gives, with its interval over starts; None of no play."""
    if not gaps:
        return None
    starts, values = zip(*gaps, strict=True)
    return told(mean_interval(values, starts), copied)


def rated_of(played: Sequence[Match], copied: bool) -> dict[str, dict[str, Any]]:
    """Player -> its Bradley-Terry rating, as JSON values; {} where the matches do not compare all
    of them."""
    try:
        rated = ratings(played)
    except DataError:
        return {}
    known = not copied and len({game.key for game in played}) > 1
    return {
        name: {
            "mean": one.points,
            "low": one.low if known else None,
            "high": one.high if known else None,
            "method": ONE_PLAY if copied else "resampled tasks",
        }
        for name, one in rated.items()
    }


def told(estimate: Any, copied: bool) -> dict[str, Any]:
    """An interval as JSON values; of copies of one play without its bounds."""
    return {
        "mean": estimate.mean,
        "low": None if copied else finite(estimate.low),
        "high": None if copied else finite(estimate.high),
        "method": ONE_PLAY if copied else estimate.method,
    }


def halves(
    player: Mapping[Id, float], opponent: Mapping[Id, float]
) -> list[tuple[tuple[str, int], float]]:
    """(task and seed, what the first half of the seats is paid more) of each play of a cell."""
    return [(play[:2], apart(opponent[play], player[play])) for play in player if play in opponent]
