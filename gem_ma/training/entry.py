"""Training as two functions: `train` with what is open already, `run_training` from a config. Here
all that a training needs is opened: learners, critics, roles, attendants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimator
from gem_ma.engines.base import Policy
from gem_ma.engines.opening import paces
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.plans import open_policies
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds, worlds_of
from gem_ma.training.learner.critic import Critic
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.beginning import Beginning
from gem_ma.training.loop.best import Best
from gem_ma.training.loop.curriculum import Curriculum
from gem_ma.training.loop.forking import cost
from gem_ma.training.loop.local import LocalPublisher
from gem_ma.training.loop.notes import PaddingShares, StalenessNotes
from gem_ma.training.loop.opening import check_processes, open_critic, open_learners, served
from gem_ma.training.loop.overlap import Ahead
from gem_ma.training.loop.parts import Parts
from gem_ma.training.loop.remote import players_of
from gem_ma.training.loop.resuming import place_of
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.saving import Run
from gem_ma.training.loop.taught import Taught
from gem_ma.training.loop.updates import Updates
from gem_ma.training.processes.teams import ALONE, Team, Teams
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.schedule.checks import check_discounts, checked
from gem_ma.training.selfplay.averaging import Averages
from gem_ma.training.selfplay.guard import Guard
from gem_ma.training.selfplay.league import League
from gem_ma.training.tracking import Tracker, Tracking
from gem_ma.training.train import OnStep, Trainer


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
        async with parts.run.ahead:
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
    policies = open_policies(config, base=base)
    worlds = worlds_of(config, base=base)
    return asyncio.run(train(config, worlds, policies, folder, on_step=on_step))


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
    place = place_of(config, settings, folder, teams.play)
    writes = teams.play.first or place.root is None  # without a folder each has a pool of its own
    league = League(config, settings, policies, place.root, worlds=worlds, writes=writes)
    averages = Averages(worlds, learners)
    # of the estimators; `Updates` and `Run` share these very dicts, so a resume fills both
    states: dict[str, dict[str, float]] = {name: {} for name in settings.policies}
    # `Beginning` first: its exam is that of before. `Run.save` and `resume` go through this list.
    attendants: list[Attendant] = [
        Beginning(policies, settings.policies),
        Taught(config, settings.policies, without_critic=_blind(settings, critics)),
        StalenessNotes(),
        averages,
        Guard(settings, worlds, learners, policies),
        league,
        PaddingShares(learners),
    ]
    how = settings.curriculum
    curriculum = Curriculum(how, config, worlds) if how is not None else None
    attendants += [curriculum] if curriculum is not None else []
    if settings.checkpoints.best is not None:
        learned = {name: policies[name] for name in settings.policies}
        attendants.append(Best(settings.checkpoints.best, learned, folder))
    return Parts(
        config=config,
        settings=settings,
        worlds=worlds,
        policies=policies,
        folder=folder,
        teams=teams,
        players=players_of(config, worlds, policies, league.opened, teams),
        learners=learners,
        publisher=LocalPublisher(learners),
        updates=Updates(config, settings, worlds, learners, critics, states),
        league=league,
        averages=averages,
        curriculum=curriculum,
        attendants=attendants,
        run=Run(learners, critics, states, attendants, Ahead.of(config), place.root, teams.play),
        checkpoint=place.checkpoint,
        summary=place.summary,
        notes=[*place.notes, *paces(policies), *_notes(settings, teams.play)],
    )


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
