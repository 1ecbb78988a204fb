"""What `gem-ma train` says at its end: scores before and after, and whether that is a success."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_ma.cli.runs import place_rows
from gem_ma.cli.terminal import columns, emit, emit_json, progress_line
from gem_ma.runs.store import read_episodes
from gem_ma.scores.exams import exam_rows
from gem_ma.scores.summary_rows import baseline_rows
from gem_ma.scores.unheard import unheard_of

if TYPE_CHECKING:
    from gem_ma.config.loading import Loaded

RATED = 8  # members of a league whose ratings are printed; the page has all


def verdict(summary: Mapping[str, Any], loaded: Loaded, failed: int, ended: int, path: Path) -> int:
    """0, or 1 and a line about it where a policy learned nothing, one that does not learn never
    spoke, or more episodes failed than the config allows."""
    # a learner that never got a gradient has a loss curve like any other
    idle = [*summary.get("learned_nothing", {}).values()]
    # those who do not learn may have been out of reach all the time
    learn = loaded.config.train.policies if loaded.config.train is not None else ()
    seated = {seat.policy for seat in loaded.config.seats if seat.policy is not None}
    idle += unheard_of(read_episodes(path), seated - set(learn))
    for line in idle:
        progress_line(line)
    settings = loaded.config.run
    if settings.tolerates(failed, ended):
        return 1 if idle else 0
    progress_line(
        f"{failed} of {ended} training episodes failed, {settings.max_failed} are allowed"
        f" (run.max_failed); see them with: gem-ma show {path}"
    )
    return 1


def show_training(
    summary: dict[str, Any],
    ended: int,
    failed: int,
    path: Path,
    as_json: bool,
    report: Path | None = None,
) -> None:
    """Prints what learning changed: each measure before and after."""
    # an interrupted episode is never recorded
    counts = {"episodes": ended, "ok": ended - failed, "failed": failed, "excluded": 0}
    if as_json:
        emit_json(
            {"run": str(path), "report": str(report) if report else None, **counts, **summary}
        )
        return
    compared = exam_rows(summary)
    # exact values alone, or an older version
    wide = any(row.change for row in compared)
    head = ("measure", "before", "after", "after - before", "p (Holm)")
    emit(columns([row if wide else row[:3] for row in compared], head if wide else head[:3]))
    # of one that learned nothing a line below says why
    learned = [
        name for name in summary["learned"] if name not in summary.get("learned_nothing", {})
    ]
    rows = [
        ("training episodes", f"{ended - failed} ok / {failed} failed / 0 excluded"),
        ("steps", str(summary["steps"])),
        *baseline_rows(summary),
        *_league_rows(summary),
        ("learned", ", ".join(learned) or "none"),
        ("unchanged", ", ".join(summary["unchanged"]) or "none"),
    ]
    # engine/path, as `model:` of a config takes it
    for word, models in (("model", summary["models"]), ("averaged", summary.get("averaged", {}))):
        rows += [
            (f"{word} {name}", f"{model['engine']}/{path / model['path']}")
            for name, model in models.items()
        ]
    emit(columns([*rows, *place_rows(path, report)]))


def _league_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Ratings of the league's members and alarms of its guard, where there are any."""
    rows = []
    ratings = summary.get("league", {}).get("ratings", {})
    if isinstance(ratings, dict) and ratings:
        # one point of a rating (on the scale of Elo) is far below its error, so no decimals
        listed = [f"{name} {value:.0f}" for name, value in list(ratings.items())[:RATED]]
        rows.append(("ratings", ", ".join(listed)))
    alarms = summary.get("alarms", {})
    return [*rows, *((f"alarms of {name}", str(count)) for name, count in alarms.items())]
