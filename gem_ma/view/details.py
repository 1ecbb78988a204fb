"""What stands below a run's scores: its baselines, pass^k, measures, success within each label, and what the lost episodes are blamed on.

It reads a summary of `gem_ma.evaluation.metrics`; every plot has its numbers as a table below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.evaluation.groups import interval_text, is_cause, is_constant, is_zero
from gem_ma.view.page import Html, table, text
from gem_ma.view.plots import Mark, share_bar, whisker_chart
from gem_ma.view.svg import interval_mark

Summary = Mapping[str, Any]


def details(label: str, summary: Summary) -> list[Html]:
    """The parts that this summary has; `label` names the run where a page shows several."""
    before = f"{label}: " if label else ""
    parts = [baselines(before, summary), _pass_k(before, summary), _measures(before, summary)]
    for name, one in summary.get("labels", {}).items():
        if is_constant(one, summary) and not is_cause(name, one):
            continue
        parts.append(_causes(before, name, one) if is_cause(name, one) else _groups(before, name, one, summary["success"] is not None))
    return [part for part in parts if part]


def baselines(before: str, summary: Summary) -> Html:
    """The trivial players; above them the run's own scores where the summary has them, as that of a training run has not."""
    found = summary.get("baselines") or {}
    if not found:
        return Html("")
    judged = any(one["success"] is not None for one in found.values())
    agents = list(dict.fromkeys(agent for one in found.values() for agent in one["returns"]))
    rows: list[list[object]] = []
    if "returns" in summary:
        own: list[object] = [f"{before}this run", "", *([_interval(summary["success"], rate=True)] if judged else [])]
        counts = f"{summary['ok']} / {summary['failed']} / {summary['excluded']}"
        rows.append([*own, *(_interval(summary["returns"].get(agent)) for agent in agents), counts])
    for name, one in found.items():
        cast = ", ".join(f"{agent}: {behaviour}" for agent, behaviour in one["cast"].items())
        row: list[object] = [name, cast, *([_interval(one["success"], rate=True)] if judged else [])]
        rows.append([*row, *(_interval(one["returns"].get(agent)) for agent in agents), f"{one['ok']} / {one['failed']} / {one['excluded']}"])
    columns = ["baseline", "cast", *(["success"] if judged else []), *(f"return {agent}" for agent in agents), "ok / failed / excluded"]
    some = next(iter(found.values()))
    which = f"{some['tasks']} of the run's {some['of']} tasks, drawn once" if some["tasks"] < some["of"] else "the run's own tasks and seeds"
    return _figure(f"{before}trivial players beside it", "", table(columns, rows, caption=f"Each plays {which}, once."))


def _pass_k(before: str, summary: Summary) -> Html:
    curve = summary.get("pass_hat_k_intervals") or []
    if len(curve) < 2:
        return Html("")
    names = [str(k) for k in range(1, len(curve) + 1)]
    marks = [Mark(one["mean"], one["low"], one["high"]) for one in curve]
    title = f"{before}pass^k: all of k tries of a task succeed"
    svg = whisker_chart({"pass^k": marks}, names, title=title, x_label="k", y_label="pass^k", y_range=(0.0, 1.0))
    least, most = summary.get("tries") or (0, 0)
    refused = f" No k above {least}: not every task has more scored tries." if most > least else ""
    rows = [[k, interval_text(one), one["n"], one["method"]] for k, one in zip(names, curve, strict=True)]
    return _figure(title, svg, table(["k", "pass^k", "tasks", "interval"], rows, caption=f"Unbiased, mean over tasks, 95 % interval.{refused}"))


def _measures(before: str, summary: Summary) -> Html:
    found = summary.get("measures") or {}
    if not found:
        return Html("")
    zero = [name for name, one in found.items() if is_zero(one)]
    rows = [[name, _interval(one), one["n"], one["method"]] for name, one in found.items() if name not in zero]
    caption = "Mean with 95 % interval over the ok episodes to which it applies." + (f" 0 in every episode: {', '.join(zero)}." if zero else "")
    return _figure(f"{before}measures", "", table(["measure", "mean", "episodes", "interval"], rows, caption=caption))


def _groups(before: str, name: str, one: Mapping[str, Any], judged: bool) -> Html:
    columns = [name, *(["success", "judged"] if judged else []), "episodes", "lost"]
    rows = [
        [value, *([_interval(found["success"], rate=True), found["success"]["n"]] if judged else []), found["episodes"], found["lost"]]
        for value, found in one["values"].items()
    ]
    caption = "An episode may carry several values." if _several(one) else ""
    return _figure(f"{before}by {name}", "", table(columns, rows, caption=caption))


def _causes(before: str, name: str, one: Mapping[str, Any]) -> Html:
    lost = {value: found for value, found in one["values"].items() if found["lost"]}
    if not one["lost"]:
        return Html("")
    rows: list[list[object]] = [[value, _interval(found["share"], rate=True), found["lost"]] for value, found in lost.items()]
    shares = {value: found["share"]["mean"] for value, found in lost.items()}
    if one["unlabelled"]:
        rows.append(["none named", f"{one['unlabelled'] / one['lost']:.3f}", one["unlabelled"]])
    title = f"{before}{name} of the {one['lost']} lost episodes"
    caption = "Share of the lost episodes, FAILED ones included, with 95 % interval."
    return _figure(title, share_bar(shares, title=title), table([name, "share", "episodes"], rows, caption=caption))


def _several(one: Mapping[str, Any]) -> bool:
    return sum(found["lost"] for found in one["values"].values()) > one["lost"]


def _interval(estimate: Mapping[str, Any] | None, *, rate: bool = False) -> Html:
    if not estimate:
        return text("n/a")
    mark = interval_mark(estimate, 0.0, 1.0) if rate else ""
    return Html(f'<span class="interval">{text(interval_text(estimate))}</span>{mark}')


def _figure(title: str, svg: str, numbers: str) -> Html:
    return Html(f"<figure><h3>{text(title)}</h3>{svg}{numbers}</figure>")
