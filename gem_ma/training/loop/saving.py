"""What of a training run changes while it learns, and how all of it goes into a checkpoint. How it
comes back is in `gem_ma.training.loop.resuming`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.config.training import TrainSettings
from gem_ma.store import RunFolder
from gem_ma.training.learner.critic import Critic
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.checkpoint import prune_checkpoints, write_checkpoint
from gem_ma.training.loop.overlap import FILE as AHEAD
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import Step


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run that change while it learns. `states`: of the estimators, by policy."""

    learners: Mapping[str, Learner]
    critics: Mapping[str, Critic]
    states: dict[str, dict[str, float]]
    attendants: Sequence[Attendant]

    def save(self, folder: RunFolder | None, step: Step, settings: TrainSettings) -> None:
        """Writes the checkpoint of a step, and deletes those that are not to be kept."""
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
                files |= attendant.files()
        if step.ahead is not None:
            # the record does not hold these episodes yet, so neither does the folder their images
            folder.keep_images(step.ahead.episodes)
            files[AHEAD] = step.ahead.dump()
        files["trainer.json"] = json.dumps(trainer).encode()
        checkpoints, kept = folder.path / "checkpoints", settings.checkpoints
        write_checkpoint(checkpoints, step.number, files)
        prune_checkpoints(checkpoints, step.number, kept.keep, kept.every)

    def learned(self) -> dict[str, Learner | Critic]:
        """Learners and critics, by the name that their files of a checkpoint begin with."""
        # no learned policy has an @ in its name, so no two of these begin alike
        critics = {f"{name}@critic": critic for name, critic in self.critics.items()}
        return {**self.learners, **critics}
