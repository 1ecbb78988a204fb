"""What stands below a run's scores: its baselines, pass^k, measures, success within each label, and
what the lost episodes are blamed on.

It reads a summary of `gem_ma.evaluation.metrics`; every plot has its numbers as a table below
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.evaluation.groups import interval_text, is_cause, is_constant, is_zero
from gem_ma.view.marks import RATE, axis_name, axis_of, figure, interval_cell
from gem_ma.view.page import Html, table
from gem_ma.view.plots import Mark, share_bar, whisker_chart

Summary = Mapping[str, Any]


def details(label: str, summary: Summary) -> list[Html]:
    """The parts that this summary has; `label` names the run where a page shows several."""
    before = f"{label}: " if label else ""
    parts = [baselines(before, summary), _pass_k(before, summary), _measures(before, summary)]
    for name, one in summary.get("labels", {}).items():
        if is_constant(one, summary) and not is_cause(name, one):
            continue
        parts.append(
            _causes(before, name, one)
            if is_cause(name, one)
            else _groups(before, name, one, summary["success"] is not None)
        )
    return [part for part in parts if part]


def baselines(before: str, summary: Summary) -> Html:
    """The trivial players; above them the run's own scores where the summary has them, as that
    of a training run has not."""
    found = summary.get("baselines") or {}
    if not found:
        return Html("")
    judged = any(one["success"] is not None for one in found.values())
    agents = list(dict.fromkeys(agent for one in found.values() for agent in one["returns"]))
    axis = axis_of(
        one["returns"].get(agent)
        for one in (*found.values(), *([summary] if "returns" in summary else []))
        for agent in agents
    )
    rows: list[list[object]] = []
    if "returns" in summary:
        own: list[object] = [
            f"{before}this run",
            "",
            *([interval_cell(summary["success"], RATE)] if judged else []),
        ]
        counts = f"{summary['ok']} / {summary['failed']} / {summary['excluded']}"
        rows.append(
            [
                *own,
                *(interval_cell(summary["returns"].get(agent), axis) for agent in agents),
                counts,
            ]
        )
    for name, one in found.items():
        cast = ", ".join(f"{agent}: {behaviour}" for agent, behaviour in one["cast"].items())
        row: list[object] = [name, cast, *([interval_cell(one["success"], RATE)] if judged else [])]
        rows.append(
            [
                *row,
                *(interval_cell(one["returns"].get(agent), axis) for agent in agents),
                f"{one['ok']} / {one['failed']} / {one['excluded']}",
            ]
        )
    heads = [
        *([axis_name("success", RATE)] if judged else []),
        *(axis_name(f"return {agent}", axis) for agent in agents),
    ]
    columns = ["baseline", "cast", *heads, "ok / failed / excluded"]
    some = next(iter(found.values()))
    which = (
        f"{some['tasks']} of the run's {some['of']} tasks, drawn once"
        if some["tasks"] < some["of"]
        else "the run's own tasks and seeds"
    )
    return figure(
        f"{before}trivial players beside it",
        "",
        table(columns, rows, caption=f"Each plays {which}, once."),
    )


def _pass_k(before: str, summary: Summary) -> Html:
    curve = summary.get("pass_hat_k_intervals") or []
    if len(curve) < 2:
        return Html("")
    names = [str(k) for k in range(1, len(curve) + 1)]
    marks = [Mark(one["mean"], one["low"], one["high"]) for one in curve]
    title = f"{before}pass^k: all of k tries of a task succeed"
    svg = whisker_chart(
        {"pass^k": marks}, names, title=title, x_label="k", y_label="pass^k", y_range=(0.0, 1.0)
    )
    least, most = summary.get("tries") or (0, 0)
    refused = f" No k above {least}: not every task has more scored tries." if most > least else ""
    rows = [
        [k, interval_text(one), one["n"], one["method"]]
        for k, one in zip(names, curve, strict=True)
    ]
    return figure(
        title,
        svg,
        table(
            ["k", "pass^k", "tasks", "interval"],
            rows,
            caption=f"Unbiased, mean over tasks, 95 % interval.{refused}",
        ),
    )


def _measures(before: str, summary: Summary) -> Html:
    found = summary.get("measures") or {}
    if not found:
        return Html("")
    zero = [name for name, one in found.items() if is_zero(one)]
    rows = [
        [
            name,
            interval_cell(one, RATE if one.get("rate") else None),
            one.get("better", ""),
            one["n"],
            one["method"],
        ]
        for name, one in found.items()
        if name not in zero
    ]
    caption = "Mean with 95 % interval over the ok episodes to which it applies." + (
        f" 0 in every episode: {', '.join(zero)}." if zero else ""
    )
    return figure(
        f"{before}measures",
        "",
        table(["measure", "mean", "better", "episodes", "interval"], rows, caption=caption),
    )


def _groups(before: str, name: str, one: Mapping[str, Any], judged: bool) -> Html:
    columns = [name, *(["success", "judged"] if judged else []), "episodes", "lost"]
    rows = [
        [
            value,
            *([interval_cell(found["success"], RATE), found["success"]["n"]] if judged else []),
            found["episodes"],
            found["lost"],
        ]
        for value, found in one["values"].items()
    ]
    caption = "An episode may carry several values." if _several(one) else ""
    return figure(f"{before}by {name}", "", table(columns, rows, caption=caption))


def _causes(before: str, name: str, one: Mapping[str, Any]) -> Html:
    lost = {value: found for value, found in one["values"].items() if found["lost"]}
    if not one["lost"]:
        return Html("")
    rows: list[list[object]] = [
        [value, interval_cell(found["share"], RATE), found["lost"]] for value, found in lost.items()
    ]
    shares = {value: found["share"]["mean"] for value, found in lost.items()}
    if one["unlabelled"]:
        rows.append(["none named", f"{one['unlabelled'] / one['lost']:.3f}", one["unlabelled"]])
    title = f"{before}{name} of the {one['lost']} lost episodes"
    caption = "Share of the lost episodes, FAILED ones included, with 95 % interval."
    return figure(
        title,
        share_bar(shares, title=title),
        table([name, "share", "episodes"], rows, caption=caption),
    )


def _several(one: Mapping[str, Any]) -> bool:
    return sum(found["lost"] for found in one["values"].values()) > one["lost"]
