"""The trivial players that a scenario names, on the tasks and seeds of a run: what its grader gives
for nothing stands beside the run's score.

They are played into run folders of their own below the run's (`baselines/<name>-<digest>`), so
they are resumed like it and never mixed with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.cli.terminal import Progress, progress_line
from gem_ma.config.loading import Loaded
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.open import Opened
from gem_ma.runs.plans import cast_of, cast_with, evaluation_plans
from gem_ma.runs.playing import play_into
from gem_ma.runs.store import read_episodes, read_summary, run_path
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.judge import Judge
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
        summary = None if left else _whole(read_summary(baseline.path))
        # the folder holds other tasks too where an earlier run had more: those wanted now are
        # scored
        if summary is None or summary["episodes"] != len(ids) or not folder.done() <= ids:
            # measures would cost as much as the play
            judge = Judge.of(scenario)
            plain = Judge(judge.success, kinds=judge.kinds)
            summary = plain.summarise(read_episodes(baseline.path, ids))
            if not stopping.signal:
                folder.write_summary(summary)
    return {
        "cast": {agent: seat.behaviour for agent, seat in cast.items()},
        "run": f"baselines/{baseline.path.name}",
        **{key: summary[key] for key in FIELDS},
    }


def _whole(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    """The summary where it is one that we wrote; None for what is missing or damaged, so that it
    is made again."""
    if (
        summary is None
        or not all(key in summary for key in FIELDS)
        or not isinstance(summary["returns"], dict)
    ):
        return None
    scores = [
        *summary["returns"].values(),
        *([] if summary["success"] is None else [summary["success"]]),
    ]
    counts = all(type(summary[key]) is int for key in FIELDS[:4])
    return summary if counts and all(map(_is_score, scores)) else None


def _is_score(value: Any) -> bool:
    numbers = {"mean", "low", "high", "n"}
    return (
        isinstance(value, dict)
        and numbers <= value.keys()
        # `type`, since a bool is an int too
        and all(value[key] is None or type(value[key]) in (int, float) for key in numbers)
    )
