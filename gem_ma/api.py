"""What the commands do, from Python: load a config, play it, train it, compare what came out.

The same run folders as the commands write and take up, so both can be mixed. Prints nothing, asks
nothing, and raises what a command would print. Baselines and the report are left to the commands.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

from gem_ma.config.loading import Loaded, LoadedStudy, Overrides, load, load_study
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.runs import cells, plans
from gem_ma.runs.comparing import compare_runs
from gem_ma.runs.folder import open_folder
from gem_ma.runs.playing import play_into
from gem_ma.runs.results import Comparison, Study
from gem_ma.runs.run import Run
from gem_ma.runs.score import score_of
from gem_ma.runs.store import hold_folder, run_path
from gem_ma.runs.used import check_imported
from gem_ma.runs.worlds import worlds_of
from gem_ma.scores.unheard import lines_of
from gem_ma.training.schedule.checks import checked_worlds

Source = str | Path | Loaded | Config
OnStep = Callable[[int, dict[str, Any]], None]


def load_config(source: Source, overrides: Overrides = ()) -> Loaded:
    """A config with its origin, from a YAML file, the name of a shipped config, a scenario, or a
    `Config` that was made in Python; its values are in `.config`.

    `overrides` are `dotted.key=value`, as behind a command, or `{"dotted.key": value}`. Raises
    ConfigError with all faults, each with file and line.
    """
    if isinstance(source, Config):
        # JSON is YAML, so the run folder can keep it as the text of a config
        text = json.dumps(source.model_dump(mode="json", exclude_defaults=True), indent=2) + "\n"
        source = Loaded(source, text, None)
    if not isinstance(source, Loaded):
        # a name that a scenario shares means the config, which says who plays it
        return load(source, overrides, configs_first=True)
    if overrides:
        raise ConfigError(f"overrides: {overrides} come too late: the config is loaded")
    return source


def _with_tasks(overrides: Overrides, count: int | None) -> Overrides:
    if count is None:
        return overrides
    if isinstance(overrides, Mapping):
        return {**overrides, "scenario.tasks": count}
    typed = [overrides] if isinstance(overrides, str) else overrides
    return [*typed, f"scenario.tasks={count}"]


def open_policies(source: Source, overrides: Overrides = (), **options: Any) -> dict[str, Policy]:
    """Every policy of a config by name, with its engine open, as `play` and `play_many` take them.
    `options` are those of `gem_ma.runs.plans.open_policies`."""
    loaded = load_config(source, overrides)
    return plans.open_policies(loaded.config, base=loaded.base, **options)


def run(
    source: Source,
    overrides: Overrides = (),
    *,
    n: int | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
) -> Run:
    """Plays a config into a run folder and scores it, as `gem-ma run`; gives the score as a dict,
    with the folder behind it.

    `n`: how many tasks, or seeds where the scenario has one task, as `-n` of the command. `out`:
    the folder, by default `runs/<config>-<digest>`. The same call again plays what is not
    played yet; `fresh` puts an old folder aside first. A failed episode is counted, not raised.
    Raises ConfigError, DataError, StoreError; BudgetError and EndpointError with what was played
    kept; EngineError where a policy never spoke, since such a score measures nothing.
    """
    loaded = load_config(source, _with_tasks(overrides, n)).without_training()
    _no_study(loaded)
    worlds = worlds_of(loaded.config, base=loaded.base)
    check_imported(loaded.resolved())
    # before the folder is made, as the command does it: a wrong option leaves nothing behind
    for world in worlds.played:
        plans.try_seats(world.config, world.scenario)
    policies = open_policies(loaded)
    path = _path(loaded, out)
    with open_folder("run", loaded, worlds, policies, path, fresh) as folder:
        done = folder.done()
        # made as they are played: a large run would hold all of them in memory
        rest = (plan for plan in worlds.plans() if plan.id not in done)
        # silent: a notebook shows what it wants to show
        wait(play_into(folder, rest, policies, loaded.config.run.concurrency, _Silent()))
        score = score_of(loaded, worlds, folder)
        folder.write_summary(score)
    _check_heard(path, {"": score})
    return Run(path, score)


def train(
    source: Source,
    overrides: Overrides = (),
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Run:
    """Lets the policies of `train.policies` learn in a run folder, as `gem-ma train`; gives the
    summary as a dict, with the folder behind it.

    `on_step(step, metrics)` is called after every step, counted from 1, and `on_note(line)` for
    what the user should read. The same call again goes on from the last checkpoint, and gives the
    summary of a training that has ended. `out` and `fresh` as in `run`. Raises ConfigError for a
    policy that cannot learn, EngineError where all episodes of a step failed.
    """
    # the loop and its learners take a third of a second to import, which a play does not need
    from gem_ma.training.entry import train as train_open

    loaded = load_config(source, overrides)
    _no_study(loaded)
    worlds = checked_worlds(loaded)
    check_imported(loaded.resolved())
    for world in worlds.examined:
        plans.try_seats(world.config, world.scenario)
    policies = open_policies(loaded)
    path = _path(loaded, out)
    with open_folder("train", loaded, worlds, policies, path, fresh) as folder:
        work = train_open(loaded.config, worlds, policies, folder, on_step=on_step, on_note=on_note)
        summary = wait(work)
    return Run(path, summary)


def study(
    source: str | Path,
    overrides: Overrides = (),
    *,
    n: int | None = None,
    measures: Sequence[str] = (),
    out: str | Path | None = None,
    fresh: bool = False,
) -> Study:
    """Plays every cell of a study and compares them, as `gem-ma study`; gives the keys of
    study.json, and the folder as `study`.

    `n`: how many tasks each cell plays. `measures`: scores to compare beside the first. `out` and
    `fresh` as in `run`; every cell is a run folder below, which `open_run` opens. Raises
    ConfigError for a config that is not a study, EngineError as in `run`.
    """
    loaded = load_study(source, _with_tasks(overrides, n))
    path = Path(out) if out is not None else cells.study_path(loaded)
    worlds = cells.worlds_of_cells(loaded)
    for cell in loaded.cells.values():
        check_imported(cell.resolved())
    compared = list(dict.fromkeys([*(loaded.sections.report.measures or ()), *measures]))
    cells.check_measures(compared, worlds)
    planned = sum(world.count() for world in worlds.values())
    # held: a second study in the same folder would play the same cells
    with hold_folder(path):
        cells.keep_config(loaded, path)
        made = wait(_cells(loaded, path, worlds, compared, fresh))
        about = {"command": f"gem_ma.study({str(source)!r})", "planned": planned}
        summary = cells.keep_comparison(loaded, made, compared, path, about)
    _check_heard(path, {f"cell {' x '.join(at)}: ": cell.summary for at, cell in made.items()})
    return Study({"study": str(path), **summary})


async def _cells(
    loaded: LoadedStudy,
    path: Path,
    worlds: dict[tuple[str, ...], Any],
    measures: Sequence[str],
    fresh: bool,
) -> dict[tuple[str, ...], Any]:
    """Plays the cells one after the other: all on one loop, since they share engines."""
    policies = cells.Policies(list(loaded.cells.values()))
    playing = cells.Playing(_Silent(), _Silent(), measures, fresh)
    made = {}
    for names, cell in loaded.cells.items():
        place = cells.cell_path(path, names, cell)
        made[names] = await playing.cell(cell, place, worlds[names], policies.of(cell))
    return made


def open_run(path: str | Path) -> Run:
    """The run of a folder, or of a name below runs/: its score as a dict, with `episodes()`,
    `to_frame()` and `success`. Raises StoreError where there is none."""
    named = Path("runs", path)
    return Run.of(named if not Path(path).exists() and named.exists() else path)


def compare(
    first: str | Path | Run, second: str | Path | Run, scores: Sequence[str] = ()
) -> Comparison:
    """Run `second` against run `first`, play by play, as `gem-ma compare`; the keys of
    `gem_ma.scores.comparison.compare_cells`. Raises ConfigError where no play is in both."""
    before, after = (one if isinstance(one, Run) else open_run(one) for one in (first, second))
    return Comparison(compare_runs(before.path, after.path, lambda line: None, scores))


class _Silent:
    """The progress line of whoever wants none; and of signals, which Python handles itself."""

    signal = None

    def until_stopped(self, plans: Any) -> Any:
        return plans

    def skip(self, count: int) -> None: ...
    def hide(self) -> None: ...
    def start(self, plan: Any) -> None: ...
    def end(self, outcome: str) -> None: ...
    def tick(self) -> None: ...


def _no_study(loaded: Loaded) -> None:
    if loaded.study:
        raise ConfigError(
            f"{loaded.path}: this is a study of several cells; play and compare them with: gem-ma"
            f" study {loaded.path}"
        )


def _check_heard(path: Path, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises EngineError where a policy never spoke; `summaries` by how their lines begin."""
    lines = [f"{head}{line}" for head, summary in summaries.items() for line in lines_of(summary)]
    if lines:
        raise EngineError("\n".join([*lines, f"what was played is kept in {path}"]))


def _path(loaded: Loaded, out: str | Path | None) -> Path:
    return Path(out) if out is not None else run_path(loaded.stem, loaded.identity())


def wait(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine. A notebook runs a loop already, so there it gets a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # a second loop cannot run inside of the first one, in its thread
    with ThreadPoolExecutor(1) as thread:
        # a thread begins without the caller's context variables (PEP 567); a seat that another
        # program plays is known by one
        return thread.submit(copy_context().run, asyncio.run, work).result()
