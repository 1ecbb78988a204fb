"""One of several processes that train configs one after the other: `training_process.py JOBS`,
JOBS = [[config, overrides, folder]]."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gem_ma import config
from gem_ma.config.plans import open_policies, scenario_of
from gem_ma.store import RunFolder
from gem_ma.training.entry import train
from gem_ma.training.processes.teams import ALONE, Teams, join


def work(jobs: list[list[Any]], teams: Teams = ALONE) -> None:
    for source, overrides, path in jobs:
        settings = config.load(source, overrides).config
        first = (
            RunFolder.open(Path(path), config_text="", resolved=settings.model_dump(mode="json"))
            if teams.play.first
            else nullcontext()
        )
        with first as folder:
            asyncio.run(
                train(settings, scenario_of(settings), open_policies(settings), folder, teams=teams)
            )


if __name__ == "__main__":
    team = join()
    work(json.loads(sys.argv[1]), team)
    team.close()
