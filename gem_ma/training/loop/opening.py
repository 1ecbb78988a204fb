"""Opens all that a training needs: learners, critics, roles, attendants, and the checkpoint to go
on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.config.plans import budget_of
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Table
from gem_ma.errors import ConfigError, StoreError
from gem_ma.estimators import estimator
from gem_ma.scenario import Scenario
from gem_ma.store import RunFolder, read_summary
from gem_ma.store.summaries import check_training
from gem_ma.training.learner.critic import Critic, TableCritic
from gem_ma.training.learner.table_learner import TableLearner
from gem_ma.training.learner.torch_critic import TorchCritic
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.training.loop.beginning import Beginning
from gem_ma.training.loop.checkpoint import Checkpoint, read_checkpoint
from gem_ma.training.loop.forking import cost
from gem_ma.training.loop.notes import PaddingShares, StalenessNotes
from gem_ma.training.loop.roles import Learner, LocalPlayers, LocalPublisher, Players, Publisher
from gem_ma.training.loop.saving import Run, newest
from gem_ma.training.loop.step import Attendant
from gem_ma.training.loop.taught import Taught
from gem_ma.training.loop.updates import Updates
from gem_ma.training.processes.teams import SOLO, Team, Teams
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.schedule.checks import checked
from gem_ma.training.schedule.discounts import check_discounts
from gem_ma.training.selfplay.averaging import Averages
from gem_ma.training.selfplay.guard import Guard
from gem_ma.training.selfplay.league import League

SUMMARY = ("steps", "learned", "before", "after", "changed", "unchanged", "weights")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a training is made of. `summary`: of a run that has ended already; `notes`: what the
    user should read before it begins."""

    config: Config
    settings: TrainSettings
    scenario: Scenario
    policies: Mapping[str, Policy]
    folder: RunFolder | None
    teams: Teams
    players: Players
    learners: Mapping[str, Learner]
    publisher: Publisher
    updates: Updates
    league: League
    averages: Averages
    attendants: Sequence[Attendant]
    run: Run
    checkpoint: Checkpoint | None
    summary: dict[str, Any] | None
    notes: Sequence[str]


def open_parts(
    config: Config,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    folder: RunFolder | None,
    teams: Teams,
) -> Parts:
    """Opens all parts. Raises ConfigError where the config and what it names do not fit."""
    settings = checked(config, policies)
    check_discounts(config, settings, scenario)
    check_processes(config, teams.play.size, policies)
    names = dict.fromkeys((*settings.policies, *settings.warm_start))
    learners = {
        name: open_learner(policies[name], apart=settings.overlap, team=teams.learn)
        for name in names
    }
    critics = {
        name: open_critic(policies[name])
        for name in settings.policies
        if estimator(settings_of(settings, name).estimator.name).critic
    }
    place = _place(config, settings, folder, teams.play)
    writes = teams.play.first or place.root is None
    league = League(config, settings, policies, place.root, writes=writes)
    guard = Guard(config, settings, scenario, learners, league)
    averages = Averages(config, scenario, learners)
    states: dict[str, dict[str, float]] = {name: {} for name in settings.policies}
    # the guard before the league: after a rollback the pool gets the weights that came back
    attendants: list[Attendant] = [
        Beginning(policies, settings.policies),
        Taught(config, settings.policies, without_critic=_blind(settings, critics)),
        StalenessNotes(),
        averages,
        guard,
        league,
        PaddingShares(learners),
    ]
    return Parts(
        config=config,
        settings=settings,
        scenario=scenario,
        policies=policies,
        folder=folder,
        teams=teams,
        players=LocalPlayers(
            config, policies, settings.policies, members=league.opened, team=teams.play
        ),
        learners=learners,
        publisher=LocalPublisher(learners),
        updates=Updates(config, settings, scenario, learners, critics, states, guard),
        league=league,
        averages=averages,
        attendants=attendants,
        run=Run(learners, critics, states, attendants),
        checkpoint=place.checkpoint,
        summary=place.summary,
        notes=[*place.notes, *_notes(settings, teams.play)],
    )


def open_learner(policy: Policy, *, apart: bool = False, team: Team = SOLO) -> Learner:
    """The learner that fits the policy's engine; `apart`: with weights of its own, so that the
    engine may be sampled from while it learns.

    Raises ConfigError where it has none.
    """
    engine = policy.core
    if not getattr(engine, "trainable", False):
        raise ConfigError(
            f"policy {policy.name!r} cannot learn: its engine {type(engine).__name__} is not"
            " trainable"
        )
    if isinstance(engine, Table):
        return TableLearner(engine, policy.sampling)
    if hasattr(engine, "trained"):  # it samples elsewhere
        learner = TorchLearner(engine.trained(), policy.sampling, sampler=engine)
        engine.begin(learner.parameters)
        learner.check()  # what is served is what will be trained
    elif apart:
        learner = TorchLearner(engine.twin(), policy.sampling, sampler=engine)
    else:
        learner = TorchLearner(engine, policy.sampling)
    learner.scorer.team = team
    return learner


def open_critic(policy: Policy) -> Critic:
    """The critic that fits the policy's engine."""
    engine = policy.core
    if isinstance(engine, Table):
        return TableCritic()
    return TorchCritic(engine.trained() if hasattr(engine, "trained") else engine)


def check_processes(config: Config, processes: int, policies: Mapping[str, Policy]) -> None:
    """Raises ConfigError for what several processes cannot share."""
    if processes == 1:
        return
    if budget_of(config) is not None:
        raise ConfigError(
            f"limits: each of {processes} processes would spend them on its own; train with one"
            " process, or take limits away"
        )
    for name in config.train.policies if config.train is not None else []:
        if hasattr(policies[name].core, "trained"):
            raise ConfigError(
                f"policies.{name}: only one process can publish to where it is sampled; train with"
                " one process, or sample it in process"
            )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run stands: its folder, the checkpoint to go on from, its summary if it has ended."""

    root: Path | None
    checkpoint: Checkpoint | None
    summary: dict[str, Any] | None
    notes: Sequence[str]


def _place(config: Config, settings: TrainSettings, folder: RunFolder | None, team: Team) -> _Place:
    """Process 0 alone has the folder; the others hear from it where they are."""
    checkpoint, notes = newest(folder, config, settings)
    total = settings.steps if settings.policies else 0
    ended = folder is not None and checkpoint is not None and checkpoint.step == total
    summary = _summary(folder) if folder is not None and ended else None
    shared = team.agree(
        {
            "root": str(folder.path.absolute()) if folder is not None else None,
            "checkpoint": str(checkpoint.path.absolute()) if checkpoint is not None else None,
            "ended": summary is not None,
        }
    )
    if not team.first and shared["checkpoint"] is not None:
        checkpoint = read_checkpoint(Path(shared["checkpoint"]))
    root = Path(shared["root"]) if shared["root"] is not None else None
    return _Place(root, checkpoint, (summary or {}) if shared["ended"] else None, notes)


def _summary(folder: RunFolder) -> dict[str, Any] | None:
    """What a training that has ended wrote; None where that is missing or damaged, so that it is
    made again."""
    try:
        summary = read_summary(folder.path, SUMMARY)
        if summary is None:
            return None
        return check_training(summary, folder.path / "summary.json")
    except StoreError:
        return None


def _notes(settings: TrainSettings, team: Team) -> list[str]:
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
