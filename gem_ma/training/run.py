"""What a training run is made of, and how all of it goes into a checkpoint and comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

from typing_extensions import TypedDict

from gem_ma.files import damage
from gem_ma.store import RunFolder
from gem_ma.training.averaging import Averages
from gem_ma.training.checkpoint import Checkpoint, write_checkpoint
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


def checked_state(state: Any) -> Any:
    """The state itself, unchanged. Raises ValueError where it is none: its digest says who wrote it last, not what it is."""
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

    def save(self, folder: RunFolder | None, step: int, first: Mapping[str, Any], ahead: Played | None) -> None:
        """Writes the checkpoint of a step. `first`: what was true before step 1; `ahead`: what was played for the next one."""
        if folder is None:
            return
        kept = {"league": self.league.state(), "guard": self.guard.state(), "averages": self.averages.state(), "taught": self.taught.state()}
        trainer = {"mark": folder.mark(), "estimators": self.states, "first": first, **kept}
        files = {f"{name}.{file}": data for name, part in self._learned().items() for file, data in part.state().items()}
        files |= self.guard.files()
        if ahead is not None:
            folder.keep_images(ahead.episodes)
            files[AHEAD] = ahead.dump()
        write_checkpoint(folder.path / "checkpoints", step, {"trainer.json": json.dumps(trainer).encode(), **files})

    def resume(self, folder: RunFolder | None, found: Checkpoint | None) -> tuple[int, dict[str, Any] | None, Played | None]:
        """Takes folder and parts back to a checkpoint: (steps done, what was true before step 1, what was played ahead).

        (0, None, None) for a new run.
        """
        if found is None:
            if folder is not None:
                folder.rewind({"episodes": 0, "metrics": 0})
            return 0, None, None
        with damage(found.path / "trainer.json", f"remove {found.path} to go on from the checkpoint before it"):
            trainer = checked_state(json.loads(found.read("trainer.json")))
            first = trainer["first"]
            if folder is not None:
                folder.rewind(trainer["mark"])
            self.states.update(trainer["estimators"])
            self.league.load(trainer["league"])
            self.averages.load(trainer.get("averages", {}))
            self.taught.load(trainer.get("taught", {}))
            self.guard.load(trainer["guard"], {file: found.read(file) for file in found.files if _KEPT_WEIGHTS.match(file)})
            for name, part in self._learned().items():
                prefix = f"{name}."
                part.load({file.removeprefix(prefix): found.read(file) for file in found.files if file.startswith(prefix)})
            return found.step, first, Played.load(found.read(AHEAD)) if AHEAD in found.files else None

    def _learned(self) -> dict[str, Learner | Critic]:
        return {**self.learners, **{f"{name}@critic": critic for name, critic in self.critics.items()}}
