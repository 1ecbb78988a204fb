"""What stands below a run's scores: its baselines, pass^k, measures, success within each label, and
what the lost episodes are blamed on.

It reads a summary of `gem_ma.scores.metrics`; every plot has its numbers as a table below
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.pages.static.marks import RATE, Axis, axis_name, axis_of, figure, interval_cell
from gem_ma.pages.static.page import Html, table
from gem_ma.pages.static.plots import Mark, share_bar, whisker_chart
from gem_ma.scores.groups import interval_text, is_cause, is_constant, is_zero

Summary = Mapping[str, Any]


def details(label: str, summary: Summary) -> list[Html]:
    """The parts that this summary has; `label` names the run where a page shows several."""
    before = f"{label}: " if label else ""
    parts = [baselines(before, summary), _pass_k(before, summary), _measures(before, summary)]
    for name, grouping in summary.get("labels", {}).items():
        # one value for all episodes says nothing; a single cause says why they were lost
        if is_constant(grouping, summary) and not is_cause(name, grouping):
            continue
        parts.append(
            _causes(before, name, grouping)
            if is_cause(name, grouping)
            else _groups(before, name, grouping, summary["success"] is not None)
        )
    return [part for part in parts if part]


def baselines(before: str, summary: Summary) -> Html:
    """The trivial players; above them the run's own scores where the summary has them, as that
    of a training run has not."""
    players = summary.get("baselines") or {}
    if not players:
        return Html("")
    judged = any(player["success"] is not None for player in players.values())
    agents = list(
        dict.fromkeys(agent for player in players.values() for agent in player["returns"])
    )
    # one axis for the run and all players, so that their marks compare
    axis = axis_of(
        player["returns"].get(agent)
        for player in (*players.values(), *([summary] if "returns" in summary else []))
        for agent in agents
    )
    rows: list[list[object]] = []
    if "returns" in summary:
        rows.append([f"{before}this run", "", *_row_of(summary, agents, axis, judged)])
    for name, player in players.items():
        cast = ", ".join(f"{agent}: {behaviour}" for agent, behaviour in player["cast"].items())
        rows.append([name, cast, *_row_of(player, agents, axis, judged)])
    heads = [
        *([axis_name("success", RATE)] if judged else []),
        *(axis_name(f"return {agent}", axis) for agent in agents),
    ]
    columns = ["baseline", "cast", *heads, "ok / failed / excluded"]
    # all of them play the same tasks
    some = next(iter(players.values()))
    which = "the run's own tasks and seeds"
    if some["tasks"] < some["of"]:
        which = f"{some['tasks']} of the run's {some['of']} tasks, drawn once"
    return figure(
        f"{before}trivial players beside it",
        "",
        table(columns, rows, caption=f"Each plays {which}, once."),
    )


def _row_of(scores: Summary, agents: Sequence[str], axis: Axis, judged: bool) -> list[object]:
    """Success where anybody's is judged, the return of each agent, and counts."""
    return [
        *([interval_cell(scores["success"], RATE)] if judged else []),
        *(interval_cell(scores["returns"].get(agent), axis) for agent in agents),
        f"{scores['ok']} / {scores['failed']} / {scores['excluded']}",
    ]


def _pass_k(before: str, summary: Summary) -> Html:
    curve = summary.get("pass_hat_k_intervals") or []
    # pass^1 is the success that stands above
    if len(curve) < 2:
        return Html("")
    names = [str(k) for k in range(1, len(curve) + 1)]
    marks = [Mark(estimate["mean"], estimate["low"], estimate["high"]) for estimate in curve]
    title = f"{before}pass^k: all of k tries of a task succeed"
    svg = whisker_chart(
        {"pass^k": marks}, names, title=title, x_label="k", y_label="pass^k", y_range=(0.0, 1.0)
    )
    least, most = summary.get("tries") or (0, 0)
    refused = f" No k above {least}: not every task has more scored tries." if most > least else ""
    rows = [
        [k, interval_text(estimate), estimate["n"], estimate["method"]]
        for k, estimate in zip(names, curve, strict=True)
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
    measures = summary.get("measures") or {}
    if not measures:
        return Html("")
    # named below the table: rows of zeros would hide the others
    zero = [name for name, estimate in measures.items() if is_zero(estimate)]
    # the method too: an interval of 5 tasks and one of 500 are made in other ways
    rows = [
        [
            name,
            interval_cell(estimate, RATE if estimate.get("rate") else None),
            estimate.get("better", ""),
            estimate["n"],
            estimate["method"],
        ]
        for name, estimate in measures.items()
        if name not in zero
    ]
    caption = "Mean with 95 % interval over the ok episodes to which it applies."
    caption += f" 0 in every episode: {', '.join(zero)}." if zero else ""
    return figure(
        f"{before}measures",
        "",
        table(["measure", "mean", "better", "episodes", "interval"], rows, caption=caption),
    )


def _groups(before: str, name: str, grouping: Mapping[str, Any], judged: bool) -> Html:
    columns = [name, *(["success", "judged"] if judged else []), "episodes", "lost"]
    rows = [
        [
            value,
            *([interval_cell(group["success"], RATE), group["success"]["n"]] if judged else []),
            group["episodes"],
            group["lost"],
        ]
        for value, group in grouping["values"].items()
    ]
    caption = "An episode may carry several values." if _several(grouping) else ""
    return figure(f"{before}by {name}", "", table(columns, rows, caption=caption))


def _causes(before: str, name: str, grouping: Mapping[str, Any]) -> Html:
    lost = {value: group for value, group in grouping["values"].items() if group["lost"]}
    if not grouping["lost"]:
        return Html("")
    rows: list[list[object]] = [
        [value, interval_cell(group["share"], RATE), group["lost"]] for value, group in lost.items()
    ]
    # one bar of all causes; several may be named for one play, and the bar scales them down
    shares = {value: group["share"]["mean"] for value, group in lost.items()}
    # without this row the shares would not come to 1
    if grouping["unlabelled"]:
        share = f"{grouping['unlabelled'] / grouping['lost']:.3f}"
        rows.append(["none named", share, grouping["unlabelled"]])
    title = f"{before}{name} of the {grouping['lost']} lost episodes"
    caption = "Share of the lost episodes, FAILED ones included, with 95 % interval."
    return figure(
        title,
        share_bar(shares, title=title),
        table([name, "share", "episodes"], rows, caption=caption),
    )


def _several(grouping: Mapping[str, Any]) -> bool:
    """Whether some lost episode carries more than one value."""
    return sum(group["lost"] for group in grouping["values"].values()) > grouping["lost"]
