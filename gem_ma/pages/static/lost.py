"""The lost episodes of a run as a table, readable without scripts: which, why, what was paid,
and the way to its transcript."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gem_ma.pages.static.page import Html, render, table, text

# rows that stand open, of a page of one run and of each of several; the others are folded
OPEN = 10
OPEN_EACH = 3


def lost_table(island: Mapping[str, Any], *, named: bool) -> Html:
    """`island`: a run as it lies in the page's data; `named`: whether the page shows several runs.
    "" where none is lost."""
    run = island["name"]
    lost = [episode for episode in island["episodes"] if {"lost", "failed"} & set(episode["kinds"])]
    if not lost:
        return Html("")
    rows = [_row(run, episode) for episode in lost]
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


def _row(run: str, episode: Mapping[str, Any]) -> list[object]:
    # the first line of an error says what, those below it say where
    error = episode["error"].split("\n", 1)[:1] if episode["error"] else []
    why = [*episode["causes"], *error] or ["no cause named"]
    measures = [f"{name} {value}" for name, value in episode["measures"]]
    # a cell holds some eight of them; the transcript has all
    more = f" and {len(measures) - 8} more" if len(measures) > 8 else ""
    returns = ", ".join(f"{agent['name']} {agent['total']}" for agent in episode["agents"])
    return [
        Html(f'<a href="{text(link_to(run, episode["key"]))}">{text(episode["id"])}</a>'),
        Html("<br>".join(text(words[:300]) for words in why)),
        text(", ".join(measures[:8]) + more),
        episode["end"],
        returns,
    ]
