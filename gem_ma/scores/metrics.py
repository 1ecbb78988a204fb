"""Episodes -> one summary: plain numbers with intervals, and how many episodes they leave out. It
reads records, never a scenario's state.

A mean stands over the episodes that ended by themselves or by a driver's limit (*ok*). FAILED
ones (code outside the agents) and INTERRUPTED ones (*excluded*) are counted beside it; the score
is given once more with every failed episode as 0, and with excluded ones at their worst and
best. Independent units are tasks; where a run plays a single task, its seeds. Plays that are
copies of one (`gem_ma.scores.groups`) have no interval.

Of a run of several worlds (`Episode.world`) every name of an agent, a measure and a label has its
world before it, and `worlds` has the scores of each world as if it had been played alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gem_ma.kernel.episode import End, Entry, Episode
from gem_ma.scores.columns import Columns
from gem_ma.scores.groups import (
    RETURN,
    Copies,
    Kinds,
    Labels,
    Measures,
    as_one_play,
    check_rate,
    interval,
    labelled,
    labels_if_any,
    labels_of,
    lost_episodes,
    measured,
    returns_of,
    values_of,
)

# What a summary takes from each episode as it passes, so that a run of any length can be summed up
# without holding its turns in memory.


@dataclass(slots=True)
class Taken:
    """Episodes without their turns, in the order of their ids, and what the scenario said of them
    while they were whole."""

    episodes: list[Episode]
    columns: Columns
    judged: list[tuple[Episode, bool]]
    measured: Mapping[int, Mapping[str, float]]  # by `id` of the episode in `episodes`
    labelled: Mapping[int, Mapping[str, tuple[str, ...]]]
    copied: frozenset[str]  # the worlds whose plays are one play again

    def measures(self, episode: Episode) -> Mapping[str, float]:
        return self.measured[id(episode)]

    def labels(self, episode: Episode) -> Mapping[str, tuple[str, ...]]:
        return self.labelled[id(episode)]


def take(
    episodes: Iterable[Episode], success: Any, measures: Measures | None, labels: Labels | None
) -> Taken:
    """Asks each episode what a summary needs, one after the other, and keeps no turn.

    Raises ScenarioError, and whatever `success` raises.
    """
    columns = Columns()
    slims = []
    won: dict[int, bool] = {}
    measured: dict[int, Mapping[str, float]] = {}
    labelled: dict[int, Mapping[str, tuple[str, ...]]] = {}
    cast: Mapping[str, Any] = {}
    copies: dict[str, Copies] = {}
    for episode in episodes:
        columns.add(episode)
        copies.setdefault(episode.world, Copies()).add(episode)
        cast = episode.cast if episode.cast != cast else cast  # one for all that share it
        slim = _slim(episode, cast)
        slims.append(slim)
        if episode.end.scored:
            if success is not None and (judged := success(episode)) is not None:
                won[id(slim)] = judged
            if measures is not None:
                measured[id(slim)] = values_of(episode, measures)
            if labels is not None:
                labelled[id(slim)] = labels_of(episode, labels)
        elif episode.end is End.FAILED and labels is not None:
            labelled[id(slim)] = labels_if_any(episode, labels)
    # so that no sum depends on which episode ended first
    slims.sort(key=lambda episode: episode.id)
    verdicts = [(slim, won[id(slim)]) for slim in slims if id(slim) in won]
    copied = frozenset(world for world, plays in copies.items() if plays.one_play)
    return Taken(slims, columns, verdicts, measured, labelled, copied)


def _slim(episode: Episode, cast: Mapping[str, Any]) -> Episode:
    """An episode with its identity, end and returns only."""
    # one entry per agent: returns stay, and a ledger of thousands goes
    ledger = tuple(Entry(-1, agent, value) for agent, value in returns_of(episode).items())
    return replace(
        episode, cast=cast, ledger=ledger, turns=(), calls=(), forks=(), final={}, options={}
    )


__all__ = ["Success", "summarise"]

Success = Callable[[Episode], bool | None]


def summarise(
    episodes: Iterable[Episode],
    success: Success | None = None,
    measures: Measures | None = None,
    labels: Labels | None = None,
    kinds: Kinds | Mapping[str, Kinds] = Kinds(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """A JSON-able summary; `success` says whether an episode reached its goal (None = it cannot
    tell), `measures`, `labels` and `kinds` (which scores are rates) are the scenario's; of several
    worlds `kinds` are by world.

    Keys: `episodes ok failed excluded tasks returns success score pass_hat_k pass_hat_k_intervals
    tries measures labels lost ends errors`, and those of `gem_ma.scores.columns`. An interval is
    `{mean, low, high, n, method, rate}`; a bound that the data cannot give is null, as is a mean
    over nothing. `labels` is explained in `gem_ma.scores.groups`, `lost` in
    `gem_ma.scores.groups`. `worlds` is there where several were played: name -> the keys from
    `episodes` to `tries`, and `ends`.
    """
    taken = take(episodes, success, measures, labels)
    all_ = taken.episodes
    judged = taken.judged
    failed = [episode for episode in all_ if episode.end is End.FAILED]
    agents = list(dict.fromkeys(one.whose(agent) for one in all_ for agent in one.cast))
    measures = measures and taken.measures
    labels = labels and taken.labels
    several = {"": kinds} if isinstance(kinds, Kinds) else kinds
    parts = [
        _part(taken, world, several.get(world, Kinds()), success is not None, measures, labels)
        for world in dict.fromkeys(episode.world for episode in all_)
    ]
    plain = several.get("", Kinds())
    return {
        **_together(all_, judged, parts, success is not None),
        "measures": _named(parts, "measures"),
        "labels": _named(parts, "labels"),
        "lost": lost_episodes(failed, judged, measures, labels, plain),
        "ends": dict(Counter(episode.end.value for episode in all_).most_common()),
        "errors": dict(Counter(_cause(episode) for episode in failed).most_common(10)),
        **taken.columns.values(agents),
    }


def _scores(
    episodes: list[Episode],
    judged: list[tuple[Episode, bool]],
    kinds: Kinds,
    is_judged: bool,
) -> dict[str, Any]:
    """Counts, returns, success and pass^k of episodes of one scenario."""
    ok = [episode for episode in episodes if episode.end.scored]
    failed = sum(episode.end is End.FAILED for episode in episodes)
    agents = list(dict.fromkeys(agent for episode in episodes for agent in episode.cast))
    curve = _pass_hat_k(judged)
    excluded = len(episodes) - len(ok) - failed
    won = [float(good) for _, good in judged]  # failed ones are not judged; `score` has them as 0
    tested = interval(won, [episode for episode, _ in judged], rate=True)
    return {
        "episodes": len(episodes),
        "ok": len(ok),
        "failed": failed,
        "excluded": excluded,
        "tasks": len({episode.id[0] for episode in episodes}),
        "returns": {agent: _return(agent, ok, failed, kinds) for agent in agents},
        "success": tested if is_judged else None,
        "score": _score(judged, failed, excluded) if is_judged else None,
        "pass_hat_k": [row["mean"] for row in curve],
        "pass_hat_k_intervals": curve,
        "tries": _tries(judged),
    }


class _Part(NamedTuple):
    """One world of a run: its scores, and the names that its scenario gives."""

    world: str  # "" where a run has one scenario
    scores: dict[str, Any]
    measures: dict[str, Any]
    labels: dict[str, Any]


def _part(
    taken: Taken,
    world: str,
    kinds: Kinds,
    is_judged: bool,
    measures: Measures | None,
    labels: Labels | None,
) -> _Part:
    episodes = [episode for episode in taken.episodes if episode.world == world]
    judged = [pair for pair in taken.judged if pair[0].world == world]
    ok = [episode for episode in episodes if episode.end.scored]
    failed = [episode for episode in episodes if episode.end is End.FAILED]
    # one scenario may know success where another does not
    is_judged = is_judged and (bool(judged) or not world)
    scores = _scores(episodes, judged, kinds, is_judged)
    scores["ends"] = dict(Counter(episode.end.value for episode in episodes).most_common())
    parts = (
        scores,
        measured(ok, measures, kinds) if measures is not None else {},
        labelled(ok, failed, judged, labels) if labels is not None else {},
    )
    return _Part(world, *(map(as_one_play, parts) if world in taken.copied else parts))


def _together(
    episodes: list[Episode],
    judged: list[tuple[Episode, bool]],
    parts: list[_Part],
    is_judged: bool,
) -> dict[str, Any]:
    """The scores of the whole run; with those of its worlds where it has several."""
    if all(not part.world for part in parts):
        scores = parts[0].scores if parts else _scores([], [], Kinds(), is_judged)
        return {key: value for key, value in scores.items() if key != "ends"}
    scores = _scores(episodes, judged, Kinds(), is_judged)
    # a return of one world says nothing of another's, and worlds differ in how often they are tried
    returns = {
        f"{part.world} {agent}": interval
        for part in parts
        for agent, interval in part.scores["returns"].items()
    }
    scores |= {"returns": returns, "pass_hat_k": [], "pass_hat_k_intervals": [], "tries": []}
    return {**scores, "worlds": {part.world: part.scores for part in parts}}


def _named(parts: list[_Part], what: str) -> dict[str, Any]:
    """The measures or labels of all worlds, each with its world before it."""
    return {
        f"{part.world} {name}" if part.world else name: value
        for part in parts
        for name, value in getattr(part, what).items()
    }


def _return(agent: str, ok: list[Episode], failed: int, kinds: Kinds) -> dict[str, Any]:
    played = [episode for episode in ok if agent in episode.cast]
    values = [episode.returns()[agent] for episode in played]
    # a failed episode has no return: it is counted as 0 beside the mean, never in it
    total = len(values) + failed
    check_rate(RETURN + agent, values, played, kinds)
    return {
        **interval(values, played, rate=kinds.is_rate(RETURN + agent)),
        "failed_as_zero": math.fsum(values) / total if total else None,
    }


def _score(
    judged: list[tuple[Episode, bool]], failed: int, excluded: int
) -> dict[str, float | None]:
    won = sum(good for _, good in judged)
    counted = len(judged) + failed
    # excluded ones were cut off from outside: whether they would have been won is unknown
    total = counted + excluded
    return {
        "failed_as_zero": won / counted if counted else None,
        "lowest": won / total if total else None,
        "highest": (won + excluded) / total if total else None,
    }


def _pass_hat_k(judged: list[tuple[Episode, bool]]) -> list[dict[str, Any]]:
    """Intervals of pass^1 ... pass^n over tasks, n = the fewest tries that a task has: a greater
    k is refused. [] for fewer than two tasks."""
    tries = Counter[str]()
    wins = Counter[str]()
    for episode, won in judged:
        tries[episode.id[0]] += 1
        wins[episode.id[0]] += won
    # over one task the interval would say nothing of other tasks
    if len(tries) < 2:
        return []
    # late: a summary without it needs no numpy
    from gem_ma.scores.stats import pass_hat_k_interval

    tasks = list(tries)
    made = [
        pass_hat_k_interval([wins[task] for task in tasks], [tries[task] for task in tasks], k)
        for k in range(1, min(tries.values()) + 1)
    ]
    return [
        {
            "mean": estimate.mean,
            "low": estimate.low,
            "high": estimate.high,
            "n": estimate.tasks,
            "method": estimate.method,
            "rate": True,
        }
        for estimate in made
    ]


def _tries(judged: list[tuple[Episode, bool]]) -> list[int]:
    """The fewest and the most judged tries of a task; [] where nothing is judged."""
    tries = Counter(episode.id[0] for episode, _ in judged)
    return [min(tries.values()), max(tries.values())] if tries else []


def _cause(episode: Episode) -> str:
    """The first line of an episode's error, without its seed: failures of one cause are counted
    together."""
    # every failure of one cause names another seed
    return re.sub(rf"seed {episode.seed}, ", "", (episode.error or "no message").split("\n", 1)[0])[
        :200
    ]
