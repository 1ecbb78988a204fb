"""What a training run is made of, and how all of it goes into a checkpoint and comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired

from typing_extensions import TypedDict

from gem_ma.config.training import TrainSettings
from gem_ma.files import damage
from gem_ma.store import RunFolder
from gem_ma.training.learner.critic import Critic
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.checkpoint import (
    Checkpoint,
    prune_checkpoints,
    write_checkpoint,
)
from gem_ma.training.loop.overlap import FILE as AHEAD
from gem_ma.training.loop.overlap import Played
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import Step


class TrainerState(TypedDict):
    """trainer.json of a checkpoint, beside the entries of the attendants."""

    mark: dict[str, int]  # lines of the record that it counts on
    estimators: dict[str, dict[str, float]]
    end: NotRequired[bool]  # whether it was the last step of its run; older checkpoints have none


def checked_state(state: Any, shape: Any) -> Any:
    """The state itself, unchanged. Raises ValueError where it is none: its digest says who wrote
    it last, not what it is."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(shape).validate_python(state)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    return state


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
            "mark": folder.mark(),
            "estimators": self.states,
            "end": step.number == settings.steps,
        }
        files = {
            f"{name}.{file}": data
            for name, part in self._learned().items()
            for file, data in part.state().items()
        }
        for attendant in self.attendants:
            if attendant.name:
                trainer[attendant.name] = attendant.state()
                files |= attendant.files()
        if step.ahead is not None:
            folder.keep_images(step.ahead.episodes)
            files[AHEAD] = step.ahead.dump()
        files["trainer.json"] = json.dumps(trainer).encode()
        checkpoints, kept = folder.path / "checkpoints", settings.checkpoints
        write_checkpoint(checkpoints, step.number, files)
        prune_checkpoints(checkpoints, step.number, kept.keep, kept.every)

    def resume(self, folder: RunFolder | None, checkpoint: Checkpoint | None) -> Step:
        """Takes folder and parts back to a checkpoint, and gives its step; that of number 0 for a
        new run."""
        if checkpoint is None:
            if folder is not None:
                folder.rewind({"episodes": 0, "metrics": 0})
            return Step(0)
        remedy = f"remove {checkpoint.path} to go on from the checkpoint before it"
        with damage(checkpoint.path / "trainer.json", remedy):
            trainer = checked_state(json.loads(checkpoint.read("trainer.json")), TrainerState)
            if folder is not None:
                folder.rewind(trainer["mark"])
            self.states.update(trainer["estimators"])
            self._attendants(trainer, checkpoint)
            for name, part in self._learned().items():
                prefix = f"{name}."
                owned = [file for file in checkpoint.files if file.startswith(prefix)]
                part.load({file.removeprefix(prefix): checkpoint.read(file) for file in owned})
            ahead = AHEAD in checkpoint.files
            return Step(
                checkpoint.step, ahead=Played.load(checkpoint.read(AHEAD)) if ahead else None
            )

    def _attendants(self, trainer: Mapping[str, Any], checkpoint: Checkpoint) -> None:
        known = ("trainer.json", AHEAD, *(f"{name}." for name in self._learned()))
        files = {
            file: checkpoint.read(file) for file in checkpoint.files if not file.startswith(known)
        }
        for attendant in self.attendants:
            if not attendant.name:
                continue
            if attendant.name not in trainer and not attendant.optional:
                raise ValueError(f"{attendant.name}: Field required")
            state = trainer.get(attendant.name, {})
            attendant.load(checked_state(state, attendant.shape), files)

    def _learned(self) -> dict[str, Learner | Critic]:
        critics = {f"{name}@critic": critic for name, critic in self.critics.items()}
        return {**self.learners, **critics}
