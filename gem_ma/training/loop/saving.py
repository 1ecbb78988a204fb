"""How the state of a training goes into a checkpoint and comes back from it, and the weights of its
end as models that any run can name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.errors import StoreError
from gem_ma.runs.store import RunFolder, read_summary
from gem_ma.runs.store.summaries import check_training
from gem_ma.system.files import damage, place
from gem_ma.training.learner.critic import Critic
from gem_ma.training.learner.shards import SHARD, write_shards
from gem_ma.training.loop.checkpoint import (
    Checkpoint,
    begin_checkpoint,
    latest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from gem_ma.training.loop.roles import KeepsAverage, Learner, Shards
from gem_ma.training.loop.step import FILE as AHEAD
from gem_ma.training.loop.step import Ahead, Attendant, Step, StepRollouts, dumped
from gem_ma.training.processes.teams import Team
from gem_ma.training.schedule.settings import settings_of
from gem_ma.training.selfplay.averaging import Averages, as_table


def export(
    folder: RunFolder,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Learner],
    averages: Averages,
) -> dict[str, Any]:
    """Writes the weights of all learners and their averages; gives `models` and `averaged` of the
    summary: policy -> engine and path."""
    last = weights_of(policies, learners)
    means = averages_of(learners, averages)
    models = {name: write_model(folder, name, engine) for name, engine in last.items()}
    averaged = {name: write_model(folder, f"{name}.averaged", mean) for name, mean in means.items()}
    return {"models": models, "averaged": averaged}


def weights_of(policies: Mapping[str, Policy], names: Iterable[str]) -> dict[str, Weighs]:
    """The engines of these policies that hold weights."""
    cores = {name: policies[name].core for name in names}
    return {name: engine for name, engine in cores.items() if isinstance(engine, Weighs)}


def averages_of(learners: Mapping[str, Learner], averages: Averages) -> dict[str, Weighs]:
    """The averaged policies, of learners that keep one and of language models."""
    kept = ((name, one) for name, one in learners.items() if isinstance(one, KeepsAverage))
    means: dict[str, Weighs] = {name: learner.average() for name, learner in kept}
    for name, mixture in averages.mixtures.items():
        if mixture.size:  # 0: nothing was published, so there is nothing to average
            means[name] = as_table(mixture, name)
    return means


def write_model(folder: RunFolder, name: str, engine: Weighs) -> dict[str, str]:
    """Writes the weights as a model that any run can name as `<engine>/<run folder>/<path>`."""
    path = Path("models", name)  # from the run folder, which may be moved
    place(folder.path / path, folder.path, engine.save)
    return {"engine": engine.exports, "path": str(path)}


def begun_parts(
    learners: Mapping[str, Learner], root: Path | None, step: int, team: Team
) -> Path | None:
    """The folder into which all processes have written what lies in parts, on its way into a
    checkpoint; None where nothing does, or no record is kept. All call it. `root`: the run folder,
    which all see."""
    shared = {name: one for name, one in learners.items() if isinstance(one, Shards)}
    divided = {name: one for name, one in shared.items() if one.group is not None}
    if root is None or not divided:
        return None
    parts = {name: learner.tensors().items() for name, learner in divided.items()}
    tensors = {f"{name}/{key}": tensor for name, part in parts.items() for key, tensor in part}
    made = begin_checkpoint(root / "checkpoints", step) if team.first else None
    # JSON: the path travels as text, and nobody writes before the folder is there
    begun = Path(team.agree(str(made)))
    # sorted: a run that went on has its tensors in another order, and writes the same bytes
    write_shards(begun, dict(sorted(tensors.items())), next(iter(divided.values())).group)
    return begun


@dataclass(frozen=True, slots=True)
class TrainingState:
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
        parts = ((name, part.state()) for name, part in self.learned().items())
        files = {f"{name}.{file}": data for name, state in parts for file, data in state.items()}
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
        # no learned policy has an @ in its name, so no two of these begin alike
        critics = {f"{name}@critic": critic for name, critic in self.critics.items()}
        return {**self.learners, **critics}


SUMMARY = ("steps", "learned", "before", "after", "changed", "unchanged", "weights")


class TrainerState(TypedDict):
    """trainer.json of a checkpoint, beside the entries of the attendants."""

    mark: dict[str, int]  # lines of the record that it counts on
    estimators: dict[str, dict[str, float]]
    end: NotRequired[bool]  # whether it was the last step of its run; older checkpoints have none


def checked_state(state: Any, shape: Any) -> Any:
    """The state itself, unchanged. Raises ValueError where it has another shape: its digest says
    that nobody changed it since, not what it is."""
    try:
        TypeAdapter(shape).validate_python(state)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    return state


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a run stands: its folder, the checkpoint to go on from, its summary if it has ended."""

    root: Path | None
    checkpoint: Checkpoint | None
    summary: dict[str, Any] | None
    notes: Sequence[str]


def resume_point(
    config: Config, settings: TrainSettings, folder: RunFolder | None, team: Team
) -> ResumePoint:
    """Where the run stands. Process 0 alone has the folder, and tells the others."""
    checkpoint, notes = newest(folder, config, settings)
    total = settings.steps if settings.policies else 0
    ended = folder is not None and checkpoint is not None and checkpoint.step == total
    summary = _summary(folder) if folder is not None and ended else None
    # one decision for all: a process that looked for itself might find a checkpoint less
    root = str(folder.path.absolute()) if folder is not None else None
    chosen = str(checkpoint.path.absolute()) if checkpoint is not None else None
    shared = team.agree({"root": root, "checkpoint": chosen, "ended": summary is not None})
    # the paths are read by all, so the processes of several machines need a disk in common
    if not team.first and shared["checkpoint"] is not None:
        checkpoint = read_checkpoint(Path(shared["checkpoint"]))
    seen = Path(shared["root"]) if shared["root"] is not None else None
    return ResumePoint(seen, checkpoint, (summary or {}) if shared["ended"] else None, notes)


def _summary(folder: RunFolder) -> dict[str, Any] | None:
    """The summary of a training that has ended; None where it is missing or damaged, so that it
    is made again."""
    try:
        summary = read_summary(folder.path, SUMMARY)
        return summary and check_training(summary, folder.path / "summary.json")
    except StoreError:
        return None


def _trainer(checkpoint: Checkpoint) -> dict[str, Any]:
    """trainer.json; {} where it is not one of ours, which `resume` reports."""
    try:
        state = checked_state(json.loads(checkpoint.read("trainer.json")), TrainerState)
    except (ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def newest(
    folder: RunFolder | None, config: Config, settings: TrainSettings
) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to go on from (None: the run begins), and notes for the user.

    A checkpoint whose record has lost lines is passed over for an older one. Where `train.steps`
    was raised, the last one lacks what a longer run does before its next step, so that an older one
    is taken. Raises StoreError where every checkpoint counts on lines that are lost.
    """
    if folder is None:
        return None, []
    lost: list[str] = []

    def unfit(checkpoint: Checkpoint) -> str:
        if fault := folder.misfit(_trainer(checkpoint).get("mark", {})):
            lost.append(fault)
        return fault

    latest = latest_checkpoint(folder.path / "checkpoints", unfit)
    # a new beginning over a record that is there would overwrite what somebody may want back
    if latest is None and lost:
        raise StoreError(
            f"{lost[-1]}, and no older checkpoint fits; put the lost lines back from a copy, or"
            " start anew with --fresh"
        )
    if latest is None:
        return None, []
    if not _trainer(latest).get("end") or latest.step >= settings.steps:
        return latest, list(latest.fell_back)
    checkpoint, notes = _with_more_steps(latest, folder, unfit, config, settings)
    return checkpoint, [*latest.fell_back, *notes]


def _with_more_steps(
    latest: Checkpoint,
    folder: RunFolder,
    unfit: Callable[[Checkpoint], str],
    config: Config,
    settings: TrainSettings,
) -> tuple[Checkpoint, list[str]]:
    """The checkpoint to go on from where `latest` is the end of a run of fewer steps, and notes."""
    notes = [f"train.steps is {settings.steps} now; {latest.step} are done"]
    # a falling rate fell faster in the shorter run, so an older checkpoint would not help
    if any(settings_of(settings, name).lr_final != 1 for name in settings.policies):
        notes.append(
            f"the rate goes on along the line of {settings.steps} steps (train.lr_final); the"
            f" {latest.step} done followed a steeper one"
        )
        return latest, notes
    every = config.evaluate.every
    # what a run leaves out after its last step, and does after any other
    due = bool(every and latest.step % every == 0)
    missing = ["what is played ahead (train.overlap)"] * bool(settings.overlap)
    missing += ["its exam (evaluate.every)"] * due
    if not missing:
        return latest, notes
    # the last k checkpoints of the shorter run all lack steps that a longer one plays ahead
    whole = latest.step - max(1, int(settings.overlap))
    older = latest_checkpoint(
        folder.path / "checkpoints",
        lambda checkpoint: "" if checkpoint.step <= whole and not unfit(checkpoint) else "newer",
    )
    # from step 0 the whole run would be done again, which nobody who raised `steps` wants
    if older is None or older.step == 0:
        notes.append(
            f"step {latest.step} lacks {' and '.join(missing)}, so what follows differs from a run"
            f" that had {settings.steps} from its start"
        )
        return latest, notes
    notes.append(
        f"steps {older.step + 1} to {latest.step} are done once more, since {latest.path.name}"
        f" lacks {' and '.join(missing)}"
    )
    return older, notes


def resume(run: TrainingState, folder: RunFolder | None, checkpoint: Checkpoint | None) -> Step:
    """Takes folder and run back to a checkpoint, and gives its step; that of number 0 for a
    new run."""
    if checkpoint is None:
        if folder is not None:
            # lines of a run that was killed before its first checkpoint: it begins anew
            folder.rewind({"episodes": 0, "metrics": 0})
        return Step(0, run.ahead)
    remedy = f"remove {checkpoint.path} to go on from the checkpoint before it"
    with damage(checkpoint.path / "trainer.json", remedy):
        trainer = checked_state(json.loads(checkpoint.read("trainer.json")), TrainerState)
        if folder is not None:
            folder.rewind(trainer["mark"])  # lines of steps that are done once more
        run.states.update(trainer["estimators"])
        for attendant in run.attendants:
            # in the words of the schema check: to the user it is the same fault
            if attendant.name and attendant.name not in trainer and not attendant.optional:
                raise ValueError(f"{attendant.name}: Field required")
            if attendant.name:
                state = trainer.get(attendant.name, {})
                attendant.load(checked_state(state, attendant.shape))
        # learners last: what they load goes to samplers too, and nothing should fail after that
        shards = [checkpoint.files[file] for file in checkpoint.files if file.startswith(SHARD)]
        for name, part in run.learned().items():
            prefix = f"{name}."
            owned = [file for file in checkpoint.files if file.startswith(prefix)]
            data = {file.removeprefix(prefix): checkpoint.read(file) for file in owned}
            if shards and isinstance(part, Shards):
                part.load(data, shards)
            else:
                part.load(data)
        ahead = [file for file in checkpoint.files if file.startswith(AHEAD)]
        played = [StepRollouts.load(checkpoint.read(file)) for file in ahead]
        # lines of the record have no images, and these are learned from
        run.ahead.put([one.with_images(folder.media) for one in played] if folder else played)
        return Step(checkpoint.step, run.ahead)
