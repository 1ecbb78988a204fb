"""Opens all that a training needs: learners, critics, roles, attendants, and the checkpoint to go
on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import get_protocol_members

from gem_ma.config.plans import budget_of
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Reachable, Trains
from gem_ma.errors import ConfigError, StoreError
from gem_ma.estimators import estimator
from gem_ma.scenario import Scenario
from gem_ma.store import RunFolder, read_summary
from gem_ma.store.summaries import check_training
from gem_ma.training.learner.capabilities import Joins, Values
from gem_ma.training.learner.critic import Critic
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
        name: open_critic(learners[name])
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
    """The learner that the policy's engine gives; `apart`: with weights of its own, so that the
    engine may be sampled from while it learns.

    Raises ConfigError where it gives none, or one that lacks a method.
    """
    engine = policy.core
    if not isinstance(engine, Trains):
        raise ConfigError(
            f"policy {policy.name!r} cannot learn: its engine {type(engine).__name__} is not"
            " trainable"
        )
    learner = engine.learner(policy.sampling, apart=apart)
    if not isinstance(learner, Learner):
        lacks = [name for name in get_protocol_members(Learner) if not hasattr(learner, name)]
        raise ConfigError(
            f"policy {policy.name!r} cannot learn: {type(learner).__name__}, the learner of its"
            f" engine, has no {', '.join(sorted(lacks))}"
        )
    if isinstance(learner, Joins):
        learner.join(team)
    return learner


def open_critic(learner: Learner) -> Critic:
    """The critic of a learner. Raises ConfigError where it has none."""
    if not isinstance(learner, Values):
        raise ConfigError(
            f"policy {learner.policy!r}: {type(learner).__name__} has no critic, which its"
            " estimator needs; take another estimator, as rebn"
        )
    return learner.critic()


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
        if isinstance(policies[name].core, Reachable):
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
