"""What stands beside a score: the trivial players that a scenario names, on the tasks and seeds of
a run; and what `gem-ma train` says at its end: scores before and after, and whether that is a
success.

Trivial players are played into run folders of their own below the run's
(`baselines/<name>-<digest>`), so they are resumed like it and never mixed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.cli.runs import place_rows
from gem_ma.cli.terminal import Progress, columns, emit, emit_json, progress_line
from gem_ma.config.loading import Loaded
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.open import Opened
from gem_ma.runs.plans import cast_of, cast_with, evaluation_plans
from gem_ma.runs.playing import play_into
from gem_ma.runs.store import read_episodes, run_path
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.exams import exam_rows
from gem_ma.scores.rows import baseline_rows
from gem_ma.scores.unheard import unheard_of
from gem_ma.system.files import make_folder

# of the summary of a baseline
FIELDS = ("episodes", "ok", "failed", "excluded", "success", "returns")
# of one baseline, one try each: 0 of 120 is [0, .031]; the largest public split of retail has 115
MOST_TASKS = 120


class Baseline(NamedTuple):
    """One of a scenario's baseline casts, seated."""

    name: str
    loaded: Loaded
    path: Path


def play_baselines(
    loaded: Loaded, worlds: Worlds, path: Path, stopping: Any, quiet: bool
) -> dict[str, Any]:
    """Plays what is not done yet of every baseline and gives name -> `{cast, run, tasks, of, ...}`,
    the rest as in a run's summary; of several worlds the name has its world before it.

    A baseline that cannot be played costs a line on stderr, not the result. {} after a signal.
    """
    wanted = loaded.config.run.baselines
    seated = []
    for world in worlds.with_baselines:
        # of this world as if it were alone, so that its folder is a run like any other
        alone = replace(loaded, config=world.config)
        plans, of = _plans(alone, world.scenario, MOST_TASKS if wanted is True else wanted)
        seated += [(world, one, plans, of) for one in _seated(alone, world.scenario, path)]
    if not seated:
        return {}
    scores: dict[str, Any] = {}
    total = sum(len(plans) for _, _, plans, _ in seated)
    with Progress(total, quiet=quiet, unit="baseline episodes") as progress:

        async def work() -> None:
            for world, baseline, plans, of in seated:
                score = await _play(baseline, world.scenario, plans, stopping, progress)
                name = f"{world.name} {baseline.name}".strip()
                scores[name] = {**score, "tasks": len(plans), "of": of}

        stopping.run(work())
    # half of the baselines would read as if they were all
    return {} if stopping.signal else scores


def _plans(loaded: Loaded, scenario: Scenario, most: int) -> tuple[list[Plan], int]:
    """The first try of each of the run's tasks (or seeds), or of a fixed draw of so many of
    them; and how many there are."""
    # a second try of a task would tell nothing of other tasks
    single_try = loaded.config.model_copy(
        update={"run": loaded.config.run.model_copy(update={"episodes_per_task": 1})}
    )
    plans = list(evaluation_plans(single_try, scenario))
    # by a digest of each task: a run of fewer tasks draws among the same ones
    drawn = sorted(range(len(plans)), key=lambda at: stable_seed("baseline", *plans[at].id))[:most]
    return [plans[at] for at in sorted(drawn)], len(plans)


def _seated(loaded: Loaded, scenario: Scenario, path: Path) -> Iterator[Baseline]:

    for name, cast in scenario.baseline_casts.items():
        try:
            agents = cast_with(loaded.config, scenario, cast)
        # its cast may need an option that this config lacks; the run's own score stands without it
        except ConfigError as error:
            progress_line(f"baseline {name!r} is not played: {error}")
            continue
        # one try each, and no baselines of a baseline
        run = loaded.config.run.model_copy(update={"episodes_per_task": 1, "baselines": False})
        config = loaded.config.model_copy(
            update={"agents": agents, "policies": {}, "run": run, "train": None}
        )
        # the folder's config.yaml, so that whoever opens the folder alone sees what it is
        text = f"# The baseline {name!r} beside a run of {loaded.stem}.\n"
        seated = type(loaded)(config, text, loaded.path)
        yield Baseline(name, seated, run_path(name, seated.identity(), root=path / "baselines"))


async def _play(
    baseline: Baseline, scenario: Scenario, plans: list[Plan], stopping: Any, progress: Any
) -> dict[str, Any]:

    cast = cast_of(baseline.loaded.config)
    ids = {plan.id for plan in plans}
    make_folder(
        baseline.path, baseline.path.parents[1]
    )  # no link on the way down from the run's folder
    alone = Worlds.of(baseline.loaded.config, scenario)
    with Opened(baseline.loaded, alone).folder(baseline.path) as folder:
        left = [replace(plan, cast=cast) for plan in plans if plan.id not in folder.done()]
        progress.skip(len(plans) - len(left))
        if left:
            concurrency = min(baseline.loaded.config.run.concurrency, len(left))
            await play_into(folder, stopping.until_stopped(left), {}, concurrency, progress)
        # the folder holds other tasks too where an earlier run had more: those wanted now are
        # scored
        rows = [row for row in folder.scored(alone.judge) if row.id in ids]
        summary = alone.judge.summary(rows, lambda: read_episodes(baseline.path, ids))
        if not stopping.signal:
            folder.write_summary(summary)
    return {
        "cast": {agent: seat.behaviour for agent, seat in cast.items()},
        "run": f"baselines/{baseline.path.name}",
        **{key: summary[key] for key in FIELDS},
    }


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
