"""One step of training, and those who attend a training without being part of its method.

The loop of `gem_ma.training.train` plays, credits, updates, publishes and records. All else that
wants to know of it (a league, a watch for collapse, averages, notes to the user) is an `Attendant`:
it is called as a step goes on, and answers with rows for the record and notes for the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gem_ma.training.loop.lessons import Lesson
from gem_ma.training.loop.metrics import tokens_of
from gem_ma.training.loop.overlap import Played
from gem_ma.training.loop.timings import Phases


@dataclass(slots=True)
class Step:
    """What has become of one step so far. Number 0 is the beginning, before anything is learned.

    `ahead`: what was played for the next step while this one was learned (`train.overlap`).
    `scores`: of the exam at its end, where one is held. `rows` and `notes` wait to be handed to
    the record and to the user; `times` goes to timings.jsonl.
    """

    number: int
    played: Played | None = None
    ahead: Played | None = None
    lessons: Sequence[Lesson] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] | None = None
    last: bool = False  # all is learned; what follows is the exam of the end
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    times: dict[str, Any] = field(default_factory=dict)
    phases: Phases = field(default_factory=Phases)

    @property
    def index(self) -> int:
        """The step as plans and schedules count it, from 0."""
        return self.number - 1

    @property
    def plays(self) -> Played:
        """What was played; there is nothing before the first step."""
        assert self.played is not None
        return self.played

    @property
    def taught(self) -> list[str]:
        """The policies that learned, and were published."""
        return [lesson.policy for lesson in self.lessons if not lesson.stale]

    def timing(self) -> dict[str, Any]:
        """The row of timings.jsonl."""
        policies = self.metrics["policies"]
        trained = sum(policies[name].get("tokens", 0) for name in self.taught)
        return {**self.phases.row(tokens_of(self.plays.episodes), trained), **self.times}


NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class Attendant:
    """Whoever attends a training. Every method may be left as it is; `name` is its key in
    checkpoints, and "" keeps nothing there.

    The order of calls: `played`, `updated`, `examined` in every step, `updated` and `examined` for
    step 0 too; `summary` once, after the exam of the end.
    """

    name = ""
    shape: Any = dict[str, Any]  # of `state`; what a checkpoint holds is checked against it
    optional = False  # checkpoints of older versions may lack it

    def played(self, step: Step) -> None:
        """The plays of the step are there, and its metrics of play."""

    def updated(self, step: Step) -> None:
        """Every policy whose turn it was has learned, and its weights are published."""

    def examined(self, step: Step) -> None:
        """The step is recorded; `step.scores` is its exam, None where none was due."""

    def summary(self) -> Mapping[str, Any]:
        """Keys of summary.json."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """All that a resume needs, as JSON values."""
        return {}

    def files(self) -> Mapping[str, bytes]:
        """The same, as files of the checkpoint. Names are this attendant's alone."""
        return {}

    def load(self, state: Any, files: Mapping[str, bytes] = NO_FILES) -> None:
        """The inverse of `state` and `files`; `files` are all of the checkpoint's that no learner
        owns. `state` is {} in a checkpoint of a version that did not have this attendant."""
