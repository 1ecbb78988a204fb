"""Opens the learner and the critic of a policy, and says what several processes cannot share."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import get_protocol_members

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Divides, Reachable, Trains
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.plans import budget_of
from gem_ma.training.learner.capabilities import Follows, Joins, Values
from gem_ma.training.learner.critic import Critic
from gem_ma.training.loop.roles import Learner
from gem_ma.training.processes.teams import SOLO, Team
from gem_ma.training.schedule.alternation import settings_of


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
