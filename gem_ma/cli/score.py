"""`gem-ma score`: what the stored plays of a run come to, computed anew without a model."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from gem_ma.cli.completion import run_names
from gem_ma.cli.runs import played_run, show_summary
from gem_ma.cli.terminal import json_option, progress_line
from gem_ma.runs.store import read_episodes, read_rows, read_summary
from gem_ma.runs.store.names import finite
from gem_ma.runs.stored import Recorded, changes, open_record
from gem_ma.scores.rows import Head
from gem_ma.system.files import damage
from gem_ma.system.parts import size_of

_JUDGED = ("labels", "measures")  # of summary.json
LARGE = 50_000_000  # bytes of a record, from which on the time is told first
SAMPLE = 200  # plays by which it is guessed
MOST_CHANGES = 10  # printed; --json has all
EXAMPLE = """\b
Examples:
  gem-ma score runs/retail_scripted-2ee0fd2f
  gem-ma score runs/auction-51d0c2aa --scenario auction.py"""


@click.command(epilog=EXAMPLE)
@click.argument("run", shell_complete=run_names)
@click.option(
    "--scenario",
    metavar="NAME|FILE",
    help="Judge by this scenario's success, measures and labels: code that you name is run.",
)
@click.option("--all", "whole", is_flag=True, help="Every measure and group.")
@json_option
def command(run: str, scenario: str | None, whole: bool, as_json: bool) -> int:
    """Score the stored plays of RUN once more. No model is called and nothing is written.

    The rules that are installed now judge: where they have changed, `changed` says what the run
    recorded and what comes out now. A run whose scenario is code of its own needs --scenario.
    """
    path = played_run(run, "scored")
    record = open_record(path, progress_line, scenario)
    with damage(path / "episodes.jsonl"):
        if size_of(path / "episodes.jsonl", path) > LARGE:
            progress_line(duration(path, record))
        summary = record.summary()
    stored = read_summary(path)
    # the baselines are other plays, which a score of these cannot give
    changed = {} if stored is None else changes(stored, _as_json(summary))
    if record.worlds is None:
        # only the rules could tell these of every play
        changed = {key: of for key, of in changed.items() if key.split(".")[0] not in _JUDGED}
    rows = [("as recorded", "the run has no summary.json yet")] * (stored is None)
    if stored is not None:
        equal = "equal" if record.worlds is not None else "equal, as far as it needs no rules"
        rows.append(("as recorded", "not equal" if changed else equal))
    first = list(changed.items())[:MOST_CHANGES]
    rows += [(f"changed {key}", f"{before} -> {now}") for key, (before, now) in first]
    rows += [("changed", f"{len(changed) - len(first)} more: --json")] * (len(changed) > len(first))
    answer = {**summary, "changed": changed} if as_json else summary
    show_summary(answer, path, as_json, whole=whole, more=rows)
    return 0


def duration(path: Path, record: Recorded) -> str:
    """How long it takes to judge all plays of a run, by its first ones. Raises StoreError."""
    rows = read_rows(path, Head)
    begun = time.perf_counter()
    some = {row.id for row in rows[:SAMPLE]}
    judged = [*map(record.judge.rows().of, read_episodes(path, some, rows))]
    share = sum(row.size for row in rows[:SAMPLE]) / sum(row.size for row in rows)
    seconds = (time.perf_counter() - begun) / share if judged else 0.0
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
    return f"judges {len(rows)} plays anew, about {took}; gem-ma show has what was recorded"


def _as_json(summary: dict[str, object]) -> dict[str, object]:
    """As summary.json has it: tuples are lists there, and numbers that are not finite null."""
    return dict(json.loads(json.dumps(finite(summary))))
