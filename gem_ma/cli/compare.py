"""`gem-ma compare A B`: two runs play by play, what turned out otherwise first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gem_ma.cli.completion import run_names
from gem_ma.cli.runs import played_run
from gem_ma.cli.terminal import columns, counted, emit, emit_json, json_option, once
from gem_ma.runs.comparing import compare_runs
from gem_ma.scores.comparison import both_ways, difference_of, outcome, sides_of, verdict_of

FLIPS_SHOWN = 10
EXAMPLE = """\b
Example:
  gem-ma compare runs/retail_scripted-2ee0fd2f runs/retail_scripted-91c0aa17"""


@click.command(epilog=EXAMPLE)
@click.argument("first", shell_complete=run_names, metavar="A")
@click.argument("second", shell_complete=run_names, metavar="B")
@click.option(
    "--score",
    "scores",
    multiple=True,
    metavar="NAME",
    help="Test this score only, as in success; may be given several times.",
)
@click.option("--all", "whole", is_flag=True, help="Every flip and every measure.")
@json_option
def command(first: str, second: str, scores: tuple[str, ...], whole: bool, as_json: bool) -> int:
    """Compare run B with run A over the plays that both have: same task, same seed.

    Plays that turned out otherwise come first, then every score with the difference B - A, its
    95 % interval over tasks, p, and p adjusted (Holm): success and returns are one family of
    tests, measures another. Where one score is the question, name it by --score.
    """
    before, after = (played_run(run, "compared") for run in (first, second))
    comparison = compare_runs(before, after, once(), scores)
    if as_json:
        emit_json(comparison)
    else:
        emit(_text(comparison, whole))
    return 0


def _text(comparison: Mapping[str, Any], whole: bool) -> str:
    """The tables of a comparison: where from, flips, scores, and what it comes to."""
    only = f"{comparison['only_a']} only in A, {comparison['only_b']} only in B"
    rows = [("A", comparison["a"]), ("B", comparison["b"])]
    rows += [("differs by", change) for change in comparison["settings"]]
    if not comparison["same_tasks"]:
        rows.append(("warning", "other scenario settings: equal tasks may be other problems"))
    rows.append(("plays in both", f"{comparison['pairs']} ({only})"))
    parts = [columns(rows), _flips(comparison, whole), _scores(comparison, whole)]
    return "\n\n".join([*filter(None, parts), verdict_of(comparison)])


def _flips(comparison: Mapping[str, Any], whole: bool) -> str:

    flips = comparison["flips"]
    flipped = comparison["flipped"]
    if not flips:
        return ""
    listed = flips if whole else both_ways(flips, FLIPS_SHOWN)
    rows = [
        (f"{flip['task']}/{flip['seed']}", outcome(flip["a"]), outcome(flip["b"]))
        for flip in listed
    ]
    left = len(flips) - len(listed)
    lost = counted(flipped["to_lost"], "play")
    won = flipped["to_won"]
    lines = [f"{lost} that B lost, {won} that it won instead"]
    lines.append(columns(rows, ("play", "A", "B")))
    lines += [f"and {left} more: --all"] * (left > 0)
    lines.append(f"one of them: gem-ma show {comparison['b']} --episode {rows[0][0]}")
    return "\n".join(lines)


def _scores(comparison: Mapping[str, Any], whole: bool) -> str:

    rows = []
    hidden = 0
    for name, row in comparison["scores"].items():
        if not (whole or row["main"] or name in comparison["differs"]):
            hidden += 1
            continue
        mark = "* " if name in comparison["differs"] else ""
        p_values = ["" if row[key] is None else f"{row[key]:.4f}" for key in ("p", "p_adjusted")]
        rows.append((mark + name, *sides_of(row), difference_of(row), *p_values))
    head = ("score", "A", "B", "B - A [95 % interval]", "p", "p (Holm)")
    more = [f"{hidden} measures without a difference that is sure: --all"] * (hidden > 0)
    return "\n".join([*([columns(rows, head)] if rows else []), *more])
