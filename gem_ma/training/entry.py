"""Training as two functions: `train` with what is open already, `run_training` from a config."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gem_ma.config.plans import open_policies, scenario_of
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.scenario import Scenario
from gem_ma.store import RunFolder
from gem_ma.tracking import Tracker, Tracking
from gem_ma.training.loop.opening import open_parts
from gem_ma.training.processes.teams import ALONE, Teams
from gem_ma.training.schedule.checks import checked
from gem_ma.training.train import OnStep, Trainer


async def train(
    config: Config,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    folder: RunFolder | None,
    *,
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
    watchers: Mapping[str, Tracker] | None = None,
    teams: Teams = ALONE,
) -> dict[str, Any]:
    """Trains `config.train.policies` and gives the summary, which is also summary.json: scores
    before and after, sampled and greedy.

    Where the folder holds a checkpoint, goes on from it. `on_step(step, metrics)` is called after
    every step, `on_note(line)` for each line that the user should read. `watchers` get every row of
    numbers, beside the trackers that `train.log` names; their faults cost the run nothing. Of
    several processes (`teams`) all call this with the same config, and the first alone has a
    folder. Raises ConfigError for a policy that cannot learn, EngineError where all episodes of a
    step failed or a publication does not pass its parity check.
    """
    log = checked(config, policies).log
    facts = config.model_dump(mode="json")
    with Tracking(folder, log, watchers=watchers, settings=facts, on_note=on_note) as tracking:
        parts = open_parts(config, scenario, policies, folder, teams)
        return await Trainer(parts, tracking, on_step).train()


def run_training(
    config: Config,
    folder: RunFolder | None = None,
    *,
    base: Path | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Opens the scenario and the policies of a config (paths from `base`) and trains; see
    `train`. `folder` None keeps no record."""
    policies = open_policies(config, base=base)
    scenario = scenario_of(config, base=base)
    return asyncio.run(train(config, scenario, policies, folder, on_step=on_step))
