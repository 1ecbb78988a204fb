"""Training as two functions: `train` with what is open already, `run_training` from a config. Here
all that a training needs is opened: learners, critics, roles, attendants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import get_protocol_members

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimator
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Divides, Reachable, Trains
from gem_ma.engines.opening import paces
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.open import Opened
from gem_ma.runs.plans import budget_of
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds
from gem_ma.training.learner.capabilities import Follows, Joins, Values
from gem_ma.training.learner.critic import Critic
from gem_ma.training.loop.attendants import (
    Beginning,
    Best,
    Curriculum,
    PaddingShares,
    StalenessNotes,
)
from gem_ma.training.loop.collector import Collector
from gem_ma.training.loop.forking import cost
from gem_ma.training.loop.local import LocalPlayers, LocalPublisher, Members
from gem_ma.training.loop.remote import RemotePlayers
from gem_ma.training.loop.roles import Learner, Players
from gem_ma.training.loop.rollouts import Ahead
from gem_ma.training.loop.saving import TrainingState, resume_point
from gem_ma.training.loop.step import Attendant
from gem_ma.training.loop.taught import Taught
from gem_ma.training.loop.updates import Updates
from gem_ma.training.processes.teams import ALONE, SOLO, Team, Teams
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.schedule.checks import check_discounts, checked
from gem_ma.training.selfplay.averaging import Averages
from gem_ma.training.selfplay.collapse import Guard
from gem_ma.training.selfplay.league import League
from gem_ma.training.tracking import Tracker, Tracking
from gem_ma.training.train import OnStep, Parts, Trainer


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
    """Opens all parts. Raises ConfigError where the config and what it names do not fit."""
    settings = checked(config, policies, worlds)
    check_discounts(worlds, settings)
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
        StalenessNotes(),
        averages,
        Guard(settings, worlds, learners, policies),
        league,
        PaddingShares(learners),
    ]
    chosen = settings.curriculum
    curriculum = Curriculum(chosen, config, worlds) if chosen is not None else None
    attendants += [curriculum] if curriculum is not None else []
    if settings.checkpoints.best is not None:
        learned = {name: policies[name] for name in settings.policies}
        attendants.append(Best(settings.checkpoints.best, learned, folder))
    players = _players(config, worlds, policies, league.opened, teams)
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
        state=TrainingState(
            learners, critics, states, attendants, Ahead.of(config), point.root, teams.play
        ),
        checkpoint=point.checkpoint,
        summary=point.summary,
        notes=[*point.notes, *paces(policies), *_notes(settings, teams.play)],
    )


def _players(
    config: Config,
    worlds: Worlds,
    policies: Mapping[str, Policy],
    members: Members,
    teams: Teams,
) -> Players:
    """The players of a training: workers where there are some, else this process and its team."""
    learned = config.train.policies if config.train is not None else []
    if teams.pool is not None:
        return RemotePlayers(config, worlds, policies, learned, teams.pool)
    return LocalPlayers(config, policies, learned, members=members, team=teams.play)


def _critics(settings: TrainSettings, learners: Mapping[str, Learner]) -> dict[str, Critic]:
    """Critics of the policies whose estimator reads values."""
    # not of all that could have one: a critic is a second model in memory
    return {
        name: open_critic(learners[name])
        for name in settings.policies
        if estimator(settings_of(settings, name).estimator.name).critic
    }


def _notes(settings: TrainSettings, team: Team) -> list[str]:
    """Lines for the user before the first step."""
    forks = cost(settings)
    notes = [forks] if forks is not None else []
    return [*notes, f"{team.size} processes train as one"] if team.size > 1 else notes


def _blind(settings: TrainSettings, critics: Mapping[str, Critic]) -> list[str]:
    """The policies that learn from cut episodes as if nothing had followed."""
    return [
        name
        for name in settings.policies
        if name not in critics and settings_of(settings, name).credit.truncated == "zero"
    ]


# Opens the learner and the critic of a policy, and says what several processes cannot share.


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
    """The critic of a learner. Raises ConfigError where it has none."""
    if not isinstance(learner, Values):
        raise ConfigError(
            f"policy {learner.policy!r}: {type(learner).__name__} has no critic, which its"
            " estimator needs; take another one, such as rebn"
        )
    return learner.critic()


def served(settings: TrainSettings, policies: Mapping[str, Policy]) -> list[str]:
    """The policies that learn and are sampled at a server."""
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
