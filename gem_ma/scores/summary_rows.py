"""A summary of `gem_ma.scores.metrics` as rows of text: (what, value), the counts first.

It knows the keys of a summary and no episode, so a summary of an older version is printed too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gem_ma.kernel.spelling import decimal
from gem_ma.scores.columns import column_rows
from gem_ma.scores.groups import RETURN, group_rows, interval_text
from gem_ma.scores.together import MOST_RETURNS, shown

TextRow = tuple[str, str]


def table(summary: Mapping[str, Any]) -> list[TextRow]:
    """(what, value) rows of a summary for printing, the counts first."""
    return [
        *_score_rows(summary),
        *world_rows(summary),
        *baseline_rows(summary),
        *_pass_rows(summary),
        *group_rows(summary),
        *_return_rows(summary),
        # of all episodes, failed ones too, so that they sum to the count in the first row
        ("ends", ", ".join(f"{end} {n}" for end, n in summary["ends"].items()) or "none"),
        *column_rows(summary),
        *(("error", f"{count} x {text}") for text, count in summary["errors"].items()),
    ]


def _score_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    """Counts and success. A mean over survivors never stands without the number of the lost."""
    retried = f" ({summary['retried']} with retried calls)" if summary["retried"] else ""
    counts = f"{summary['ok']} ok / {summary['failed']} failed / {summary['excluded']} excluded"
    yield "episodes", counts + retried
    success = summary["success"]
    score = summary["score"]
    # a scenario without a notion of success has its returns
    if success is None:
        return
    yield "success", interval_text(success) + _unjudged(success["n"], summary["ok"])
    if summary["failed"] or summary["excluded"]:
        yield "success, failed = 0", _number(score["failed_as_zero"])
    if summary["excluded"]:
        bounds = f"{_number(score['lowest'])} / {_number(score['highest'])}"
        yield "success, excluded lost / won", bounds


def world_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    """Counts and success of each world of a run of several."""
    for world, part in summary.get("worlds", {}).items():
        lost = f", {part['failed']} failed" * (part["failed"] > 0)
        lost += f", {part['excluded']} excluded" * (part["excluded"] > 0)
        played = f"{part['ok']} ok{lost}"
        # a world without a notion of success has its returns, further down
        if (success := part["success"]) is None:
            yield f"world {world}", played
        else:
            text = interval_text(success) + _unjudged(success["n"], part["ok"])
            yield f"success {world}", f"{text}  ({played})"


def _unjudged(judged: int, ok: int) -> str:
    return f" of {judged} judged, {ok - judged} cannot be" if judged < ok else ""


def baseline_rows(summary: Mapping[str, Any]) -> list[TextRow]:
    """A row for each baseline that was played beside a run; none where the summary has no
    `baselines`."""
    return [
        (f"baseline {name}", _baseline(baseline))
        for name, baseline in summary.get("baselines", {}).items()
    ]


def _baseline(baseline: Mapping[str, Any]) -> str:
    success = baseline["success"]
    ok = baseline["ok"]
    scores = {"": success}
    if success is None:
        returns = list(baseline["returns"].items())
        scores = {f"return {agent} ": interval for agent, interval in returns[:MOST_RETURNS]}
    text = ", ".join(what + interval_text(interval) for what, interval in scores.items())
    # a baseline always says of how many plays: they are fewer than those of the run
    text += f" of {ok}" if success is None else _unjudged(success["n"], ok) or f" of {ok}"
    if baseline["failed"]:
        text += f", {baseline['failed']} failed"
    if baseline["tasks"] < baseline["of"]:
        text += f" ({baseline['tasks']} of {baseline['of']} tasks)"
    return text


def _pass_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    """pass^k. With k = 1 alone it only repeats the success, so it is printed only with the reason
    why more is missing."""
    intervals = _pass_intervals(summary)
    refused = _refused(summary)
    if len(intervals) > 1 or (intervals and refused):
        texts = (f"{k}: {interval_text(interval)}" for k, interval in enumerate(intervals, 1))
        yield "pass^k", "  ".join(texts) + refused


def _pass_intervals(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    blank = {"low": None, "high": None}  # a summary of an older version has no intervals
    return list(
        summary.get("pass_hat_k_intervals")
        or [{"mean": value, **blank} for value in summary["pass_hat_k"]]
    )


def _refused(summary: Mapping[str, Any]) -> str:
    """Which k cannot be computed, where tasks differ in how often they were tried."""
    # an older summary says nothing of tries
    least, most = summary.get("tries") or (0, 0)
    return f"  (no k above {least}: not every task has more scored tries)" if most > least else ""


def _return_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    returns = summary["returns"]
    rows = column_rows(summary, ("score",))
    of_groups = [row for row in rows if row[0].startswith(RETURN)]
    yield from of_groups
    agents = shown([*returns], [what for what, _ in of_groups])
    for agent in (name for name in agents if name in returns):
        interval = returns[agent]
        yield f"return {agent}", interval_text(interval)
        # beside the mean, never instead of it
        if summary["failed"]:
            yield f"return {agent}, failed = 0", _number(interval["failed_as_zero"])
    if left := len(returns.keys() - set(agents)):
        yield "return of an agent", f"that of {left} is in summary.json"
    yield from (row for row in rows if row not in of_groups)


def _number(value: float | None) -> str:
    return decimal(value)
