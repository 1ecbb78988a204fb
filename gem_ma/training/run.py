"""What a training run is made of, and how all of it goes into a checkpoint and comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

from typing_extensions import TypedDict

from gem_ma.errors import StoreError
from gem_ma.files import damage
from gem_ma.settings import Config, TrainSettings
from gem_ma.store import RunFolder
from gem_ma.training.alternation import settings_of
from gem_ma.training.averaging import Averages
from gem_ma.training.checkpoint import (
    Checkpoint,
    latest_checkpoint,
    prune_checkpoints,
    write_checkpoint,
)
from gem_ma.training.critic import Critic
from gem_ma.training.guard import Guard
from gem_ma.training.league import League
from gem_ma.training.learner import Learner
from gem_ma.training.overlap import FILE as AHEAD
from gem_ma.training.overlap import Played
from gem_ma.training.taught import Taught


class _First(TypedDict):
    scores: dict[str, Any]
    weights: dict[str, str]


class _League(TypedDict):
    members: list[tuple[str, int, int, str]]
    games: list[tuple[str, str, float, float]]
    mixed: bool


class _Guard(TypedDict):
    past: dict[str, list[Any]]
    active: dict[str, int]
    brake: dict[str, float]
    kept: dict[str, dict[str, int]]
    told: dict[str, int]


class _State(TypedDict):
    """trainer.json of a checkpoint. Whoever adds to it says here what it holds."""

    mark: dict[str, int]
    estimators: dict[str, dict[str, float]]
    first: _First
    league: _League
    guard: _Guard
    averages: NotRequired[dict[str, dict[str, Any]]]  # older checkpoints have none
    taught: NotRequired[dict[str, dict[str, int]]]  # the same
    end: NotRequired[bool]  # the same: whether it was the last step of its run


def checked_state(state: Any) -> Any:
    """The state itself, unchanged. Raises ValueError where it is none: its digest says who wrote
    it last, not what it is."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(_State).validate_python(state)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    return state


_KEPT_WEIGHTS = re.compile(r".+@(healthy|candidate)\.")  # files of the guard


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run that change while it learns. `states`: of the estimators, by policy."""

    learners: Mapping[str, Learner]
    critics: Mapping[str, Critic]
    states: dict[str, dict[str, float]]
    league: League
    guard: Guard
    averages: Averages
    taught: Taught

    def save(
        self,
        folder: RunFolder | None,
        step: int,
        first: Mapping[str, Any],
        ahead: Played | None,
        settings: TrainSettings,
    ) -> None:
        """Writes the checkpoint of a step, and deletes those that are not to be kept. `first`:
        what was true before step 1; `ahead`: what was played for the next one.
        """
        if folder is None:
            return
        kept = {
            "league": self.league.state(),
            "guard": self.guard.state(),
            "averages": self.averages.state(),
            "taught": self.taught.state(),
        }
        trainer = {
            "mark": folder.mark(),
            "estimators": self.states,
            "first": first,
            "end": step == settings.steps,
            **kept,
        }
        files = {
            f"{name}.{file}": data
            for name, part in self._learned().items()
            for file, data in part.state().items()
        }
        files |= self.guard.files()
        if ahead is not None:
            folder.keep_images(ahead.episodes)
            files[AHEAD] = ahead.dump()
        write_checkpoint(
            folder.path / "checkpoints",
            step,
            {"trainer.json": json.dumps(trainer).encode(), **files},
        )
        prune_checkpoints(
            folder.path / "checkpoints", step, settings.checkpoints.keep, settings.checkpoints.every
        )

    def resume(
        self, folder: RunFolder | None, found: Checkpoint | None
    ) -> tuple[int, dict[str, Any] | None, Played | None]:
        """Takes folder and parts back to a checkpoint: (steps done, what was true before step 1,
        what was played ahead).

        (0, None, None) for a new run.
        """
        if found is None:
            if folder is not None:
                folder.rewind({"episodes": 0, "metrics": 0})
            return 0, None, None
        with damage(
            found.path / "trainer.json",
            f"remove {found.path} to go on from the checkpoint before it",
        ):
            trainer = checked_state(json.loads(found.read("trainer.json")))
            first = trainer["first"]
            if folder is not None:
                folder.rewind(trainer["mark"])
            self.states.update(trainer["estimators"])
            self.league.load(trainer["league"])
            self.averages.load(trainer.get("averages", {}))
            self.taught.load(trainer.get("taught", {}))
            self.guard.load(
                trainer["guard"],
                {file: found.read(file) for file in found.files if _KEPT_WEIGHTS.match(file)},
            )
            for name, part in self._learned().items():
                prefix = f"{name}."
                part.load(
                    {
                        file.removeprefix(prefix): found.read(file)
                        for file in found.files
                        if file.startswith(prefix)
                    }
                )
            return (
                found.step,
                first,
                Played.load(found.read(AHEAD)) if AHEAD in found.files else None,
            )

    def _learned(self) -> dict[str, Learner | Critic]:
        return {
            **self.learners,
            **{f"{name}@critic": critic for name, critic in self.critics.items()},
        }


def _trainer(one: Checkpoint) -> dict[str, Any]:
    """trainer.json; {} where it is none of ours, which `resume` tells."""
    try:
        state = checked_state(json.loads(one.read("trainer.json")))
    except (ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def newest(
    folder: RunFolder | None, config: Config, settings: TrainSettings
) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to go on from, None where the run begins, and notes for the user: what was
    passed over, and what a raised `train.steps` means.

    One whose record has lost lines is passed over for an older one. The last one of a run of
    fewer steps lacks what comes before the next step in a longer run; so that both end alike, an
    older one is taken where there is one after the start. Raises StoreError where lines are lost
    that every checkpoint counts on.
    """
    if folder is None:
        return None, []
    lost: list[str] = []

    def unfit(one: Checkpoint) -> str:
        if said := folder.misfit(_trainer(one).get("mark", {})):
            lost.append(said)
        return said

    found = latest_checkpoint(folder.path / "checkpoints", unfit)
    if found is None and lost:
        raise StoreError(
            f"{lost[-1]}, and no older checkpoint fits; put the lost lines back from a copy, or"
            " start anew with --fresh"
        )
    if found is None or not _trainer(found).get("end") or found.step >= settings.steps:
        return found, list(found.fell_back) if found is not None else []
    notes = [f"train.steps is {settings.steps} now; {found.step} are done"]
    if any(settings_of(settings, name).lr_final != 1 for name in settings.policies):
        notes.append(
            f"the rate goes on along the line of {settings.steps} steps (train.lr_final); the"
            f" {found.step} done followed a steeper one"
        )
        return found, [*found.fell_back, *notes]
    due = bool(config.evaluate.every) and found.step % (config.evaluate.every or 1) == 0
    missing = ["the step that is played ahead (train.overlap)"] * settings.overlap + [
        "its exam (evaluate.every)"
    ] * due
    if not missing:
        return found, [*found.fell_back, *notes]
    older = latest_checkpoint(
        folder.path / "checkpoints",
        lambda one: "" if one.step < found.step and not unfit(one) else "newer",
    )
    if older is None or older.step == 0:
        notes.append(
            f"step {found.step} lacks {' and '.join(missing)}, so what follows differs from a run"
            f" that had {settings.steps} from its start"
        )
        return found, [*found.fell_back, *notes]
    notes.append(
        f"steps {older.step + 1} to {found.step} are done once more, since {found.path.name} lacks"
        f" {' and '.join(missing)}"
    )
    return older, [*found.fell_back, *notes]
