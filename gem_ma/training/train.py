"""The training loop: play, credit, update, publish, record. One loop for one learner or many; it
does not know algorithms by name, nor where a role runs.

Everything of a step is a function of (config, step, weights), so a run that was killed goes on from
its last checkpoint and ends with the same weights, episodes and metrics, bit for bit. Wall times
are in `timings.jsonl`, apart from `metrics.jsonl`, because they differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import get_protocol_members

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimator
from gem_ma.engines.base import Policy, paces
from gem_ma.engines.capabilities import Divides, Reachable, Trains, Weighs
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.open import Opened
from gem_ma.runs.plans import budget_of
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds
from gem_ma.training.learner.critic import Critic
from gem_ma.training.loop.attendants import (
    Beginning,
    Best,
    Curriculum,
    PaddingShares,
    Taught,
    fingerprints,
    is_averaged,
)
from gem_ma.training.loop.checkpoint import Checkpoint
from gem_ma.training.loop.collector import Collector, cost
from gem_ma.training.loop.exams import exam
from gem_ma.training.loop.local import LocalPlayers, LocalPublisher
from gem_ma.training.loop.measures import measures
from gem_ma.training.loop.remote import RemotePlayers
from gem_ma.training.loop.roles import Follows, Joins, Learner, Players, Publisher, Values
from gem_ma.training.loop.saving import (
    TrainingState,
    averages_of,
    export,
    resume,
    resume_point,
    weights_of,
)
from gem_ma.training.loop.step import Ahead, Attendant, Step
from gem_ma.training.loop.updates import Updates
from gem_ma.training.processes.teams import ALONE, SOLO, Team, Teams
from gem_ma.training.schedule.checks import check_credit, checked
from gem_ma.training.schedule.plans import demonstrations
from gem_ma.training.schedule.settings import learning, settings_of
from gem_ma.training.selfplay.averaging import Averages
from gem_ma.training.selfplay.collapse import Guard
from gem_ma.training.selfplay.league import League
from gem_ma.training.tracking import Tracker, Tracking

OnStep = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a training is made of, as `open_parts` opens it."""

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
        parts = self.parts
        step.scores = await exam(
            self.worlds, parts.players, parts.policies, parts.learners, parts.averages, step.cells
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


# Training as two functions: `train` with what is open already, `run_training` from a config. All
# that a training needs is opened here: learners, critics, roles, attendants.


async def train(
    config: Config,
    scenario: Scenario | Worlds,
    policies: Mapping[str, Policy],
    folder: RunFolder | None,
    *,
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
    watchers: Mapping[str, Tracker] | None = None,
    teams: Teams = ALONE,
) -> dict[str, Any]:
    """Trains `config.train.policies` and gives the summary, which is also summary.json: scores
    before and after, sampled and greedy. `scenario` is that of the config, or all of its worlds.

    Where the folder holds a checkpoint, goes on from it. `on_step(step, metrics)` is called after
    every step, `on_note(line)` for each line that the user should read. `watchers` get every row of
    numbers, beside the trackers that `train.log` names; their faults cost the run nothing. Of
    several processes (`teams`) all call this with the same config, and the first alone has a
    folder. Raises ConfigError for a policy that cannot learn, EngineError where all episodes of a
    step failed or a publication does not pass its parity check.
    """
    # before any tracker is opened: a config that is refused leaves no run at wandb
    worlds = Worlds.of(config, scenario)
    log = checked(config, policies, worlds).log
    facts = config.model_dump(mode="json")
    # outermost: whatever ends the training, trackers are closed and their files whole
    with Tracking(folder, log, watchers=watchers, settings=facts, on_note=on_note) as tracking:
        parts = open_parts(config, worlds, policies, folder, teams)
        async with parts.state.ahead:
            return await Trainer(parts, tracking, on_step).train()


def run_training(
    config: Config,
    folder: RunFolder | None = None,
    *,
    base: Path | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Opens the scenario and the policies of a config (paths from `base`) and trains; see
    `train`. `folder` None keeps no record."""
    opened = Opened.of(config, base)
    return asyncio.run(train(config, opened.worlds, opened.policies, folder, on_step=on_step))


def open_parts(
    config: Config,
    worlds: Worlds,
    policies: Mapping[str, Policy],
    folder: RunFolder | None,
    teams: Teams,
) -> Parts:
    """Raises ConfigError where the config and what it names do not fit."""
    settings = checked(config, policies, worlds)
    check_credit(worlds, settings)
    # before weights are copied, which takes minutes for a large model
    check_processes(config, teams.play.size, policies)
    teams.play.led = bool(served(settings, policies))  # one process knows what was published
    learners = open_learners(settings, policies, teams.learn)
    critics = _critics(settings, learners)
    point = resume_point(config, settings, folder, teams.play)
    writes = teams.play.first or point.root is None  # without a folder each has a pool of its own
    league = League(config, settings, policies, point.root, worlds=worlds, writes=writes)
    averages = Averages(worlds, learners)
    # of the estimators; `Updates` and `TrainingState` share these dicts, so a resume fills both
    states: dict[str, dict[str, float]] = {name: {} for name in settings.policies}
    # `Beginning` first: its exam is that of before. Saving and resuming go through this list.
    attendants: list[Attendant] = [
        Beginning(policies, settings.policies),
        Taught(config, settings.policies, without_critic=_blind(settings, critics)),
        averages,
        Guard(settings, worlds, learners, policies),
        league,
        PaddingShares(learners),
    ]
    chosen = settings.curriculum
    curriculum = Curriculum(chosen, config, worlds) if chosen is not None else None
    attendants += [curriculum] if curriculum is not None else []
    if (measure := settings.checkpoints.best) is not None:
        taught = {name: learners[name] for name in settings.policies}
        attendants.append(Best(measure, _examined(measure, policies, taught, averages), folder))
    players = _players(config, worlds, policies, league, teams)
    ahead = Ahead.of(config)
    state = TrainingState(learners, critics, states, attendants, ahead, point.root, teams.play)
    return Parts(
        config=config,
        settings=settings,
        worlds=worlds,
        policies=policies,
        folder=folder,
        teams=teams,
        players=players,
        collector=Collector(config, settings, worlds, players, league, curriculum),
        learners=learners,
        publisher=LocalPublisher(learners),
        updates=Updates(config, settings, worlds, learners, critics, states),
        league=league,
        averages=averages,
        attendants=attendants,
        state=state,
        checkpoint=point.checkpoint,
        summary=point.summary,
        notes=[*point.notes, *paces(policies), *_notes(settings, teams.play.size)],
    )


def _examined(
    measure: str,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Learner],
    averages: Averages,
) -> Callable[[], dict[str, Weighs]]:
    """What a score of exams is of: the last weights, or the averaged policies."""

    def models() -> dict[str, Weighs]:
        means = averages_of(learners, averages) if is_averaged(measure) else {}
        return weights_of(policies, learners) | means

    return models


def _critics(settings: TrainSettings, learners: Mapping[str, Learner]) -> dict[str, Critic]:
    # not of all that could have one: a critic is a second model in memory
    return {
        name: open_critic(learners[name])
        for name in settings.policies
        if estimator(settings_of(settings, name).estimator.name).critic
    }


def _blind(settings: TrainSettings, critics: Mapping[str, Critic]) -> list[str]:
    """The policies that learn from cut episodes as if nothing had followed."""
    bare = [name for name in settings.policies if name not in critics]
    return [name for name in bare if settings_of(settings, name).credit.truncated == "zero"]


def _players(
    config: Config,
    worlds: Worlds,
    policies: Mapping[str, Policy],
    league: League,
    teams: Teams,
) -> Players:
    learned = config.train.policies if config.train is not None else []
    if teams.pool is None:
        return LocalPlayers(config, policies, learned, members=league.opened, team=teams.play)
    return RemotePlayers(config, worlds, policies, learned, teams.pool)


def _notes(settings: TrainSettings, processes: int) -> list[str]:
    forks = cost(settings)
    notes = [forks] if forks is not None else []
    return [*notes, f"{processes} processes train as one"] if processes > 1 else notes


def open_learner(
    policy: Policy, *, apart: bool = False, shard: bool = False, team: Team = SOLO
) -> Learner:
    """The learner that the policy's engine gives; `apart`: with weights of its own, so that the
    engine may be sampled from while it learns; `shard`: with a part of them in each process.

    Raises ConfigError where it gives none, or one that lacks a method.
    """
    engine = policy.core
    if not isinstance(engine, Trains):
        raise ConfigError(
            f"policy {policy.name!r} cannot learn: its engine {type(engine).__name__} is not"
            " trainable"
        )
    if shard and team.size > 1 and isinstance(engine, Divides):
        learner = engine.divided(policy.sampling, team)
    else:
        learner = engine.learner(policy.sampling, apart=apart)
    # refused now, by name: otherwise a method would be missing in the middle of the first step
    if not isinstance(learner, Learner):
        lacks = [name for name in get_protocol_members(Learner) if not hasattr(learner, name)]
        raise ConfigError(
            f"policy {policy.name!r} cannot learn: {type(learner).__name__}, the learner of its"
            f" engine, has no {', '.join(sorted(lacks))}"
        )
    # one that cannot share its passes does the whole update in every process, with the same result
    if isinstance(learner, Joins):
        learner.join(team)
    return learner


def open_learners(
    settings: TrainSettings, policies: Mapping[str, Policy], team: Team
) -> dict[str, Learner]:
    """Learners of the policies that learn, each with its teacher where it has one, and of those
    that are cloned and then stay."""
    learners = {
        name: open_learner(
            policies[name], apart=bool(settings.overlap), shard=settings.shard, team=team
        )
        for name in dict.fromkeys((*settings.policies, *settings.warm_start))
    }
    for name in settings.policies:
        teacher = settings_of(settings, name).loss.reference
        if teacher is None:
            continue
        learner = learners[name]
        if not isinstance(learner, Follows):
            raise ConfigError(
                f"train.loss.reference: {type(learner).__name__}, the learner of {name!r}, takes no"
                " teacher; remove it, or learn a local model"
            )
        learner.follow(policies[teacher])
    return learners


def open_critic(learner: Learner) -> Critic:
    if not isinstance(learner, Values):
        raise ConfigError(
            f"policy {learner.policy!r}: {type(learner).__name__} has no critic, which its"
            " estimator needs; take another one, such as rebn"
        )
    return learner.critic()


def served(settings: TrainSettings, policies: Mapping[str, Policy]) -> list[str]:
    return [name for name in settings.policies if isinstance(policies[name].core, Reachable)]


def check_processes(config: Config, processes: int, policies: Mapping[str, Policy]) -> None:
    """Raises ConfigError for what several processes cannot share."""
    if processes == 1:
        return
    if budget_of(config) is not None:
        raise ConfigError(
            f"limits: each of {processes} processes would spend the whole budget; train with one"
            " process, or remove limits"
        )
    if config.train is not None and config.train.admission == "continuous":
        raise ConfigError(
            "train.admission: several processes exchange the plays of a step in one order, so none"
            " is played beside a publish; train with one process, or remove it"
        )
    if config.train is None or config.train.shard:
        return
    for name in served(config.train, policies):
        # all would publish to one server, each over what the others did
        raise ConfigError(
            f"policies.{name}: only one process can publish to its server; train with one"
            " process, with train.shard: true, or sample it in this process"
        )
