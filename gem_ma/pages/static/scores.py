"""The tables of scores of a page: one row per run, and what learning changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.kernel.spelling import decimal
from gem_ma.pages.static.learning import flatten, score_of
from gem_ma.pages.static.marks import RATE, axis_name, axis_of, interval_cell
from gem_ma.pages.static.page import Html, table, text
from gem_ma.scores.columns import COLUMNS

# scores of an exam, in their order in the table: the first four say how far from an equilibrium
_EXAM = (
    "nash_conv",
    "nash_conv_averaged",
    "exploitability",
    "exploitability_averaged",
    "success",
    "return",
    "ok",
    "failed",
)


def by_world(label: str, summary: Mapping[str, Any]) -> Html:
    """One row per world of a run of several; "" for any other run."""
    worlds = summary.get("worlds")
    if not isinstance(worlds, Mapping) or not worlds:
        return Html("")
    try:
        return scores(worlds, of=f"{label}: world" if label else "world")
    except (KeyError, TypeError):  # of another version, or a stranger's
        return Html("")


def scores(summaries: Mapping[str, Mapping[str, Any]], of: str = "run") -> Html:
    """One row per run: counts first, then each score with its interval."""
    agents = list(
        dict.fromkeys(
            agent
            for summary in summaries.values()
            for agent in summary["returns"]
            # worlds have a table of their own, where agents of one name share a column
            if not summary.get("worlds")
        )
    )
    judged = any(summary["success"] for summary in summaries.values())
    # without failures this column would repeat the one before it
    partial = any(summary["failed"] or summary["excluded"] for summary in summaries.values())
    # one axis for all runs, so that their marks compare
    axis = axis_of(
        estimate for summary in summaries.values() for estimate in summary["returns"].values()
    )
    columns: list[object] = [
        of,
        "ok / failed / excluded",
        *([axis_name("success", RATE)] if judged else []),
    ]
    columns += ["success, failed = 0"] if judged and partial else []
    columns += [axis_name(f"return {agent}", axis) for agent in agents]
    shared = [
        column
        for column in COLUMNS
        # the worlds of a run have none
        if column.shown == "table" and any(column.key in summary for summary in summaries.values())
    ]
    rows: list[list[object]] = []
    for label, summary in summaries.items():
        row: list[object] = [label, counts(summary)]
        if judged:
            row.append(interval_cell(summary["success"], RATE))
            if partial:
                score = (summary["score"] or {}).get("failed_as_zero")
                row.append(decimal(score))
        row += [interval_cell(summary["returns"].get(agent), axis) for agent in agents]
        values = [(column, summary.get(column.key)) for column in shared]
        row += ["n/a" if value is None else column.text(value) for column, value in values]
        row.append(", ".join(f"{end} {n}" for end, n in summary["ends"].items()))
        rows.append(row)
    # named once below the table; a run of some dozen plays has other methods than one of thousands
    methods = {
        estimate["method"]
        for s in summaries.values()
        for estimate in (s["success"], *s["returns"].values())
        if estimate and estimate["n"]
    }
    caption = (
        f"Mean with 95 % interval ({', '.join(sorted(methods))}) over the ok episodes; failed and"
        " excluded ones are counted beside it."
    )
    return table([*columns, *(column.name for column in shared), "ends"], rows, caption=caption)


def counts(summary: Mapping[str, Any]) -> Html:
    """`9 / 1 / 0`, failed ones in red."""
    failed = f'<span class="bad">{text(summary["failed"])}</span>' if summary["failed"] else "0"
    return Html(f"{text(summary['ok'])} / {failed} / {text(summary['excluded'])}")


def before_and_after(label: str, stored: Mapping[str, Any]) -> Html:
    """What learning changed, out of a training run's summary.json: every score of the first exam
    beside the last; exploitability first."""
    first, last = (
        flatten(stored[name]) if isinstance(stored.get(name), dict) else {}
        for name in ("before", "after")
    )
    keys = sorted(
        (key for key in last if score_of(key) in _EXAM),
        key=lambda key: _EXAM.index(score_of(key)) if _EXAM.index(score_of(key)) < 4 else 4,
    )
    rows = [
        [
            key.replace("/", " "),
            _plain(first.get(key), last[key]),
            _plain(last[key], first.get(key)),
        ]
        for key in keys
    ]
    if not rows:
        return Html("")
    learned = (
        ", ".join(map(str, stored["learned"])) or "nothing"
        # the folder may come from anybody
        if isinstance(stored.get("learned"), list)
        else "not told"
    )
    caption = (
        f"{f'{label}: ' if label else ''}before the first and after the last update; learned:"
        f" {learned}"
    )
    return table(["score", "before", "after"], rows, caption=caption)


def _plain(value: object, other: object) -> str:
    """A value in one form with that of the other exam."""
    beside = other if isinstance(other, float) else None
    return decimal(value, beside) if value is None or isinstance(value, float) else str(value)
