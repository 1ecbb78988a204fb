"""What the commands do, from Python: load a config, play it, train it.

The same run folders as the commands write and take up, so both can be mixed. Prints nothing, asks
nothing, and raises what a command would print. Baselines and the report are left to the commands.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gem_ma.config import plans
from gem_ma.config.loading import Loaded, load
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.errors import ConfigError
from gem_ma.running.folder import open_folder
from gem_ma.running.learning import checked_scenario
from gem_ma.running.playing import play_into
from gem_ma.running.score import score_of
from gem_ma.store import run_path

Source = str | Path | Loaded | Config
OnStep = Callable[[int, dict[str, Any]], None]


def load_config(source: Source, overrides: Sequence[str] = ()) -> Loaded:
    """A config with its origin, from a YAML file, the name of a shipped config, a scenario, or a
    `Config` that was made in Python; its values are in `.config`.

    `overrides` are `dotted.key=value`, as behind a command. Raises ConfigError with all faults,
    each with file and line.
    """
    if isinstance(source, Config):
        # JSON is YAML, so the run folder can keep it as the text of a config
        text = json.dumps(source.model_dump(mode="json", exclude_defaults=True), indent=2) + "\n"
        source = Loaded(source, text, None)
    if not isinstance(source, Loaded):
        # a name that a scenario shares means the config, which says who plays it
        return load(source, overrides, configs_first=True)
    if overrides:
        raise ConfigError(f"overrides: {list(overrides)} come too late: the config is loaded")
    return source


def open_policies(
    source: Source, overrides: Sequence[str] = (), **options: Any
) -> dict[str, Policy]:
    """Every policy of a config by name, with its engine open, as `play` and `play_many` take them.
    `options` are those of `gem_ma.config.plans.open_policies`."""
    loaded = load_config(source, overrides)
    return plans.open_policies(loaded.config, base=loaded.base, **options)


def run(
    source: Source,
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    fresh: bool = False,
) -> dict[str, Any]:
    """Plays a config into a run folder and scores it, as `gem-ma run`; gives the score, and the
    folder as `run`.

    `out`: the folder, by default `runs/<config>-<digest>`. The same call again plays what is not
    played yet; `fresh` puts an old folder aside first. A failed episode is counted, not raised.
    Raises ConfigError, DataError, StoreError; BudgetError and EndpointError with what was played
    kept.
    """
    loaded = load_config(source, overrides).without_training()
    _no_study(loaded)
    scenario = plans.scenario_of(loaded.config, base=loaded.base)
    # before the folder is made, as the command does it: a wrong option leaves nothing behind
    plans.try_seats(loaded.config, scenario)
    policies = open_policies(loaded)
    path = _path(loaded, out)
    with open_folder("run", loaded, scenario, policies, path, fresh) as folder:
        done = folder.done()
        # made as they are played: a large run would hold all of them in memory
        rest = (
            plan for plan in plans.evaluation_plans(loaded.config, scenario) if plan.id not in done
        )
        # silent: a notebook shows what it wants to show
        _wait(play_into(folder, rest, policies, loaded.config.run.concurrency, _Silent()))
        score = score_of(loaded, scenario, folder)
        folder.write_summary(score)
    return {"run": str(path), **score}


def train(
    source: Source,
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Lets the policies of `train.policies` learn in a run folder, as `gem-ma train`; gives the
    summary, and the folder as `run`.

    `on_step(step, metrics)` is called after every step, counted from 1, and `on_note(line)` for
    what the user should read. The same call again goes on from the last checkpoint, and gives the
    summary of a training that has ended. `out` and `fresh` as in `run`. Raises ConfigError for a
    policy that cannot learn, EngineError where all episodes of a step failed.
    """
    # the loop and its learners take a third of a second to import, which a play does not need
    from gem_ma.training.entry import train as train_open

    loaded = load_config(source, overrides)
    _no_study(loaded)
    scenario = checked_scenario(loaded)
    plans.try_seats(loaded.config, scenario)
    policies = open_policies(loaded)
    path = _path(loaded, out)
    with open_folder("train", loaded, scenario, policies, path, fresh) as folder:
        work = train_open(
            loaded.config, scenario, policies, folder, on_step=on_step, on_note=on_note
        )
        summary = _wait(work)
    return {"run": str(path), **summary}


class _Silent:
    """The progress line of whoever wants none."""

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


def _path(loaded: Loaded, out: str | Path | None) -> Path:
    return Path(out) if out is not None else run_path(loaded.stem, loaded.identity())


def _wait(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine. A notebook runs a loop already, so there it gets a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # a second loop cannot run inside of the first one, in its thread
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
