"""One step of training, as the loop of `gem_ma.training.train` passes it on: played, credited,
updated, published, recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.training.loop.lessons import Lesson
from gem_ma.training.loop.metrics import tokens_of
from gem_ma.training.loop.overlap import Ahead
from gem_ma.training.loop.played import Played
from gem_ma.training.loop.timings import Phases


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
    played: Played | None = None
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
        # `get`: a learner of somebody else's engine may count no tokens
        trained = sum(policies[name].get("tokens", 0) for name in self.taught)
        return {**self.phases.row(tokens_of(self.plays.episodes), trained), **self.times}
