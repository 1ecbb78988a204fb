"""What a training is made of, once `gem_ma.training.entry` has opened it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.checkpoint import Checkpoint
from gem_ma.training.loop.curriculum import Curriculum
from gem_ma.training.loop.roles import Learner, Players, Publisher
from gem_ma.training.loop.saving import Run
from gem_ma.training.loop.updates import Updates
from gem_ma.training.processes.teams import Teams
from gem_ma.training.selfplay.averaging import Averages
from gem_ma.training.selfplay.league import League


@dataclass(frozen=True, slots=True)
class Parts:
    """What a training is made of."""

    config: Config
    settings: TrainSettings
    worlds: Worlds
    policies: Mapping[str, Policy]
    folder: RunFolder | None  # of process 0; None = no record, or another process
    teams: Teams
    players: Players
    learners: Mapping[str, Learner]
    publisher: Publisher
    updates: Updates
    league: League
    averages: Averages
    curriculum: Curriculum | None  # None = tasks come in turn
    attendants: Sequence[Attendant]  # in the order in which they are called
    run: Run
    checkpoint: Checkpoint | None  # to go on from
    summary: dict[str, Any] | None  # of a run that has ended already
    notes: Sequence[str]  # for the user, before the first step
