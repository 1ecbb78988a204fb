"""The page of two or more runs, play by play: what `gem-ma compare A B` says, and both plays of
every flip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gem_ma.kernel.errors import ConfigError, GemMaError, StoreError
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    episode_address,
    link,
    page_address,
    refused,
    run_address,
    served,
)
from gem_ma.pages.live.run import Run
from gem_ma.pages.static.figures import axis_name, interval_mark
from gem_ma.pages.static.folder import manifest
from gem_ma.pages.static.page import Html, render, table, text
from gem_ma.runs.comparing import compared, judged_cell
from gem_ma.scores.comparison import (
    both_ways,
    difference_of,
    outcome,
    sides_of,
    verdict_of,
)
from gem_ma.scores.studies import Cell
from gem_ma.system.files import damage

if TYPE_CHECKING:
    from gem_ma.pages.live.site import Site

Scored = tuple[str, Mapping[str, Any]]  # a score by its name
MOST_RUNS = 8
# plays that turned out otherwise: in sight, and unfolded
FEW_FLIPS = 10
FLIPS = 200


def compare_page(site: Site, asked: Asked) -> Answer:
    """The first run against each of the others; one line where that cannot be."""
    names = list(dict.fromkeys(asked.runs))
    try:
        if not 1 < len(names) <= MOST_RUNS:
            raise ConfigError(f"choose 2 to {MOST_RUNS} runs in the list of all runs")
        runs = [_opened(site, name) for name in names]
        if asked.query.get("order") == "begun":
            pairs = sorted(zip(names, runs, strict=True), key=lambda pair: _begun(pair[1]))
            names = [name for name, _ in pairs]
            runs = [run for _, run in pairs]
        cells = [_cell(run) for run in runs]
    except GemMaError as error:
        return refused("Comparison", error)
    links = {"A and B exchanged": page_address("compare", [names[1], names[0], *names[2:]])}
    found = [
        _against((names[0], name), (runs[0], run), (cells[0], cell))
        for name, run, cell in zip(names[1:], runs[1:], cells[1:], strict=True)
    ]
    body = render("compare", runs=found)
    others = names[1] if len(names) == 2 else f"{len(names) - 1} other runs"
    return served(f"{names[0]} and {others}", body, links)


def _opened(site: Site, name: str) -> Run:
    parts = [part for part in name.split("/") if part]
    run, rest = site.run(parts or [""])
    if rest:
        raise ConfigError(f"{name}: no such run folder")
    if run.learned:
        raise ConfigError(
            f"{name}: this run is a training, whose plays are of a policy that changed; play its"
            " models first, and compare those runs"
        )
    return run


def _begun(run: Run) -> str:
    return str(manifest(run.path).get("created") or "")


# -- what is compared ------------------------------------------------------------------------------


def _cell(run: Run) -> Cell:
    """The scores of a run."""
    with run.lock:
        run.index.refresh()
        # fewer plays would be compared than were played
        if run.index.damaged:
            raise StoreError(run.index.damaged[0])
        # a run that is still played has more the next time
        key = (len(run.index.entries), run.index.size)
        if run.cell is None or run.cell[0] != key:
            run.cell = (key, judged_cell(run.path, run.judge, anew=run.is_named))
        return run.cell[1]


# -- what is shown ---------------------------------------------------------------------------------


def _against(
    pair: tuple[str, str], runs: tuple[Run, Run], cells: tuple[Cell, Cell]
) -> dict[str, Any]:
    """What differs between two runs, A and B; one line where nothing can be said."""
    try:
        # sums of recorded numbers may be infinite or nan
        with damage(runs[1].path):
            comparison = compared(runs[0].path, runs[1].path, *cells)
    except GemMaError as error:
        return {"name": pair[1], "fault": str(error)}
    return {
        "name": pair[1],
        "fault": "",
        "verdict": verdict_of(comparison),
        "facts": _facts(comparison, pair),
        **_flips(comparison, pair),
        **_scores(comparison),
    }


def _facts(comparison: Mapping[str, Any], pair: tuple[str, str]) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        (letter, link(name, run_address(name))) for letter, name in zip("AB", pair, strict=True)
    ]
    rows += [("differs by", change) for change in comparison["settings"]]
    if not comparison["same_tasks"]:
        words = "other scenario settings: equal tasks may be other problems"
        rows.append(("warning", Html(f'<span class="bad">{text(words)}</span>')))
    alone = f"{comparison['only_a']} only in A, {comparison['only_b']} only in B"
    rows.append(("plays in both", f"{comparison['pairs']} ({alone})"))
    return rows


def _flips(comparison: Mapping[str, Any], pair: tuple[str, str]) -> dict[str, object]:
    flips = comparison["flips"]
    flipped = comparison["flipped"]
    if not flips:
        return {"flips": ""}
    caption = f"{flipped['to_lost']} plays that B lost, {flipped['to_won']} that it won instead"
    few = both_ways(flips, FEW_FLIPS)
    listed = both_ways(flips, FLIPS)
    left = len(flips) - len(listed)
    return {
        "flips": _flip_table(few, pair, caption),
        "all_flips": _flip_table(listed, pair, "") if len(few) < len(listed) else "",
        "folded": f"{len(listed)} of {len(flips)} flips" if left else f"All {len(flips)} flips",
    }


def _flip_table(flips: Sequence[Mapping[str, Any]], pair: tuple[str, str], caption: str) -> Html:
    rows = [[f"{flip['task']}/{flip['seed']}", *_both(flip, pair)] for flip in flips]
    return table(("play", "A", "B"), rows, caption=caption)


def _both(flip: Mapping[str, Any], pair: tuple[str, str]) -> list[Html]:
    """The two plays of a flip, each by how it came out."""
    return [
        Html(
            f'<span class="{"good" if flip[side] > flip[other] else "bad"}">'
            f"{link(outcome(flip[side]), episode_address(name, flip['task'], flip['seed']))}</span>"
        )
        for side, other, name in (("a", "b", pair[0]), ("b", "a", pair[1]))
    ]


def _scores(comparison: Mapping[str, Any]) -> dict[str, object]:
    """Success and returns, then the measures: two families of tests. Measures without a difference
    that is sure are folded."""
    main: list[Scored] = []
    sure: list[Scored] = []
    rest: list[Scored] = []
    for name, row in comparison["scores"].items():
        of = main if row["main"] else sure if name in comparison["differs"] else rest
        of.append((name, row))
    differs = comparison["differs"]
    families = {"Success and returns": main, "Measures that differ": sure}
    return {
        "families": [(name, _family(rows, differs)) for name, rows in families.items() if rows],
        "rest": _family(rest, differs) if rest else "",
        "count": len(rest),
    }


def _family(rows: Sequence[Scored], differs: Sequence[str]) -> Html:
    bounds = [abs(row[key]) for _, row in rows for key in ("low", "high") if row[key] is not None]
    most = max([1.0, *bounds])
    # measures have units of their own, and no axis that holds them all
    axis = (-most, most) if rows[0][1]["main"] else None
    entries = []
    for name, row in rows:
        label = Html(f"<strong>{text(name)}</strong>") if name in differs else name
        p_values = ["" if row[key] is None else f"{row[key]:.4f}" for key in ("p", "p_adjusted")]
        entries.append([label, *sides_of(row), _difference(row, axis), *p_values, row["pairs"]])
    over = "B - A [95 %]"
    head = ["score", "A", "B", axis_name(over, axis) if axis else over, "p", "p (Holm)", "plays"]
    sure = any(name in differs for name, _ in rows)
    caption = "bold: the adjusted p is below 0.05" if sure else ""
    return table(head, entries, caption=caption)


def _difference(row: Mapping[str, Any], axis: tuple[float, float] | None) -> Html:
    if row["difference"] is None:
        return text("no shared play")
    estimate = {"mean": row["difference"], "low": row["low"], "high": row["high"]}
    mark = interval_mark(estimate, *axis) if axis else ""
    words = difference_of(row)
    return Html(f'<span class="interval">{text(words)}</span>{mark}')
