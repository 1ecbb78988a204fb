"""Who beats whom: matches between players, read from episodes; a payoff table for both sides;
Bradley-Terry ratings with intervals.

Pure functions over records. A *player* is what sat in a seat: its policy, else its behaviour. A
*match* is two agents of one scored episode with different players; the higher return wins it,
equal returns are a tie. Where there are teams, two players of different teams meet once a play,
and the higher mean return of a team wins. A *foul* is a turn with a closed choice that could not be
read; matches with a foul count as the ledger says, and stand apart as a number. Axes: M players, K
task keys, P pairs of players, B resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import DataError
from gem_ma.kernel.spelling import decimal
from gem_ma.scores.together import Group, is_tie

ELO = 400 / math.log(10)  # rating points of a factor e in the odds of winning
# of the fit: in log strength, and at most
TOLERANCE = 1e-10
ROUNDS = 1_000
DIGITS = 6  # of a rating behind the point
BLOCK = 1 << 22  # numbers of resamples held at once
LEAST_PRIOR = 1e-3  # of resamples: one may lack a pair that met, and a fit needs a chain of matches
Floats = NDArray[np.float64]


class Match(NamedTuple):
    """One meeting of two players; `score` is the first one's: 1, 1/2 or 0. `key` names the start
    that mirror games share."""

    key: tuple[str, int]
    agents: tuple[str, str]
    players: tuple[str, str]
    returns: tuple[float, float]
    fouls: tuple[bool, bool]

    @property
    def score(self) -> float:
        mine, other = self.returns
        return 0.5 if mine == other else float(mine > other)


def player_of(seat: Seat) -> str:
    """Who sits there: the policy, else the behaviour."""
    return seat.policy or seat.behaviour


def games(
    episodes: Iterable[Episode],
    player: Callable[[Seat], str] = player_of,
    team: Callable[[Episode, str], str] | None = None,
) -> list[Match]:
    """All games of the scored episodes, in their order; with n agents every pair of them is one.
    FAILED and INTERRUPTED episodes give none. `team` as a scenario has it: members of a team do not
    meet, and those of others meet as their teams."""
    matches = []
    for episode in episodes:
        if not episode.end.scored:
            continue
        paid = episode.returns()
        fouled = {turn.agent for turn in episode.turns if turn.illegal}
        sides: dict[str, list[str]] = {}
        for agent in episode.cast:
            # who has no team is one of its own, which no team's name can be
            named = team(episode, agent) if team is not None else ""
            sides.setdefault(named or f"\0{agent}", []).append(agent)
        for one, other in combinations(sides.values(), 2):
            mean, against = (
                Group.of(range(len(side)), [paid.get(agent, 0.0) for agent in side]).mean
                for side in (one, other)
            )
            returns = (mean, mean if is_tie(mean, against) else against)
            mine, others = (_seated(episode, side, player) for side in (one, other))
            for first, second in product(mine, others):
                if first == second:  # against itself nobody wins
                    continue
                pair = mine[first], others[second]
                fouls = not fouled.isdisjoint(pair[0]), not fouled.isdisjoint(pair[1])
                agents = pair[0][0], pair[1][0]
                matches.append(Match(episode.id[:2], agents, (first, second), returns, fouls))
    return matches


def _seated(
    episode: Episode, agents: Sequence[str], player: Callable[[Seat], str]
) -> dict[str, list[str]]:
    """Player -> the agents of this side that it sits at."""
    seats: dict[str, list[str]] = {}
    for agent in agents:
        seats.setdefault(player(episode.cast[agent]), []).append(agent)
    return seats


@dataclass(frozen=True, slots=True)
class Meetings:
    """The games of a player in one seat against another player: counts, fouls of each, and its
    mean return (None without games)."""

    games: int = 0
    wins: int = 0
    ties: int = 0
    losses: int = 0
    fouls: int = 0  # games in which this player fouled
    other_fouls: int = 0
    payoff: float | None = None

    @property
    def score(self) -> float | None:
        """Wins and half the ties, as a share of the games."""
        return (self.wins + self.ties / 2) / self.games if self.games else None


def payoffs(played: Iterable[Match]) -> dict[tuple[str, str, str], Meetings]:
    """(player, other, agent that the player sat at) -> results; every game counts in two cells, one
    for each of its players.

    >>> table = payoffs([Match(("t/0", 1), ("x", "o"), ("new", "old"), (1.0, -1.0), (False, True))])
    >>> table["old", "new", "o"]
    Meetings(games=1, wins=0, ties=0, losses=1, fouls=1, other_fouls=0, payoff=-1.0)
    """
    sums: dict[tuple[str, str, str], list[float]] = {}
    for game in played:
        # each match is seen from both sides
        for me in (0, 1):
            score = game.score if me == 0 else 1 - game.score
            row = (
                1,
                score == 1,
                score == 0.5,
                score == 0,
                game.fouls[me],
                game.fouls[1 - me],
                game.returns[me],
            )
            names = game.players[me], game.players[1 - me], game.agents[me]
            total = sums.get(names, [0.0] * len(row))
            sums[names] = [a + b for a, b in zip(total, row, strict=True)]
    cells = {}
    for names, total in sums.items():
        count, wins, ties, losses, fouls, other = map(int, total[:6])
        cells[names] = Meetings(count, wins, ties, losses, fouls, other, total[6] / count)
    return cells


@dataclass(frozen=True, slots=True)
class Rating:
    """A player's strength in points (400 are odds of 10 to 1), with its interval; `games`,
    `ties` and `fouls` are its own."""

    points: float
    low: float
    high: float
    games: int
    ties: int
    fouls: int


def ratings(
    played: Sequence[Match],
    *,
    anchor: str | None = None,
    prior: float = 1.0,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Rating]:
    """Bradley-Terry ratings, best first: P(i beats j) = 1 / (1 + 10^((r_j - r_i) / 400)); a tie is
    half a win of each.

    `anchor` has 0 points; without one the mean is 0. `prior` tied games are added to every pair
    that met, so that who never lost has a rating. Intervals are percentiles over resampled task
    keys, each with all of its games. Bradley and Terry 1952.

    >>> def won(n, a, b):
    ...     return Match((f"t/{n}", 0), ("x", "o"), ("a", "b"), (a, b), (False, False))
    >>> three_to_one = [won(0, 0.0, 1.0), *(won(n, 1.0, 0.0) for n in (1, 2, 3))]
    >>> rated = ratings(three_to_one, prior=0)
    >>> round(rated["a"].points - rated["b"].points, 2)  # 400 log10(3)
    190.85

    Raises DataError where two players are compared by no chain of games, or, without a prior,
    where one never won or never lost against all others; ValueError for arguments out of range.
    """
    if not (prior >= 0 and 0 < level < 1 and resamples >= 1):
        raise ValueError(
            f"prior is 0 or more, level lies in 0..1 and resamples is 1 or more; got {prior},"
            f" {level}, {resamples}"
        )
    names = _players(name for game in played for name in game.players)
    if anchor is not None and anchor not in names:
        raise DataError(
            f"{anchor!r} played no game, so the ratings cannot be counted from it; players are"
            f" {', '.join(names)}"
        )
    pairs, won = _wins(played, names)
    total, met = _checked(pairs, won.sum(0), names, prior)
    base = 0 if anchor is None else names.index(anchor)
    # half of a prior match to each side: it is a tie
    fitted = _points(total[None] + np.where(met, prior / 2, 0.0), base, anchor is None)[0]
    resampled = []
    for draws in _key_draws(len(won), resamples, seed):
        counts = np.zeros((len(draws), *met.shape))
        counts[:, pairs[:, 0], pairs[:, 1]] = draws @ won
        counts += np.where(met, max(prior, LEAST_PRIOR) / 2, 0.0)
        resampled.append(_points(counts, base, anchor is None, fitted / ELO))
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(resampled), (tail, 1 - tail), axis=0)
    result = {}
    for i in sorted(range(len(names)), key=lambda i: (-fitted[i], names[i])):
        mine = [(game, game.players.index(names[i])) for game in played if names[i] in game.players]
        ties = sum(game.score == 0.5 for game, _ in mine)
        fouls = sum(game.fouls[me] for game, me in mine)
        # digits that the fit leaves open are cut; + 0.0 takes the sign off a zero
        mean, *bounds = (round(float(of[i]), DIGITS) + 0.0 for of in (fitted, low, high))
        result[names[i]] = Rating(mean, bounds[0], bounds[1], len(mine), ties, fouls)
    return result


def _key_draws(keys: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each task key is drawn in each resample, [<= BLOCK / K, K] at a time."""
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK // keys)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        yield rng.multinomial(keys, np.full(keys, 1 / keys), rows).astype(np.float64)


def points(won: Mapping[tuple[str, str], float], *, prior: float = 1.0) -> dict[str, float]:
    """The ratings of `ratings`, best first, with mean 0 and without intervals, from counts: (i, j)
    -> wins of i over j, half the ties included.

    >>> rated = points({("a", "b"): 3.0, ("b", "a"): 1.0}, prior=0)
    >>> {name: round(value, 1) for name, value in rated.items()}
    {'a': 95.4, 'b': -95.4}
    """
    names = _players(name for pair in won for name in pair)
    pairs = np.array([[names.index(i), names.index(j)] for i, j in won])
    total, met = _checked(pairs, np.array(list(won.values())), names, prior)
    fitted = _points(total[None] + np.where(met, prior / 2, 0.0), 0, True)[0]
    return {
        names[i]: float(fitted[i])
        for i in sorted(range(len(names)), key=lambda i: (-fitted[i], names[i]))
    }


def _players(names: Iterable[str]) -> list[str]:
    """The players, each once. Raises DataError where there are none."""
    players = list(dict.fromkeys(names))
    if not players:
        raise DataError("there are no games between different players, so nobody can be rated")
    return players


def _wins(played: Sequence[Match], names: Sequence[str]) -> tuple[NDArray[np.int64], Floats]:
    """The ordered pairs [P, 2] that met, and wins of the first over the second by task key [K,
    P], a tie as half a win of each."""
    index = {name: i for i, name in enumerate(names)}
    keys: dict[tuple[str, int], int] = {}
    pairs: dict[tuple[int, int], int] = {}
    for game in played:
        keys.setdefault(game.key, len(keys))
        i, j = (index[name] for name in game.players)
        pairs.setdefault((i, j), len(pairs))
        pairs.setdefault((j, i), len(pairs))
    won = np.zeros((len(keys), len(pairs)))
    for game in played:
        i, j = (index[name] for name in game.players)
        won[keys[game.key], pairs[i, j]] += game.score
        won[keys[game.key], pairs[j, i]] += 1 - game.score
    return np.array(list(pairs)), won


def _checked(
    pairs: NDArray[np.int64], won: Floats, names: Sequence[str], prior: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Wins [M, M] and who met whom [M, M]. Raises DataError where the games do not tie all
    players together."""
    total = np.zeros((len(names), len(names)))
    total[pairs[:, 0], pairs[:, 1]] = won
    # a tie is half a win of each, so two players that met have a number on at least one side
    met = (total + total.T) > 0
    _check_connected(
        met | np.eye(len(names), dtype=bool), names, "no chain of games compares", "with"
    )
    if not prior:
        _check_connected(
            (total > 0) | np.eye(len(names), dtype=bool),
            names,
            "without a prior, no chain of wins leads from",
            "to",
        )
    return total, met


def _points(won: Floats, base: int, centred: bool, start: Floats | float = 0.0) -> Floats:
    """Ratings [B, M] of win counts [B, M, M], by Newton's way up the likelihood from `start`, logs
    of strengths, until no rating moves."""
    # W_i <- W_i / sum_j n_ij / (s_i + s_j) (Hunter 2004) needs ten thousand rounds where the better
    # one always wins, or where players meet along a chain
    logs = np.zeros(won.shape[:2]) + start
    met = won + won.transpose(0, 2, 1)
    wins = won.sum(2)
    places = np.arange(logs.shape[1])
    for _ in range(ROUNDS):
        chance = 1 / (1 + np.exp(logs[:, None, :] - logs[:, :, None]))
        bend = -met * chance * (1 - chance)
        bend[:, places, places] -= bend.sum(2)
        # a shift of all logs changes no chance: the step has mean 0
        bend += 1 / len(places)
        slope = wins - (met * chance).sum(2)
        step = np.linalg.solve(bend, slope[..., None])[..., 0]
        # so far that the likelihood rises for sure (F. Bach 2010, Electron. J. Statist. 4)
        reach = np.ptp(step, axis=1, keepdims=True)
        logs += step * np.where(
            reach > TOLERANCE, np.log1p(reach) / np.maximum(reach, TOLERANCE), 1
        )
        if float(reach.max()) < TOLERANCE * max(1.0, float(np.abs(logs).max())):
            break
    # the zero is a choice: the mean or the anchor
    return np.asarray(
        ELO * (logs - (logs.mean(1, keepdims=True) if centred else logs[:, base : base + 1]))
    )


def _check_connected(
    reaches: NDArray[np.bool_], names: Sequence[str], what: str, link: str
) -> None:
    """Raises DataError naming two players of whom one does not reach the other."""
    # the transitive closure, by squaring: paths of 2, 4, 8 ... steps
    closed = reaches
    for _ in range(len(names).bit_length()):
        closed = (closed.astype(np.float64) @ closed) > 0
    if not closed.all():
        i, j = (int(n) for n in np.argwhere(~closed)[0])
        apart = ", ".join(names[k] for k in range(len(names)) if not closed[i, k])
        raise DataError(
            f"{what} {names[i]!r} {link} {names[j]!r}, so their ratings cannot be compared;"
            f" apart: {apart}"
        )


def table(cells: Mapping[tuple[str, str, str], Meetings]) -> list[tuple[str, ...]]:
    """The payoff table as rows of text: player, other, side, games, wins/ties/losses, fouls of
    both, mean return."""
    rows: list[tuple[str, ...]] = []
    for (player, other, agent), cell in sorted(cells.items()):
        counts = f"{cell.wins}/{cell.ties}/{cell.losses}"
        fouls = f"{cell.fouls}/{cell.other_fouls}"
        payoff = decimal(cell.payoff)
        rows.append((player, other, agent, str(cell.games), counts, fouls, payoff))
    return rows
