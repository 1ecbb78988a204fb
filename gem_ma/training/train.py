"""The training loop: play, credit, update, publish, record. One loop for one learner or many; it
knows no algorithm by name, and nothing of it knows where a role runs.

Everything of a step is a function of (config, step, weights), so a run that was killed goes on from
its last checkpoint and ends with the same weights, episodes and metrics, bit for bit. Wall times
are in `timings.jsonl`, apart from `metrics.jsonl`, because they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_ma.tracking import Tracking
from gem_ma.training.loop.beginning import fingerprints
from gem_ma.training.loop.ends import begin, finish
from gem_ma.training.loop.exams import exam, measures
from gem_ma.training.loop.forking import grow
from gem_ma.training.loop.overlap import Played, beside
from gem_ma.training.loop.parts import Parts
from gem_ma.training.loop.step import Step
from gem_ma.training.schedule.alternation import learning
from gem_ma.training.schedule.plans import training_plans

OnStep = Callable[[int, dict[str, Any]], None]


class Trainer:
    """One training run. `parts` are all that it needs, opened."""

    def __init__(self, parts: Parts, tracking: Tracking, on_step: OnStep | None = None) -> None:
        self.parts, self.tracking, self.on_step = parts, tracking, on_step
        self.config, self.settings, self.scenario = parts.config, parts.settings, parts.scenario
        # where nothing learns, only the exams are held
        self.total = parts.settings.steps if parts.settings.policies else 0

    async def train(self) -> dict[str, Any]:
        """The whole run, or what is left of it; gives the summary."""
        if self.parts.summary is not None:  # it has ended before
            return self.parts.summary
        step = await begin(self)
        while step.number < self.total:
            step = Step(step.number + 1, step.ahead)
            await self.play(step)
            self.credit(step)
            await self.update(step)
            self.publish(step)
            await self.record(step)
        return await finish(self, step)

    async def play(self, step: Step) -> None:
        """1: the episodes of the step. Seats and opponents are drawn per start; frozen policies
        play along."""
        if step.played is None:  # else it was played ahead, beside the update before
            step.played = await self.plays(step.index)
        step.phases.lap("play")
        numbers = measures(step.played.plays, self.scenario)
        step.metrics |= {"kind": "train", "step": step.number, **numbers, "policies": {}}
        if step.played.forks is not None:
            step.metrics["forks"] = step.played.forks
        self.tell("played", step)

    def credit(self, step: Step) -> None:
        """2: what each policy that learns now was paid for, turn by turn."""
        now = learning(self.settings, step.index)
        step.lessons = self.parts.updates.prepare(step.plays, now)
        step.phases.lap("credit")

    async def update(self, step: Step) -> None:
        """3: advantages and gradient steps. All learn from the same episodes; under
        `train.overlap` the next step is played meanwhile."""

        def teach() -> None:
            for lesson in step.lessons:
                numbers = self.parts.updates.teach(lesson, step.phases)
                step.metrics["policies"][lesson.policy] = numbers

        # weights are published after both have ended, so it does not matter which ends first
        if self.settings.overlap and step.number < self.total:
            _, step.ahead = await beside(teach, self.plays(step.index + 1))
        else:
            teach()

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
            self.parts.folder.append(step.plays.episodes)
        self.tracking.log(step.metrics, step.number)
        every = self.config.evaluate.every
        # the last exam is held by `finish`, which needs its scores for the summary
        if every and step.number % every == 0 and step.number < self.total:
            await self.examine(step)
        self.tell("examined", step)
        if step.number % self.settings.save_every == 0 or step.number == self.total:
            # before the write: one checkpoint holds the weights of all processes
            self.parts.teams.play.same(lambda: fingerprints(self.parts.policies), "the weights")
            self.parts.run.save(self.parts.folder, step, self.settings)
        step.phases.lap("record")
        self.tracking.time(step.timing(), step.number)  # the times of the record count too
        if self.on_step is not None:
            self.on_step(step.number, step.metrics)

    async def plays(self, index: int) -> Played:
        """The plays of a step (from 0) and their branches, with what is published now."""
        config, players = self.config, self.parts.players
        opponents = self.parts.league.opponents(index, learning(self.settings, index))
        plans = training_plans(config, self.settings, self.scenario, index, opponents)
        episodes = await players.play(plans, learning=True)
        if self.settings.fork is None:
            return Played(index, tuple(episodes))
        grown = await grow(config, self.settings, index, plans, episodes, players)
        return Played(index, tuple(episodes), grown.episodes, grown.metrics)

    async def examine(self, step: Step) -> None:
        """Holds an exam and logs it."""
        parts = self.parts
        step.scores = await exam(
            self.config,
            self.scenario,
            parts.players,
            parts.policies,
            parts.learners,
            parts.averages,
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
