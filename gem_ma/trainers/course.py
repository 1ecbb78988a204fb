"""A config as the trainer of another library reads it: where plays start, the plays, and what one
policy learns from them.

The seats, tasks, credit and estimator are those of the config. Loss, optimiser and number of steps
are the other trainer's, so those keys of `train:` are not read. Everybody else plays along as in
any run: frozen, scripted, or behind an API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

from gem_ma import credit
from gem_ma.api import Source, load_config
from gem_ma.config.loading import Loaded, Overrides
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimate
from gem_ma.credit.estimators.registry import estimator
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.runs.open import open_config
from gem_ma.runs.playing import wait
from gem_ma.runs.worlds import Worlds
from gem_ma.trainers.samples import Sample, samples
from gem_ma.training.learner.pairs import PAIRED
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.schedule.discounts import discounts
from gem_ma.training.schedule.plans import training_plans


class Start(NamedTuple):
    """Where a play starts, and whose row of it is learned from. Its text is a prompt of another
    trainer: `train/3 4611686018427387904 player`."""

    task: str
    seed: int
    agent: str

    def __str__(self) -> str:
        return f"{self.task} {self.seed} {self.agent}"

    @classmethod
    def of(cls, text: str) -> Start:
        """The start that a prompt names. Raises DataError."""
        try:
            # from the right: a task may hold a space
            task, seed, agent = text.rsplit(" ", 2)
            return cls(task, int(seed), agent)
        except (ValueError, AttributeError):  # of a chat, where a text is meant
            raise DataError(
                f"a prompt names a task, a seed and an agent, as in 'train/3 7 player'; got"
                f" {text!r}: take the prompts of `starts`"
            ) from None

    def check(self, agents: Sequence[str]) -> None:
        """Raises DataError where the agent is none of these: its row would teach nothing."""
        if self.agent not in agents:
            raise DataError(
                f"prompt {str(self)!r}: {self.agent} does not learn; {', '.join(agents)} may"
                " stand there, so take the prompts of this config"
            )


class Course:
    """What one policy of a config learns from.

    `policy` is by default the only one of `train.policies`; others that stand there play with the
    weights that they have. Raises ConfigError where the config trains nobody, where several could
    be meant, and for what no other trainer does: forks, leagues, warm starts, critics, shaping.
    """

    def __init__(
        self, source: Source, overrides: Overrides = (), *, policy: str | None = None
    ) -> None:
        loaded = load_config(source, overrides)
        loaded.config.only  # noqa: B018 (refuses several: a start would not say which it is of)
        opened = open_config(loaded)
        self.worlds = opened.worlds
        self.config = self.worlds.played[0].config
        self.settings = trained_by(loaded)
        self.policy = chosen(self.settings, policy)
        self.settings = settings_of(self.settings, self.policy)
        check_training(self.settings)
        self.agents = tuple(
            agent for agent, seat in self.config.agents.items() if seat.policy == self.policy
        )
        if not self.agents:
            raise ConfigError(f"agents: no seat is taken by policy {self.policy!r}")
        self.policies: dict[str, Policy] = opened.of_policies(self.config)
        self.players = LocalPlayers(self.config, self.policies, [self.policy])
        self.state: dict[str, float] = {}  # of an estimator that keeps a baseline
        self.named: Counter[Start] = Counter()  # how often each start has been played
        self.steps = 0

    def starts(self, count: int) -> list[Start]:
        """The first so many starts of the training, tasks of the split in turn; those of agents
        that learn in one play stand side by side."""
        return starts_of(self.worlds, self.settings, self.agents, count)

    def aside(self) -> Course:
        """The same course for plays that nothing is learned from: what they name and count stays
        theirs, so that a training with evaluations is the training without them."""
        other = copy(self)
        other.named = Counter()
        other.state = dict(self.state)
        return other

    def progress(self) -> dict[str, Any]:
        """What later plays and advantages depend on, as JSON has it; `restore` goes on from it."""
        named = {str(start): count for start, count in self.named.items()}
        return {"named": named, "state": dict(self.state), "steps": self.steps}

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Goes on where `progress` was taken."""
        self.named = Counter({Start.of(name): n for name, n in progress["named"].items()})
        self.state = dict(progress["state"])
        self.steps = progress["steps"]

    def play(self, starts: Sequence[Start]) -> tuple[list[Episode], list[tuple[str, int, int]]]:
        """The plays from these starts, and for each start the id of its play.

        The n-th time that a start is named is a play of its own, in one group with the others.
        Starts that differ only in the agent share theirs. Raises DataError for an agent that does
        not learn, EngineError where every play failed; a part of them that failed is there with
        its error.
        """
        for start in starts:
            start.check(self.agents)
        template = training_plans(self.worlds, self.settings, 0)[0]
        ids: list[tuple[str, int, int]] = []
        plans: dict[tuple[str, int, int], Plan] = {}
        for start in starts:
            # over all calls: what is sampled follows from the plan, and an id is never given twice
            repeat = self.named[start]
            self.named[start] += 1
            group = f"{start.task}/{start.seed}"
            plan = replace(template, task=start.task, seed=start.seed, repeat=repeat, group=group)
            plans.setdefault(plan.id, plan)
            ids.append(plan.id)
        episodes: list[Episode] = wait(self.players.play([*plans.values()], learning=True))
        self.steps += 1
        return episodes, ids

    def learn(self, episodes: Sequence[Episode]) -> list[Sample]:
        """The samples of the policy: credit and estimator as the config has them."""
        how = self.settings.credit
        gamma = discounts(self.settings.credit.gamma, self.steps - 1)
        table = credit.turns(
            episodes,
            self.policy,
            rule=how.rule,
            gamma=gamma,
            team=how.team,
            truncated=how.truncated,
        )
        named = self.settings.estimator
        advantages, self.state = estimate(
            named.name, table, named.key, self.state, gamma=gamma, cut=how.cut, **named.options
        )
        engine = self.policies[self.policy].core
        bound = None
        if isinstance(engine, Transformers) and engine.binding.constrain:
            bound = engine.binding.allowed
        return samples(table, advantages, self.policy, bound)


def starts_of(
    worlds: Worlds, settings: TrainSettings, agents: Sequence[str], count: int
) -> list[Start]:
    """The first so many starts of a training, each once for every one of these agents."""
    once = settings.model_copy(update={"group_size": 1, "seats": "fixed"})
    starts: list[Start] = []
    step = 0
    while len(starts) < count:
        for plan in training_plans(worlds, once, step):
            starts += [Start(plan.task, plan.seed, agent) for agent in agents]
        step += 1
    return starts[:count]


def trained_by(loaded: Loaded) -> TrainSettings:
    """The section `train:`. Raises ConfigError."""
    if loaded.config.train is None:
        raise ConfigError(f"{loaded.stem}: has no section train:, so there is nothing to learn")
    return loaded.config.train


def chosen(settings: TrainSettings, policy: str | None) -> str:
    """The policy that learns. Raises ConfigError."""
    known = ", ".join(settings.policies)
    if policy is None and len(settings.policies) != 1:
        raise ConfigError(
            f"train.policies: {known or 'nobody'}; this trainer teaches one policy: say which, by"
            " policy=NAME"
        )
    if policy is not None and policy not in settings.policies:
        raise ConfigError(f"train.policies: {policy!r} does not learn; there are {known}")
    return settings.policies[0] if policy is None else policy


def check_training(settings: TrainSettings) -> None:
    """Raises ConfigError for what the config wants of a training and no other trainer does."""
    wanted = {
        "opponents": settings.opponents is not None,
        "fork": settings.fork is not None,
        "refill": bool(settings.refill),
        "curriculum": settings.curriculum is not None,
        "loss.reference": settings.loss.reference is not None,
        # rewards are ours, the loss is theirs: what is charged to a reward in ours would be lost
        "loss.kl_in": settings.loss.kl_in != "loss",
        f"loss.surrogate: {settings.loss.surrogate} (pairs)": settings.loss.surrogate in PAIRED,
        "max_policy_lag": settings.max_policy_lag is not None,
        "warm_start": bool(settings.warm_start),
        "alternate": bool(settings.alternate),
        "seats": settings.seats != "fixed",
        "overlap": settings.overlap,
        "estimator.shaping": settings.estimator.shaping is not None,
        f"estimator.name: {settings.estimator.name} (a critic)": estimator(
            settings.estimator.name
        ).critic,
    }
    if refused := [name for name, there in wanted.items() if there]:
        raise ConfigError(
            f"train.{refused[0]}: another library's trainer would not do it, and nothing would say"
            " so; take it out of the config, or train with gem-ma train"
        )
