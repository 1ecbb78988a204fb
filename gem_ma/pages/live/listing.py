"""The first page of the viewer: all runs below a folder, each with a box to choose it for a page
of several. It reads at this moment, and knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gem_ma.pages.live.answers import link, run_address
from gem_ma.pages.live.studied import studies, study_address
from gem_ma.pages.static.page import Html, page, render, table, text
from gem_ma.pages.static.transcript import number
from gem_ma.runs.store.listing import Listing, list_runs

HEAD = ("run", "scenario", "score", "episodes", "cast", "models", "begun", "state")


def list_page(root: Path, only: tuple[str, ...] = (), earlier: Listing | None = None) -> str:
    """The page; `only`: the names of the runs that are offered, all where empty; `earlier`: what
    was read for it before."""
    rows = [_row(run, path) for path, run in _listed(root, only, earlier)]
    runs = table(HEAD, rows) if rows else Html("<p>There is no run here.</p>")
    title = f"Runs in {root}"
    named = {name or root.resolve().name: study_address(name) for name in studies(root, only)}
    body = render("list", title=title, studies=named, count=len(rows), runs=runs)
    return page(title, body, {"runs": []}, live=True)


def _listed(
    root: Path, only: tuple[str, ...], earlier: Listing | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every run that is offered, by its path below the folder."""
    # of a single run no others are offered, nor the cells of a study beside it
    for place in dict.fromkeys((root, *studies(root, only).values())):
        for run in list_runs(place, earlier):
            if not only or run["name"] in only:
                yield Path(run["run"]).relative_to(root).as_posix(), run


def _row(run: Mapping[str, Any], path: str) -> list[object]:
    if run["error"]:
        return [text(path), "", "", "", "", "", "", run["error"]]
    pairs = {key: _pairs(run[key]) for key in ("cast", "models")}
    score = ", ".join(f"{key} {number(round(value, 3))}" for key, value in run["score"].items())
    state = "ended" if run["finished"] else "not ended"
    begun = Html(f"<time>{text(run['created'][:16].replace('T', ' '))}</time>")
    box = f'<input type="checkbox" name="run" value="{text(path)}" aria-label="{text(path)}">'
    name = Html(f"{box} {link(path, run_address(path))}")
    return [name, run["scenario"], score, run["episodes"], *pairs.values(), begun, state]


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in values.items())
