"""What the commands do, from Python: load a config, play it, train it, compare what came out.

The same run folders as the commands write and take up, so both can be mixed. Prints nothing, asks
nothing, and raises what a command would print. Baselines and the report are left to the commands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_ma.config.loading import Loaded, Overrides, load, load_study
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.kernel.errors import ConfigError, EngineError, GemMaError
from gem_ma.runs import cells, plans
from gem_ma.runs.comparing import compare_runs
from gem_ma.runs.open import open_config
from gem_ma.runs.playing import Silent, play_run, wait
from gem_ma.runs.run import Comparison, Run, Study, check_rows, pandas
from gem_ma.runs.store import hold_folder, run_path
from gem_ma.runs.store.listing import run_folders
from gem_ma.runs.used import check_imported
from gem_ma.scores.unheard import lines_of
from gem_ma.training.schedule.checks import open_training

Source = str | Path | Loaded | Config
Plays = str | Path | Run | Study
OnStep = Callable[[int, dict[str, Any]], None]


def load_config(source: Source, overrides: Overrides = ()) -> Loaded:
    """A config with its origin, from a YAML file, the name of a shipped config, a scenario, or a
    `Config` that was made in Python; its values are in `.config`.

    `overrides` are `dotted.key=value`, as behind a command, or `{"dotted.key": value}`. Raises
    ConfigError with all faults, each with file and line.
    """
    if isinstance(source, Config):
        try:
            json.dumps(source.model_dump(), allow_nan=False, default=str)
        except ValueError:  # a run folder has no word for it, and a resume would play without
            raise ConfigError("a config holds finite numbers; an option of it is not one") from None
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
    return [*_texts(overrides), f"scenario.tasks={count}"]


def _texts(given: Any) -> Any:
    """A list of texts: one alone is a list of one, None an empty one."""
    return [given] if isinstance(given, str) else given or ()


def open_policies(source: Source, overrides: Overrides = (), **options: Any) -> dict[str, Policy]:
    """Every policy of a config by name, with its engine open, as `play` and `play_many` take them.
    `options` are those of `gem_ma.runs.plans.open_policies`."""
    loaded = load_config(source, overrides)
    with loaded.placing():
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
    the folder; without one it is `runs/<config>-<digest>`. The same call again plays what is not
    played yet; `fresh` puts an old folder aside first. A failed episode is counted, not raised.
    Raises ConfigError, DataError, StoreError; BudgetError and EndpointError with what was played
    kept; EngineError where a policy never answered, since such a score measures nothing.
    """
    loaded = load_config(source, _with_tasks(overrides, n)).without_training()
    _no_study(loaded)
    opened = open_config(loaded)
    check_imported(loaded.resolved())
    path = _path(loaded, out)
    # silent: a notebook shows what it wants to show
    played = play_run(opened, path, fresh=fresh, watch=Silent())
    if played.limit is not None:
        raise played.limit
    _check_heard(path, {"": played.summary})
    return Run(path, played.summary)


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
    from gem_ma.training.train import train as train_open

    loaded = load_config(source, overrides)
    _no_study(loaded)
    opened = open_training(loaded)
    check_imported(loaded.resolved())
    path = _path(loaded, out)
    with opened.folder(path, fresh) as folder:
        work = train_open(
            loaded.config,
            opened.worlds,
            opened.policies,
            folder,
            on_step=on_step,
            on_note=on_note,
        )
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
    path = Path(out) if out else cells.study_path(loaded)
    opened = cells.open_cells(loaded)
    for cell in loaded.cells.values():
        check_imported(cell.resolved())
    compared = list(dict.fromkeys([*(loaded.sections.report.measures or ()), *_texts(measures)]))
    cells.check_measures(compared, opened, cells.returns_of_sides(loaded))
    # held: a second study in the same folder would play the same cells
    with hold_folder(path):
        cells.keep_config(loaded, path)
        playing = cells.Playing(Silent(), Silent(), compared, fresh)
        wait(playing.all(opened, path, loaded))
        typed = ", ".join(map(repr, (str(source), overrides)))
        command = f"gem_ma.study({typed}, n={n}, measures={measures!r})"
        summary = cells.keep_comparison(loaded, playing.made, compared, path, command)
    heads = {f"cell {' x '.join(at)}: ": cell.summary for at, cell in playing.made.items()}
    _check_heard(path, heads)
    return Study({"study": str(path), **summary})


def open_run(path: str | Path) -> Run:
    """The run of a folder, or of a name below runs/: its score as a dict, with `episodes()`,
    `to_frame()` and `success`. Raises StoreError where there is none."""
    return Run.of(_found(path))


def to_frame(
    sources: Plays | Sequence[Plays],
    rows: str = "episodes",
    *,
    on_broken: Callable[[str], None] | None = None,
) -> Any:
    """A pandas data frame of all plays of many runs: the columns of `Run.to_frame` behind `run`,
    the folder of each. What a run has no column for is empty.

    `sources`: a run or a study, its folder or its name below runs/, or a folder of runs, in which
    studies give their cells; or several of these. A run that is named twice is taken once. `rows`:
    `episodes` or `turns`. `on_broken(line)` is told of a damaged run, which is then left out; where
    nobody is told, it raises StoreError, as a source without a run does. Raises ConfigError where
    pandas is missing.
    """
    frame = pandas().DataFrame
    check_rows(rows)
    listed = [sources] if isinstance(sources, (str, Path, Run, Study)) else sources
    folders = {
        folder.resolve(): folder for source in listed for folder in run_folders(_found(source))
    }
    made: list[dict[str, Any]] = []
    for folder in folders.values():
        try:
            # whole or not: damage may lie behind a thousand good plays
            made += [{"run": str(folder), **row} for row in Run(folder, {}).rows(rows)]
        except (GemMaError, OSError) as error:
            if on_broken is None:
                raise
            on_broken(str(error))
    return frame(made)


def _found(source: Plays) -> Path:
    """The folder of a run or a study; a path that exists wins over a name below runs/."""
    if isinstance(source, Run):
        return source.path
    path = Path(source["study"] if isinstance(source, Study) else source)
    named = Path("runs", path)
    return named if not path.exists() and named.exists() else path


def compare(
    first: str | Path | Run, second: str | Path | Run, scores: Sequence[str] = ()
) -> Comparison:
    """Run `second` against run `first`, play by play, as `gem-ma compare`; the keys of
    `gem_ma.scores.comparison.compare_cells`. Raises ConfigError where no play is in both."""
    before, after = (one if isinstance(one, Run) else open_run(one) for one in (first, second))
    return Comparison(compare_runs(before.path, after.path, lambda line: None, _texts(scores)))


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
    return Path(out) if out else run_path(loaded.stem, loaded.identity())
