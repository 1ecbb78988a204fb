"""The training loop: play, credit, update, publish, record. One loop for one learner or many; it
does not know algorithms by name, nor where a role runs.

Everything of a step is a function of (config, step, weights), so a run that was killed goes on from
its last checkpoint and ends with the same weights, episodes and metrics, bit for bit. Wall times
are in `timings.jsonl`, apart from `metrics.jsonl`, because they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds
from gem_ma.training.loop.attendants import fingerprints
from gem_ma.training.loop.checkpoint import Checkpoint
from gem_ma.training.loop.collector import Collector
from gem_ma.training.loop.exams import exam
from gem_ma.training.loop.measures import measures
from gem_ma.training.loop.roles import Learner, Players, Publisher
from gem_ma.training.loop.saving import TrainingState, export, resume
from gem_ma.training.loop.step import Attendant, Step
from gem_ma.training.loop.updates import Updates
from gem_ma.training.processes.teams import Teams
from gem_ma.training.schedule.alternation import learning
from gem_ma.training.schedule.demonstrations import demonstrations
from gem_ma.training.selfplay.averaging import Averages
from gem_ma.training.selfplay.league import League
from gem_ma.training.tracking import Tracking

OnStep = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a training is made of, once `gem_ma.training.entry` has opened it."""

    config: Config
    settings: TrainSettings
    worlds: Worlds
    policies: Mapping[str, Policy]
    folder: RunFolder | None  # of process 0; None = no record, or another process
    teams: Teams
    players: Players
    collector: Collector
    learners: Mapping[str, Learner]
    publisher: Publisher
    updates: Updates
    league: League
    averages: Averages
    attendants: Sequence[Attendant]  # in the order in which they are called
    state: TrainingState
    checkpoint: Checkpoint | None  # to go on from
    summary: dict[str, Any] | None  # of a run that has ended already
    notes: Sequence[str]  # for the user, before the first step


class Trainer:
    """One training run. `parts` are all that it needs, opened."""

    def __init__(self, parts: Parts, tracking: Tracking, on_step: OnStep | None = None) -> None:
        self.parts = parts
        self.tracking = tracking
        self.on_step = on_step
        self.config = parts.config
        self.settings = parts.settings
        self.worlds = parts.worlds
        # where nothing learns, only the exams are held
        self.total = parts.settings.steps if parts.settings.policies else 0

    async def train(self) -> dict[str, Any]:
        """The whole run, or what is left of it; gives the summary."""
        if self.parts.summary is not None:  # it has ended before
            return self.parts.summary
        step = await self.begin()
        while step.number < self.total:
            step = Step(step.number + 1, step.ahead)
            await self.play(step)
            self.credit(step)
            await self.update(step)
            self.publish(step)
            await self.record(step)
        return await self.finish(step)

    async def begin(self) -> Step:
        """The step to go on from: that of the checkpoint; or number 0, with the clones of
        `train.warm_start` and the first exam."""
        parts = self.parts
        for note in parts.notes:
            self.tracking.note(note)
        step = resume(parts.state, parts.folder, parts.checkpoint)
        # after the record was cut back to the checkpoint: trackers are sent what it holds then
        self.tracking.start(step.number)
        if parts.checkpoint is not None:
            return step
        for name, warm in self.settings.warm_start.items():
            policy = parts.policies[name]
            examples = await demonstrations(parts.worlds, parts.players, policy, warm)
            parts.learners[name].clone(examples, warm)
            parts.publisher.publish(name)  # before the exam, which would ask the weights of before
        self.tell("updated", step)
        await self.examine(step)
        self.tell("examined", step)
        # so that a run that is killed in its first steps neither clones nor examines again
        parts.state.save(parts.folder, step, self.settings)
        return step

    async def play(self, step: Step) -> None:
        """1: the episodes of the step. Seats and opponents are drawn per start; frozen policies
        play along."""
        step.rollouts = await self.parts.collector.collect(step)
        step.phases.lap("play")
        numbers = measures(step.rollouts.plays, self.worlds)
        step.metrics |= {"kind": "train", "step": step.number, **numbers, "policies": {}}
        step.metrics |= step.rollouts.counts
        self.tell("played", step)

    def credit(self, step: Step) -> None:
        """2: what each policy that learns now was paid for, turn by turn."""
        now = learning(self.settings, step.index)
        step.lessons = self.parts.updates.prepare(step.rollouts, now)
        step.phases.lap("credit")

    async def update(self, step: Step) -> None:
        """3: advantages and gradient steps. All learn from the same episodes; under
        `train.overlap` the next steps are played meanwhile."""

        def teach() -> None:
            for lesson in step.lessons:
                numbers = self.parts.updates.teach(lesson, step.phases)
                step.metrics["policies"][lesson.policy] = numbers

        await self.parts.collector.collect_ahead(step, teach)

    def publish(self, step: Step) -> None:
        """4: new weights go to where they are sampled, after a check of log-probabilities."""
        publisher = self.parts.publisher
        for lesson in step.lessons:
            numbers = step.metrics["policies"][lesson.policy]
            if not lesson.stale:  # nothing new; a version would call the same weights by two names
                numbers |= publisher.publish(lesson.policy)
            numbers["version"] = publisher.version(lesson.policy)
        self.tell("updated", step)
        step.phases.lap("publish")

    async def record(self, step: Step) -> None:
        """5: episodes, metrics, an exam where one is due, a checkpoint where one is due."""
        if self.parts.folder is not None:
            self.parts.folder.append(step.rollouts.episodes)
        self.tracking.log(step.metrics, step.number)
        every = self.config.evaluate.every
        # the last exam is held by `finish`, which needs its scores for the summary
        examined = every and step.number % every == 0 and step.number < self.total
        saved = step.number % self.settings.save_every == 0 or step.number == self.total
        # exams ask the same engines, and a checkpoint holds whole steps
        if examined or saved:
            await step.ahead.settled()
        if examined:
            await self.examine(step)
        self.tell("examined", step)
        if saved:
            # before the write: one checkpoint holds the weights of all processes
            self.parts.teams.play.same(lambda: fingerprints(self.parts.policies), "the weights")
            self.parts.state.save(self.parts.folder, step, self.settings)
        step.phases.lap("record")
        self.tracking.time(step.timing(), step.number)  # the times of the record count too
        if self.on_step is not None:
            self.on_step(step.number, step.metrics)

    async def finish(self, step: Step) -> dict[str, Any]:
        """The exam of the end, the summary, and the weights as models in the run folder."""
        parts = self.parts
        step.last = True
        await self.examine(step)
        self.tell("examined", step)
        # raises where a frozen opponent has changed, before a summary says that all went well
        parts.league.close()
        summary: dict[str, Any] = {
            "steps": step.number,
            "learned": list(self.settings.policies),
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

    async def examine(self, step: Step) -> None:
        """Holds an exam and logs it."""
        parts = self.parts
        step.scores = await exam(
            self.worlds, parts.players, parts.policies, parts.learners, parts.averages
        )
        row = {"kind": "evaluation", "step": step.number, **step.scores}
        self.tracking.log(row, step.number)

    def tell(self, event: str, step: Step) -> None:
        """Calls all attendants, and hands on what they say."""
        for attendant in self.parts.attendants:
            getattr(attendant, event)(step)
        for row in step.rows:
            self.tracking.log(row, step.number)
        for note in step.notes:
            self.tracking.note(note)
        step.rows.clear()  # the next event begins with none
        step.notes.clear()
