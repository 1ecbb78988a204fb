"""Episodes -> one summary: plain numbers with intervals, and how many episodes they leave out. It
reads records, never a scenario's state.

A mean stands over the episodes that ended by themselves or by a driver's limit (*ok*). FAILED
ones (code outside the agents) and INTERRUPTED ones (*excluded*) are counted beside it; the score
is given once more with every failed episode as 0, and with excluded ones at their worst and
best. Independent units are tasks; where a run plays a single task, its seeds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from gem_ma.episode import End, Episode
from gem_ma.evaluation.groups import (
    Labels,
    Measures,
    check_rate,
    interval,
    labelled,
    measured,
)
from gem_ma.evaluation.kinds import RETURN, Kinds
from gem_ma.evaluation.lost import lost_episodes
from gem_ma.evaluation.tallies import AgentCounts, take

__all__ = ["Success", "summarise"]

Success = Callable[[Episode], bool | None]


def summarise(
    episodes: Iterable[Episode],
    success: Success | None = None,
    measures: Measures | None = None,
    labels: Labels | None = None,
    kinds: Kinds = Kinds(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """A JSON-able summary; `success` says whether an episode reached its goal (None = it cannot
    tell), `measures`, `labels` and `kinds` (which scores are rates) are the scenario's.

    Keys: `episodes ok failed excluded retried tasks returns success score pass_hat_k
    pass_hat_k_intervals tries measures labels lost ends errors turns steps tokens truncated
    illegal malformed cut empty served`. An interval is `{mean, low, high, n, method, rate}`; a
    bound that the data cannot give is null, as is a mean over nothing. `labels` is explained in
    `gem_ma.evaluation.groups`, `lost` in `gem_ma.evaluation.lost`.
    """
    taken = take(episodes, success, measures, labels)
    all_, judged, tallies = taken.episodes, taken.judged, taken.tallies
    ok = [episode for episode in all_ if episode.end.scored]
    failed = [episode for episode in all_ if episode.end is End.FAILED]
    agents = list(dict.fromkeys(agent for episode in all_ for agent in episode.cast))
    tallies_of = {agent: tallies.by_agent.get(agent, AgentCounts()) for agent in agents}
    measures, labels = measures and taken.measures, labels and taken.labels
    curve, excluded = _pass_hat_k(judged), len(all_) - len(ok) - len(failed)
    won = [float(good) for _, good in judged]  # failed ones are not judged; `score` has them as 0
    tested = interval(won, [episode for episode, _ in judged], rate=True)
    return {
        "episodes": len(all_),
        "ok": len(ok),
        "failed": len(failed),
        "excluded": excluded,
        "retried": tallies.retried,
        "tasks": len({episode.task for episode in all_}),
        "returns": {agent: _return(agent, ok, len(failed), kinds) for agent in agents},
        "success": tested if success is not None else None,
        "score": _score(judged, len(failed), excluded) if success is not None else None,
        "pass_hat_k": [row["mean"] for row in curve],
        "pass_hat_k_intervals": curve,
        "tries": _tries(judged),
        "measures": measured(ok, measures, kinds) if measures is not None else {},
        "labels": labelled(ok, failed, judged, labels) if labels is not None else {},
        "lost": lost_episodes(failed, judged, measures, labels, kinds),
        "ends": dict(Counter(episode.end.value for episode in all_).most_common()),
        "errors": dict(Counter(_cause(episode) for episode in failed).most_common(10)),
        "turns": _share(tallies.turns, len(ok)),
        "steps": _share(tallies.steps, len(ok)),
        "tokens": {
            agent: {"sampled": row.sampled, "prompt": row.prompt}
            for agent, row in tallies_of.items()
        },
        "model_calls": tallies.model_calls,
        "truncated": _mean([float(episode.end.bootstraps) for episode in ok]),
        "illegal": {agent: _share(row.illegal, row.choices) for agent, row in tallies_of.items()},
        "malformed": {agent: _share(row.malformed, row.calls) for agent, row in tallies_of.items()},
        "cut": {
            agent: {"sayings": row.cut_turns, "of": row.turns, "bytes": row.cut_bytes}
            for agent, row in tallies_of.items()
        },
        **tallies.by_policy(),
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
    won, counted = sum(good for _, good in judged), len(judged) + failed
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
    tries, wins = Counter[str](), Counter[str]()
    for episode, won in judged:
        tries[episode.task] += 1
        wins[episode.task] += won
    # over one task the interval would say nothing of other tasks
    if len(tries) < 2:
        return []
    # late: a summary without it needs no numpy
    from gem_ma.evaluation.stats import pass_hat_k_interval

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
    tries = Counter(episode.task for episode, _ in judged)
    return [min(tries.values()), max(tries.values())] if tries else []


def _cause(episode: Episode) -> str:
    """The first line of an episode's error, without its seed: failures of one cause are counted
    together."""
    # every failure of one cause names another seed
    return re.sub(rf"seed {episode.seed}, ", "", (episode.error or "no message").split("\n", 1)[0])[
        :200
    ]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: list[Any]) -> float | None:
    return math.fsum(values) / len(values) if values else None
