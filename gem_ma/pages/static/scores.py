"""The scores of a page: one row per run, what learning changed, the lost episodes, and what stands
below a run's scores. It reads summaries of `gem_ma.scores.metrics`; every plot has its numbers as a
table below it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gem_ma.kernel.spelling import decimal
from gem_ma.pages.static.figures import RATE, Axis, Mark, axis_name, axis_of, figure, interval_cell
from gem_ma.pages.static.page import Html, render, table, text
from gem_ma.pages.static.plots import share_bar, whisker_chart
from gem_ma.scores.columns import table_columns
from gem_ma.scores.groups import interval_text, is_cause, is_constant, is_zero
from gem_ma.scores.together import MOST_RETURNS, shown


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
    # worlds have a table of their own, where agents of one name share a column
    paid = [summary["returns"] for summary in summaries.values() if not summary.get("worlds")]
    agents = list(dict.fromkeys(agent for returns in paid for agent in returns))
    grouped = dict.fromkeys(name for s in summaries.values() for name in s.get("groups", ()))
    # those of groups have a table of their own
    agents = [
        agent for agent in shown(agents, [f"of {name}" for name in grouped]) if agent in agents
    ]
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
    shared = table_columns(summaries.values())  # the worlds of a run have none
    rows: list[list[object]] = []
    for label, summary in summaries.items():
        row: list[object] = [label, counts(summary)]
        if judged:
            row.append(interval_cell(summary["success"], RATE))
            if partial:
                score = (summary["score"] or {}).get("failed_as_zero")
                row.append(decimal(score))
        row += [interval_cell(summary["returns"].get(agent), axis) for agent in agents]
        row += [column.cell(summary) for column in shared]
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


def of_groups(summaries: Mapping[str, Mapping[str, Any]]) -> Html:
    """A row for each group of each run: its return, how it spreads, whether the team won; and
    welfare and equality. "" where no run has any."""
    estimates = [group for s in summaries.values() for group in s.get("groups", {}).values()]
    axis = axis_of(estimates)
    spreads = axis_of(group["spread"] for group in estimates)
    rows: list[list[object]] = []
    left = 0
    for label, summary in summaries.items():
        begin = [label] if len(summaries) > 1 else []
        groups = summary.get("groups", {})
        won = summary.get("won", {})
        left += max(0, len(groups) - MOST_RETURNS)
        # a team of one agent is its return already, and may have won
        for name in [*list(groups)[:MOST_RETURNS], *(team for team in won if team not in groups)]:
            group = groups.get(name)
            rows.append(
                [
                    *begin,
                    name,
                    decimal(group["agents"]).removesuffix(".000") if group else "1",
                    interval_cell(group, axis) if group else "",
                    interval_cell(group["spread"], spreads) if group and group["spread"] else "",
                    interval_cell(won[name], RATE) if name in won else "",
                ]
            )
        rows += [
            [*begin, name, "", interval_cell(estimate), "", ""]
            for name, estimate in summary.get("together", {}).items()
        ]
    if not rows:
        return Html("")
    heads = [axis_name("return a head", axis), axis_name("spread", spreads), axis_name("won", RATE)]
    columns = [*(["run"] if len(summaries) > 1 else []), "of", "agents", *heads]
    # a column in which nobody has a number says nothing
    kept = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    columns = [columns[at] for at in kept]
    rows = [[row[at] for at in kept] for row in rows]
    caption = (
        "Mean over the ok episodes with 95 % interval. spread: standard deviation among the agents"
        " of one play; won: the best mean return of all teams; welfare: the sum of all returns;"
        " equality: 1 - Gini, over plays in which no return is below 0."
    )
    caption += f" {left} more groups are in summary.json." if left else ""
    return figure("Returns together", "", table(columns, rows, caption=caption))


def counts(summary: Mapping[str, Any]) -> Html:
    """`9 / 1 / 0`, failed ones in red."""
    failed = f'<span class="bad">{text(summary["failed"])}</span>' if summary["failed"] else "0"
    return Html(f"{text(summary['ok'])} / {failed} / {text(summary['excluded'])}")


# -- lost episodes ---------------------------------------------------------------------------------


# rows that stand open, of a page of one run and of each of several; the others are folded
OPEN = 10
OPEN_EACH = 3
SEED = 6  # digits of a seed in a list
FEW_FOUND = 3  # measures of a lost play in its row
FEW_RETURNS = 4  # of a lost play that are named one by one


def lost_table(island: Mapping[str, Any], *, named: bool) -> Html:
    """`island`: a run as it lies in the page's data; `named`: whether the page shows several runs.
    "" where none is lost."""
    run = island["name"]
    lost = [episode for episode in island["episodes"] if {"lost", "failed"} & set(episode["kinds"])]
    if not lost:
        return Html("")
    is_one_task = len({episode["task"] for episode in lost}) == 1
    rows = [_row(run, episode, is_one_task) for episode in lost]
    # of the run, not of the page, which may hold fewer; the viewer's pages hold all
    totals = {
        kind: island["totals"].get(kind, sum(kind in episode["kinds"] for episode in lost))
        for kind in ("lost", "failed")
    }
    whole = sum(totals.values())
    counts = ", ".join(f"{total} {kind}" for kind, total in totals.items() if total)
    left_out = f" {whole - len(lost)} of them are not in this page." if whole > len(lost) else ""
    title = f"{run}: lost episodes" if named else "Lost episodes"
    columns = ["episode", "why", "found in it", "end", "returns"]
    most = OPEN_EACH if named else OPEN
    return render(
        "lost",
        title=title,
        first=table(
            columns, rows[:most], caption=f"{counts}.{left_out} Each opens its transcript."
        ),
        more=len(rows) - most,
        others=table(columns, rows[most:]) if len(rows) > most else "",
    )


def link_to(run: str, key: str) -> str:
    """The permalink of an episode within the page."""
    return "#/r/{}/e/{}".format(*(quote(part, safe="", errors="replace") for part in (run, key)))


def _reason(run: str, key: str, reason: Mapping[str, Any]) -> Html:
    """Why it was lost, which begins with the way to the step."""
    if reason["step"] is None:
        return text(reason["head"] + reason["rest"])
    to = f"{link_to(run, key)}/t/{reason['step']}"
    return Html(f'<a href="{text(to)}">{text(reason["head"])}</a>{text(reason["rest"])}')


def _row(run: str, episode: Mapping[str, Any], is_one_task: bool) -> list[object]:
    # the first line of an error says what, those below it say where
    error = episode["error"].split("\n", 1)[:1] if episode["error"] else []
    causes = [*episode["causes"], *error] or ["no cause named"]
    why = [_reason(run, episode["key"], one) for one in episode.get("why", ())]
    why += [text(words[:300]) for words in causes]
    measures = [f"{name} {value}" for name, value in episode["measures"]]
    # those against it stand first; the transcript has all
    more = f" and {len(measures) - FEW_FOUND} more" if len(measures) > FEW_FOUND else ""
    href = text(link_to(run, episode["key"]))
    # a seed of 19 digits says nothing but which play of a task it is: all of it stands on hover
    seed = f", seed {episode['seed'][:SEED]}" if is_one_task else ""
    shown = f'<a href="{href}" title="{text(episode["id"])}">{text(episode["task"] + seed)}</a>'
    return [
        Html(shown),
        Html("<br>".join(why)),
        text(", ".join(measures[:FEW_FOUND]) + more),
        episode["end"],
        _returns(episode["agents"]),
    ]


def _returns(agents: Sequence[Mapping[str, Any]]) -> str:
    if len(agents) <= FEW_RETURNS:
        return ", ".join(f"{agent['name']} {agent['total']}" for agent in agents)
    paid = sorted(float(agent["total"]) for agent in agents)
    if paid[0] == paid[-1]:
        return f"{paid[0]:g} each"
    return f"{decimal(math.fsum(paid) / len(paid))} a head, {paid[0]:g} to {paid[-1]:g}"


# -- baselines, pass^k, measures, labels -----------------------------------------------------------


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
    )[:MOST_RETURNS]
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
