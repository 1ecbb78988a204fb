"""Counts how often plays of each task succeed, for `train.curriculum`; what is drawn from it is in
`gem_ma.training.schedule.curriculum`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.config.training import CurriculumSettings
from gem_ma.kernel.episode import placed
from gem_ma.runs.worlds import Worlds
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.step import Step
from gem_ma.training.schedule.curriculum import DECAY, Choices, Tally


class Curriculum(Attendant):
    """The tallies of all tasks that were met. A play counts less with every step."""

    name = "curriculum"
    shape = dict[str, tuple[float, float]]
    optional = True  # of a run that was begun without it: estimates begin here

    def __init__(self, how: CurriculumSettings, config: Config, worlds: Worlds) -> None:
        self.how = how
        self.worlds = worlds
        self.seed = config.run.seed
        self.split = config.train.split if config.train is not None else "train"
        self.tallies: dict[str, Tally] = {}

    def choices(self) -> Choices:
        """What chooses the tasks of one step, by all that was counted until now."""
        # copies: under overlap the next step is counted before this one's refills are drawn
        now = {task: list(tally) for task, tally in self.tallies.items()}
        return Choices(self.how, self.split, self.seed, now)

    def played(self, step: Step) -> None:
        """Counts the plays of a step; what failed or is judged by nobody says nothing."""
        for tally in self.tallies.values():
            tally[:] = [number * DECAY for number in tally]
        # branches go on from the middle of a play, so they are no plays of its task
        for episode in (*step.plays.plays, *step.plays.refills):
            won = self.worlds.success(episode) if episode.end.scored else None
            if won is not None:
                tally = self.tallies.setdefault(placed(episode.world, episode.task), [0.0, 0.0])
                tally[0] += 1
                tally[1] += won

    def state(self) -> Mapping[str, Any]:
        """See `Attendant.state`."""
        return self.tallies

    def load(self, state: Any) -> None:
        """See `Attendant.load`."""
        self.tallies = {task: list(tally) for task, tally in state.items()}
