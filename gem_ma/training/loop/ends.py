"""The two ends of a training: what comes before its first step, and after its last."""

from __future__ import annotations

from typing import Any, Protocol

from gem_ma.config.training import TrainSettings
from gem_ma.training.loop.exports import export
from gem_ma.training.loop.parts import Parts
from gem_ma.training.loop.resuming import resume
from gem_ma.training.loop.step import Step
from gem_ma.training.schedule.demonstrations import demonstrations
from gem_ma.training.tracking import Tracking


class Examiner(Protocol):
    """What the ends need of a `Trainer`."""

    parts: Parts
    settings: TrainSettings
    tracking: Tracking

    async def examine(self, step: Step) -> None: ...
    def tell(self, event: str, step: Step) -> None: ...


async def begin(trainer: Examiner) -> Step:
    """The step to go on from: that of the checkpoint; or number 0, with the clones of
    `train.warm_start` and the first exam."""
    parts = trainer.parts
    settings = trainer.settings
    for note in parts.notes:
        trainer.tracking.note(note)
    step = resume(parts.run, parts.folder, parts.checkpoint)
    # after the record was cut back to the checkpoint: trackers are sent what it holds then
    trainer.tracking.start(step.number)
    if parts.checkpoint is not None:
        return step
    for name, warm in settings.warm_start.items():
        policy = parts.policies[name]
        examples = await demonstrations(parts.worlds, parts.players, policy, warm)
        parts.learners[name].clone(examples, warm)
        parts.publisher.publish(name)  # before the exam, which would ask the weights of before
    trainer.tell("updated", step)
    await trainer.examine(step)
    trainer.tell("examined", step)
    # so that a run that is killed in its first steps neither clones nor examines again
    parts.run.save(parts.folder, step, settings)
    return step


async def finish(trainer: Examiner, step: Step) -> dict[str, Any]:
    """The exam of the end, the summary, and the weights as models in the run folder."""
    parts = trainer.parts
    step.last = True
    await trainer.examine(step)
    trainer.tell("examined", step)
    # raises where a frozen opponent has changed, before a summary says that all went well
    parts.league.close()
    summary: dict[str, Any] = {
        "steps": step.number,
        "learned": list(trainer.settings.policies),
        "before": None,  # filled in by the attendant `Beginning`; stands here for its place
        "after": step.scores,
    }
    for attendant in parts.attendants:
        summary |= attendant.summary()
    if parts.folder is not None:
        summary |= export(parts.folder, parts.policies, parts.learners, parts.averages)
        # last: a folder with a summary is one of a run that has ended
        parts.folder.write_summary(summary)
    return summary
