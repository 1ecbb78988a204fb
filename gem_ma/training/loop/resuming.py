"""How a training goes on: where its run stands (the folder, the checkpoint to go on from, the
summary if it has ended), and how folder and run are taken back to that checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.kernel.errors import StoreError
from gem_ma.runs.store import RunFolder, read_summary
from gem_ma.runs.store.summaries import check_training
from gem_ma.system.files import damage
from gem_ma.training.learner.capabilities import Shards
from gem_ma.training.learner.shards import SHARD
from gem_ma.training.loop.checkpoint import Checkpoint, latest_checkpoint, read_checkpoint
from gem_ma.training.loop.played import FILE as AHEAD
from gem_ma.training.loop.played import Played
from gem_ma.training.loop.saving import Run
from gem_ma.training.loop.step import Step
from gem_ma.training.processes.teams import Team
from gem_ma.training.schedule.alternation import settings_of

SUMMARY = ("steps", "learned", "before", "after", "changed", "unchanged", "weights")


class TrainerState(TypedDict):
    """trainer.json of a checkpoint, beside the entries of the attendants."""

    mark: dict[str, int]  # lines of the record that it counts on
    estimators: dict[str, dict[str, float]]
    end: NotRequired[bool]  # whether it was the last step of its run; older checkpoints have none


def checked_state(state: Any, shape: Any) -> Any:
    """The state itself, unchanged. Raises ValueError where it has another shape: its digest says
    that nobody changed it since, not what it is."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(shape).validate_python(state)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    return state


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands: its folder, the checkpoint to go on from, its summary if it has ended."""

    root: Path | None
    checkpoint: Checkpoint | None
    summary: dict[str, Any] | None
    notes: Sequence[str]


def place_of(
    config: Config, settings: TrainSettings, folder: RunFolder | None, team: Team
) -> Place:
    """Where the run stands. Process 0 alone has the folder, and tells the others."""
    checkpoint, notes = newest(folder, config, settings)
    total = settings.steps if settings.policies else 0
    ended = folder is not None and checkpoint is not None and checkpoint.step == total
    summary = _summary(folder) if folder is not None and ended else None
    # one decision for all: a process that looked for itself might find a checkpoint less
    shared = team.agree(
        {
            "root": str(folder.path.absolute()) if folder is not None else None,
            "checkpoint": str(checkpoint.path.absolute()) if checkpoint is not None else None,
            "ended": summary is not None,
        }
    )
    # the paths are read by all, so the processes of several machines need a disk in common
    if not team.first and shared["checkpoint"] is not None:
        checkpoint = read_checkpoint(Path(shared["checkpoint"]))
    root = Path(shared["root"]) if shared["root"] is not None else None
    return Place(root, checkpoint, (summary or {}) if shared["ended"] else None, notes)


def _summary(folder: RunFolder) -> dict[str, Any] | None:
    """The summary of a training that has ended; None where it is missing or damaged, so that it
    is made again."""
    try:
        summary = read_summary(folder.path, SUMMARY)
        if summary is None:
            return None
        return check_training(summary, folder.path / "summary.json")
    except StoreError:
        return None


def _trainer(checkpoint: Checkpoint) -> dict[str, Any]:
    """trainer.json; {} where it is none of ours, which `resume` reports."""
    try:
        state = checked_state(json.loads(checkpoint.read("trainer.json")), TrainerState)
    except (ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def newest(
    folder: RunFolder | None, config: Config, settings: TrainSettings
) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to go on from (None: the run begins), and notes for the user: which ones were
    passed over, and what a raised `train.steps` means.

    A checkpoint whose record has lost lines is passed over for an older one. Where `train.steps`
    was raised, the last checkpoint lacks what a longer run does before its next step. So that both
    end alike, an older one is taken, if there is one after the start. Raises StoreError where every
    checkpoint counts on lines that are lost.
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
    # what a run leaves out after its last step, and does after any other
    due = bool(config.evaluate.every) and latest.step % (config.evaluate.every or 1) == 0
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


def resume(run: Run, folder: RunFolder | None, checkpoint: Checkpoint | None) -> Step:
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
        _resume_attendants(run, trainer)
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
        run.ahead.put(_ahead(folder, checkpoint))
        return Step(checkpoint.step, run.ahead)


def _ahead(folder: RunFolder | None, checkpoint: Checkpoint) -> list[Played]:
    """What was played for steps to come, with the images that are learned from."""
    files = [file for file in checkpoint.files if file.startswith(AHEAD)]
    ended = [Played.load(checkpoint.read(file)) for file in files]
    return ended if folder is None else [one.with_images(folder.media) for one in ended]


def _resume_attendants(run: Run, trainer: Mapping[str, Any]) -> None:
    for attendant in run.attendants:
        if not attendant.name:
            continue
        # in the words of the schema check: to the user it is the same fault
        if attendant.name not in trainer and not attendant.optional:
            raise ValueError(f"{attendant.name}: Field required")
        state = trainer.get(attendant.name, {})
        attendant.load(checked_state(state, attendant.shape))
