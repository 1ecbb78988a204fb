"""One step of training, as the loop of `gem_ma.training.train` passes it on: played, credited,
updated, published, recorded."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.config.training import TrainSettings
from gem_ma.credit.table import TurnTable
from gem_ma.training.loop.metrics import tokens_of
from gem_ma.training.loop.rollouts import Ahead, StepRollouts

# Where the seconds of a training step go. Times are not part of the record of a run, since no two
# runs agree on them.

PHASES = ("play", "credit", "update", "publish", "record")


class Phases:
    """A clock of one step: the time since the last lap belongs to the phase that has ended."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()  # the wall clock may be set back while a run goes on

    def lap(self, phase: str) -> None:
        """A phase has ended; a phase may come several times in a step."""
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now

    def row(self, played: float = 0, learned: float = 0) -> dict[str, float]:
        """Seconds by phase and in all, and tokens a second: of `played` sampled tokens while
        playing, of `learned` trained ones in updates."""
        rows: Mapping[str, float] = {
            f"{phase}_s": round(seconds, 6) for phase, seconds in self.seconds.items()
        }
        rates = {
            "play_tokens_per_s": (played, self.seconds["play"]),
            "update_tokens_per_s": (learned, self.seconds["update"]),
        }
        times = {
            name: round(tokens / seconds, 3)
            for name, (tokens, seconds) in rates.items()
            if tokens and seconds > 0  # a coarse clock may see no time pass
        }
        return {
            "at": round(time.time(), 3),  # seconds since the epoch, when the step ended
            "step_s": round(sum(self.seconds.values()), 6),
            **rows,
            **times,
        }


# A lesson: what one policy learns from at one step. Made by `gem_ma.training.loop.updates`; a
# `Step` holds one for each policy whose turn it is.


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy learns from at a step."""

    policy: str
    settings: TrainSettings  # with what `train.per_policy` says of this policy
    gamma: Any  # the discount, or one by agent, that made the returns of `turns`
    turns: TurnTable
    numbers: dict[str, Any]  # logged, whatever the update adds
    step: int  # from 0
    rng: random.Random  # its own: what others draw beside it must not change its minibatches
    lr: float  # of this step, schedule and brake applied
    stale: bool  # all its episodes are too old, so it learns nothing
    warning: str | None  # for the user


@dataclass(slots=True)
class Step:
    """What has become of one step so far. Number 0 is the beginning, before anything is learned.

    `ahead`: what is played for steps to come while this one is learned (`train.overlap`); one
    object for the whole run.
    `scores`: of the exam at its end, where one is held. `rows` and `notes` wait to be handed to
    the record and to the user; `times` goes to timings.jsonl.
    """

    number: int
    ahead: Ahead = field(default_factory=Ahead)
    rollouts: StepRollouts = StepRollouts(-1, ())
    lessons: Sequence[Lesson] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] | None = None
    last: bool = False  # all is learned; what follows is the exam of the end
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    times: dict[str, Any] = field(default_factory=dict)
    phases: Phases = field(default_factory=Phases)  # its clock starts with the step

    @property
    def index(self) -> int:
        """The step as plans and schedules count it, from 0."""
        return self.number - 1

    @property
    def taught(self) -> list[str]:
        """The policies that learned, and were published."""
        return [lesson.policy for lesson in self.lessons if not lesson.stale]

    def timing(self) -> dict[str, Any]:
        """The row of timings.jsonl."""
        policies = self.metrics["policies"]
        # `get`: a learner of somebody else's engine may count no tokens
        trained = sum(policies[name].get("tokens", 0) for name in self.taught)
        return {**self.phases.row(tokens_of(self.rollouts.episodes), trained), **self.times}


# What follows a training without being part of its method.
# The loop of `gem_ma.training.train` plays, credits, updates, publishes and records. Everything
# else (a league, a watch for collapse, averages, notes to the user) is an `Attendant`: it is called
# in every step, and may add rows to the record and notes for the user.


class Attendant:
    """Base of what attends a training; a subclass overrides what it needs. `name` is its key in
    checkpoints; "" keeps nothing there.

    The order of calls: `played`, `updated`, `examined` in every step, `updated` and `examined` for
    step 0 too; `summary` once, after the exam of the end.
    """

    name = ""
    shape: Any = dict[str, Any]  # of `state`; what a checkpoint holds is checked against it
    optional = False  # checkpoints of older versions may lack it

    def played(self, step: Step) -> None:
        """The step is played, and its metrics of play are there."""

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

    def load(self, state: Any) -> None:
        """The inverse of `state`, which is {} in a checkpoint of a version that did not have this
        attendant."""
