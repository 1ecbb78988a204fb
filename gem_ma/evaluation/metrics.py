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
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_ma.evaluation.groups import (
    Labels,
    Measures,
    check_rate,
    group_rows,
    interval,
    interval_text,
    labelled,
    measured,
    units,
)
from gem_ma.evaluation.kinds import RETURN, Kinds
from gem_ma.evaluation.lost import lost_episodes
from gem_ma.evaluation.tallies import Said, take
from gem_ma.types import End, Episode

__all__ = ["Success", "interval_text", "summarise", "table", "units"]

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
    said = {agent: tallies.said.get(agent, Said()) for agent in agents}
    measures, labels = measures and taken.measures, labels and taken.labels
    curve, excluded = _pass_hat_k(judged), len(all_) - len(ok) - len(failed)
    won = [float(one) for _, one in judged]
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
        "pass_hat_k": [one["mean"] for one in curve],
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
            agent: {"sampled": one.sampled, "prompt": one.prompt} for agent, one in said.items()
        },
        "model_calls": tallies.model_calls,
        "truncated": _mean([float(episode.end.bootstraps) for episode in ok]),
        "illegal": {agent: _share(one.illegal, one.choices) for agent, one in said.items()},
        "malformed": {agent: _share(one.malformed, one.calls) for agent, one in said.items()},
        "cut": {
            agent: {"sayings": one.cut_turns, "of": one.turns, "bytes": one.cut_bytes}
            for agent, one in said.items()
        },
        **tallies.by_policy(),
    }


def table(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, value) rows of a summary for printing, the counts first."""
    counts = f"{summary['ok']} ok / {summary['failed']} failed / {summary['excluded']} excluded"
    rows = [
        (
            "episodes",
            counts + (f" ({summary['retried']} with retried calls)" if summary["retried"] else ""),
        )
    ]
    if summary["success"] is not None:
        judged = summary["success"]["n"]
        unjudged = (
            f" of {judged} judged, {summary['ok'] - judged} cannot be"
            if judged < summary["ok"]
            else ""
        )
        rows.append(("success", interval_text(summary["success"]) + unjudged))
        if summary["failed"] or summary["excluded"]:
            rows.append(("success, failed = 0", _number(summary["score"]["failed_as_zero"])))
        if summary["excluded"]:
            rows.append(
                (
                    "success, excluded lost / won",
                    (
                        f"{_number(summary['score']['lowest'])} /"
                        f" {_number(summary['score']['highest'])}"
                    ),
                )
            )
    rows += baseline_rows(summary)
    if len(summary["pass_hat_k"]) > 1:
        rows.append(
            (
                "pass^k",
                "  ".join(
                    f"{k}: {interval_text(one)}"
                    for k, one in enumerate(_pass_intervals(summary), 1)
                )
                + _refused(summary),
            )
        )
    elif len(summary["pass_hat_k"]) == 1 and _refused(summary):
        rows.append(
            ("pass^k", f"1: {interval_text(_pass_intervals(summary)[0])}{_refused(summary)}")
        )
    rows += group_rows(summary)
    for agent, one in summary["returns"].items():
        rows.append((f"return {agent}", interval_text(one)))
        if summary["failed"]:
            rows.append((f"return {agent}, failed = 0", _number(one["failed_as_zero"])))
    rows.append(
        ("ends", ", ".join(f"{end} {count}" for end, count in summary["ends"].items()) or "none")
    )
    rows.append(("turns per episode", _number(summary["turns"])))
    for agent, share in summary["illegal"].items():
        if share is not None:
            rows.append((f"illegal {agent}", f"{100 * share:.1f} %"))
    for agent, share in summary["malformed"].items():
        if share:
            rows.append((f"malformed calls {agent}", f"{100 * share:.1f} %"))
    for agent, cut in summary.get("cut", {}).items():
        if cut["sayings"]:
            rows.append(
                (
                    f"cut sayings {agent}",
                    f"{cut['sayings']} of {cut['of']}, {cut['bytes']} bytes (run.max_said)",
                )
            )
    for policy, one in summary.get("empty", {}).items():
        if one["empty"]:
            rows.append(
                (
                    f"empty replies {policy}",
                    f"{100 * one['share']:.1f} % ({one['empty']} of {one['replies']})",
                )
            )
    for policy, others in summary.get("other_models", {}).items():
        told = ", ".join(f"{name} {count}" for name, count in others.items())
        rows.append(
            (
                f"other models {policy}",
                f"{told} replies of a model that is called otherwise than asked",
            )
        )
    for agent, tokens in summary["tokens"].items():
        if tokens["sampled"]:
            rows.append(
                (f"tokens {agent}", f"{tokens['sampled']} sampled, {tokens['prompt']} read")
            )
    rows += [("error", f"{count} x {text}") for text, count in summary["errors"].items()]
    return rows


def baseline_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A row for each baseline that was played beside a run; none where the summary has no
    `baselines`."""
    rows = []
    for name, one in summary.get("baselines", {}).items():
        scores = (
            {"": one["success"]}
            if one["success"] is not None
            else {f"return {agent} ": found for agent, found in one["returns"].items()}
        )
        told = ", ".join(what + interval_text(found) for what, found in scores.items())
        judged = one["ok"] if one["success"] is None else one["success"]["n"]
        told += f" of {judged}" + (
            f" judged, {one['ok'] - judged} cannot be" if judged < one["ok"] else ""
        )
        told += f", {one['failed']} failed" if one["failed"] else ""
        rows.append(
            (
                f"baseline {name}",
                told
                + (f" ({one['tasks']} of {one['of']} tasks)" if one["tasks"] < one["of"] else ""),
            )
        )
    return rows


def _pass_intervals(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    blank = {"low": None, "high": None}  # a summary of an older version has no intervals
    return list(
        summary.get("pass_hat_k_intervals")
        or [{"mean": value, **blank} for value in summary["pass_hat_k"]]
    )


def _refused(summary: Mapping[str, Any]) -> str:
    """Which k cannot be had, where tasks differ in how often they were tried."""
    least, most = summary.get("tries") or (0, 0)
    return f"  (no k above {least}: not every task has more scored tries)" if most > least else ""


def _return(agent: str, ok: list[Episode], failed: int, kinds: Kinds) -> dict[str, Any]:
    played = [episode for episode in ok if agent in episode.cast]
    values = [episode.returns()[agent] for episode in played]
    total = len(values) + failed
    check_rate(RETURN + agent, values, played, kinds)
    return {
        **interval(values, played, rate=kinds.is_rate(RETURN + agent)),
        "failed_as_zero": math.fsum(values) / total if total else None,
    }


def _score(
    judged: list[tuple[Episode, bool]], failed: int, excluded: int
) -> dict[str, float | None]:
    won, counted = sum(1 for _, one in judged if one), len(judged) + failed
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
    if len(tries) < 2:
        return []
    from gem_ma.evaluation.stats import pass_hat_k_interval

    tasks = list(tries)
    made = [
        pass_hat_k_interval([wins[task] for task in tasks], [tries[task] for task in tasks], k)
        for k in range(1, min(tries.values()) + 1)
    ]
    return [
        {
            "mean": one.mean,
            "low": one.low,
            "high": one.high,
            "n": one.tasks,
            "method": one.method,
            "rate": True,
        }
        for one in made
    ]


def _tries(judged: list[tuple[Episode, bool]]) -> list[int]:
    """The fewest and the most judged tries of a task; [] where nothing is judged."""
    tries = Counter(episode.task for episode, _ in judged)
    return [min(tries.values()), max(tries.values())] if tries else []


def _cause(episode: Episode) -> str:
    """The first line of an episode's error, without its seed: failures of one cause are counted
    together."""
    return re.sub(rf"seed {episode.seed}, ", "", (episode.error or "no message").split("\n", 1)[0])[
        :200
    ]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: list[Any]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
