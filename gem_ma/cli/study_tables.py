"""What `gem-ma study` prints: one table for each score that is compared. Reads the summary of a
study alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gem_ma.cli.runs import place_rows
from gem_ma.cli.terminal import columns, emit, emit_json
from gem_ma.scores.sides import (
    axis_names,
    halves_text,
    mix_rows,
    not_told,
    pass_k_rows,
    seats_text,
    standing_rows,
    tournament_rows,
    two_means,
    two_returns,
)
from gem_ma.scores.studies import cell_text, difference_text

MOST_NAMES = 12  # names of scores that are not compared
TABLES = ("success_matrix", "paired_diff")


def show_study(
    summary: Mapping[str, Any],
    path: Path,
    as_json: bool,
    report: Path | None = None,
    tables: Sequence[str] = TABLES,
) -> None:
    """Prints one table of each score that is compared."""
    if as_json:
        emit_json({"study": str(path), "report": str(report) if report else None, **summary})
        return
    if found := summary.get("mix"):
        emit("\n".join(filter(None, [columns(*mix_rows(found)), halves_text(found)])) + "\n")
    if found := summary.get("tournament"):
        lines = [f"{found['plays']} plays", columns(*tournament_rows(found)), halves_text(found)]
        emit("\n".join(filter(None, lines)) + "\n")
    if (pair := two_returns(summary)) and "success_matrix" in tables:
        title = f"{' / '.join(pair)}: {matrix_title(summary)}"
        emit(f"{title}\n{columns(*_table(summary, partial(two_means, scores=pair)))}\n")
    for score in summary["compared"]:
        if len(summary["axes"]) == 2 and "success_matrix" in tables:
            emit(f"{score}: {matrix_title(summary)}\n{columns(*matrix(summary, score))}\n")
        # with another number of axes the matrix is missing, so that this is the only table
        if "paired_diff" not in tables and len(summary["axes"]) == 2:
            continue
        emit(f"{score}, against {' x '.join(summary['reference'].values())}")
        emit(columns(cell_rows(summary, score), cell_head(summary)) + "\n")
    tries, head = pass_k_rows(summary)
    if tries:
        emit(columns(tries, head) + "\n")
    # a study from before there were any has none
    if found := summary.get("population"):
        lines = [columns(*standing_rows(found)), *filter(None, [seats_text(found)])]
        emit("\n".join(["who is good in this population", *lines]) + "\n")
    unsaid = [("not told", words)] if (words := not_told(summary)) else []
    emit(columns([*unsaid, *_other_scores(summary), *place_rows(path, report, "study")]))


def _other_scores(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A row that names the scores which are not compared; none where all are."""
    rest = [score for score in summary["scores"] if score not in summary["compared"]]
    if not rest:
        return []
    names = ", ".join(rest[:MOST_NAMES])
    if len(rest) > MOST_NAMES:
        names += f" and {len(rest) - MOST_NAMES} more"
    # a scenario has dozens of measures, and tables of all would bury the one that counts
    return [("other scores", f"{names} (in study.json; compare one with --measure NAME)")]


def matrix_title(summary: Mapping[str, Any]) -> str:
    """The two axes of `matrix` in words."""
    rows, columns = axis_names(summary["axes"])
    return f"{rows} (rows) x {columns} (columns)"


def matrix(summary: Mapping[str, Any], score: str) -> tuple[list[list[str]], list[str]]:
    """Rows and head of a table with one place per cell of two axes."""
    return _table(summary, partial(cell_text, score=score))


def _table(
    summary: Mapping[str, Any], text: Callable[[Mapping[str, Any]], str]
) -> tuple[list[list[str]], list[str]]:
    (rows, row_names), (columns, column_names) = summary["axes"].items()
    words = {(cell["names"][rows], cell["names"][columns]): text(cell) for cell in summary["cells"]}
    body = [[row, *(words.get((row, name), "n/a") for name in column_names)] for row in row_names]
    return body, ["", *column_names]


def cell_head(summary: Mapping[str, Any]) -> list[str]:
    """The heads of `cell_rows`."""
    adjusts = summary["correct"] == "holm"
    return [
        *axis_names(summary["axes"]),
        "mean (95 % interval)",
        "ok / failed / excluded",
        "difference",
        "p",
        *(["p (Holm)"] if adjusts else []),
    ]


def cell_rows(summary: Mapping[str, Any], score: str) -> list[list[str]]:
    """One row per cell: its score, and how it differs from the reference on the same plays."""
    differences = {tuple(row["names"].values()): row for row in summary["comparisons"][score]}
    rows = []
    for cell in summary["cells"]:
        names = tuple(cell["names"].values())
        against = differences.get(names)
        # the reference itself, and a cell with no common plays, have no p value
        keys = ("p", "p_adjusted") if summary["correct"] == "holm" else ("p",)
        p_values = [against[key] if against is not None else None for key in keys]
        rows.append(
            [
                *names,
                cell_text(cell, score),
                f"{cell['ok']} / {cell['failed']} / {cell['excluded']}",
                difference_text(against),
                *("" if p is None else f"{p:.4f}" for p in p_values),
            ]
        )
    return rows
