"""What of a training run changes while it learns, and how all of it goes into a checkpoint. How it
comes back is in `gem_ma.training.loop.resuming`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.config.training import TrainSettings
from gem_ma.runs.store import RunFolder
from gem_ma.training.learner.capabilities import Shards
from gem_ma.training.learner.critic import Critic
from gem_ma.training.learner.shards import write_shards
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.checkpoint import begin_checkpoint, prune_checkpoints, write_checkpoint
from gem_ma.training.loop.overlap import Ahead
from gem_ma.training.loop.played import dumped
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import Step
from gem_ma.training.processes.teams import Team

# What lies in parts in several processes, on its way into a checkpoint: all of them write into one
# folder, and the first makes the checkpoint of it.


def begun_parts(
    learners: Mapping[str, Learner], root: Path | None, step: int, team: Team
) -> Path | None:
    """The folder into which all processes have written their parts; None where nothing lies in
    parts, or no record is kept. All processes call it. `root`: the run folder, which all see."""
    divided = {
        name: learner
        for name, learner in learners.items()
        if isinstance(learner, Shards) and learner.group is not None
    }
    if root is None or not divided:
        return None
    tensors = {
        f"{name}/{key}": tensor
        for name, learner in divided.items()
        for key, tensor in learner.tensors().items()
    }
    made = begin_checkpoint(root / "checkpoints", step) if team.first else None
    # JSON: the path travels as text, and nobody writes before the folder is there
    begun = Path(team.agree(str(made)))
    # sorted: a run that went on has its tensors in another order, and writes the same bytes
    write_shards(begun, dict(sorted(tensors.items())), next(iter(divided.values())).group)
    return begun


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run that change while it learns. `states`: of the estimators, by policy."""

    learners: Mapping[str, Learner]
    critics: Mapping[str, Critic]
    states: dict[str, dict[str, float]]
    attendants: Sequence[Attendant]
    ahead: Ahead
    root: Path | None  # the run folder, which all processes see; None keeps no record
    team: Team

    def save(self, folder: RunFolder | None, step: Step, settings: TrainSettings) -> None:
        """Writes the checkpoint of a step, and deletes those that are not to be kept. All processes
        call it."""
        begun = begun_parts(self.learners, self.root, step.number, self.team)
        if folder is None:
            return
        trainer: dict[str, Any] = {
            "mark": folder.mark(),  # lines of the record; a resume cuts it back to them
            "estimators": self.states,
            "end": step.number == settings.steps,  # a longer run would have done more here
        }
        files = {
            f"{name}.{file}": data
            for name, part in self.learned().items()
            for file, data in part.state().items()
        }
        for attendant in self.attendants:
            if attendant.name:
                trainer[attendant.name] = attendant.state()
        for played in step.ahead.ended():
            # the record does not hold these episodes yet, so neither does the folder their images
            folder.keep_images(played.episodes)
        files |= dumped(step.ahead.ended())
        files["trainer.json"] = json.dumps(trainer).encode()
        checkpoints = folder.path / "checkpoints"
        bounds = settings.checkpoints
        if begun is not None:
            # all processes know it by its absolute path, the folder may be a relative one
            begun = checkpoints / begun.name
        write_checkpoint(checkpoints, step.number, files, begun)
        prune_checkpoints(checkpoints, step.number, bounds.keep, bounds.every)

    def learned(self) -> dict[str, Learner | Critic]:
        """Learners and critics, by the name that their files of a checkpoint begin with."""
        # no learned policy has an @ in its name, so no two of these begin alike
        critics = {f"{name}@critic": critic for name, critic in self.critics.items()}
        return {**self.learners, **critics}
