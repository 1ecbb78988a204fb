"""One step's learning: recorded episodes -> credit -> advantages -> an update of each policy. Does
not know algorithms by name, and plays nothing.

In two halves. `prepare` reads the record (it may ask a tokenizer, which a thread must not share
with playing); `teach` computes, in whatever thread.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma import credit
from gem_ma.config.learning import LossSettings
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit import Gamma, discount_of
from gem_ma.credit.estimators import estimate, key_among_worlds, mean_return, raw_gae, shaped
from gem_ma.credit.estimators.groups import episodes as rows_by_episode
from gem_ma.credit.table import TurnTable
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario, replay
from gem_ma.registry import task_of
from gem_ma.runs.worlds import Worlds
from gem_ma.training.learner.critic import Critic, valued
from gem_ma.training.learner.losses import PAIRED
from gem_ma.training.learner.parity import check_fresh
from gem_ma.training.loop.measures import policy_measures
from gem_ma.training.loop.roles import Anchors, Learner
from gem_ma.training.loop.step import Lesson, Phases, StepRollouts
from gem_ma.training.schedule.settings import discounts, learning_rate, logged, settings_of


def is_charged(loss: LossSettings) -> bool:
    """Whether the divergence is taken off the rewards, and is not a term of the loss."""
    return bool(loss.kl) and loss.kl_in == "reward"


def charged(
    learner: Learner, loss: LossSettings, turns: TurnTable, gamma: Gamma
) -> tuple[TurnTable, dict[str, float]]:
    """The turns, with what the divergence from the reference costs each taken off where the reward
    has it (`loss.kl_in`); and what is logged.

    A turn costs weight x (log p sampled - log p reference), summed over its tokens: an estimate
    without bias of how far the policy is away there (arXiv 2009.01325, section 3.4).
    """
    if not is_charged(loss) or not len(turns) or not isinstance(learner, Anchors):
        return turns, {}
    away, tokens = learner.divergence(turns)
    cost = loss.kl * away
    reward = turns.reward - cost
    gains = turns.ret.copy()
    totals = turns.total.copy()
    for rows in rows_by_episode(turns):
        rate = discount_of(gamma, str(turns.agent[rows[0]]))
        totals[rows] -= cost[rows].sum()
        for n in rows:
            # what comes after a turn is discounted over the agent's own turns, as its rewards
            later = rows[turns.k[rows] >= turns.k[n]]
            gaps = (turns.k[later] - turns.k[n]).astype(np.float64)
            gains[n] -= float((cost[later] * np.power(rate, gaps)).sum())
    numbers = {"kl_reference": float(away.sum() / max(tokens, 1))}
    return replace(turns, reward=reward, ret=gains, total=totals), numbers


def check_anchored(settings: TrainSettings, learner: Learner) -> None:
    """Raises ConfigError where a learner cannot do what `train.loss` says of its reference."""
    loss = settings.loss
    asked = [f"kl_in: {loss.kl_in}"] * is_charged(loss)
    asked += [f"surrogate: {loss.surrogate}"] * (loss.surrogate in PAIRED)
    if asked and not isinstance(learner, Anchors):
        raise ConfigError(
            f"policy {learner.policy!r}: {type(learner).__name__} keeps no reference weights, which"
            f" train.loss.{asked[0]} needs; remove it, or learn a local model"
        )


def check_critics(settings: TrainSettings, critics: Mapping[str, Critic]) -> None:
    """Raises ConfigError for a key of `train.critic` that no critic of this training reads."""
    several = {key for critic in critics.values() for key in critic.reads}
    for name, critic in critics.items():
        own = settings.per_policy.get(name)
        for key in settings_of(settings, name).critic.model_dump(exclude_defaults=True):
            # what is said of one policy alone, no other critic reads
            known = {*critic.reads} if own is not None and key in own.critic else several
            if key not in known:
                raise ConfigError(
                    f"train.critic.{key}: does nothing, since its critics read"
                    f" {', '.join(sorted(known))}; remove it"
                )


def credited_turns(
    episodes: Sequence[Episode],
    policy: str,
    settings: TrainSettings,
    gamma: Gamma,
    worlds: Worlds,
    tails: Mapping[tuple[int, str], float] | None = None,
) -> TurnTable:
    """The turns of a policy with what `train.credit` pays each."""
    rules = settings.credit
    return credit.turns(
        episodes,
        policy,
        rule=rules.rule,
        gamma=gamma,
        team=worlds.team if rules.team == "teams" else rules.team,
        tails=tails,
        truncated=rules.truncated,
    )


def advantages_of(
    turns: TurnTable,
    settings: TrainSettings,
    gamma: Gamma,
    *,
    several: bool,
    state: Mapping[str, float] | None = None,
) -> tuple[NDArray[np.float64], dict[str, float]]:
    """The advantages [N] of turns by `train.estimator`, and its new state. `several`: the turns
    are of several worlds, and groups stay within one."""
    chosen = settings.estimator
    key: Any = chosen.key
    if several:
        key = key_among_worlds(chosen.name, chosen.key, chosen.groups)
    how: dict[str, Any] = {"gamma": gamma, "cut": settings.credit.cut, **chosen.options}
    return estimate(chosen.name, turns, key, state, **how)


class Updates:
    """The learners of a run with their critics and the states of their estimators."""

    def __init__(
        self,
        config: Config,
        settings: TrainSettings,
        worlds: Worlds,
        learners: Mapping[str, Learner],
        critics: Mapping[str, Critic],
        states: dict[str, dict[str, float]],
    ) -> None:
        self.config = config
        self.settings = settings
        self.worlds = worlds
        self.learners = learners
        self.critics = critics
        self.states = states
        # here, so that cloning keeps to the same bound of memory
        for name, learner in learners.items():
            learner.bound(settings_of(settings, name).loss)
            check_anchored(settings_of(settings, name), learner)
        check_critics(settings, critics)
        for name, critic in critics.items():
            loss = settings_of(settings, name).loss
            critic.bound(loss)

    def prepare(self, played: StepRollouts, policies: Sequence[str]) -> list[Lesson]:
        """The lessons of the policies that learn at this step, all from the same recorded
        episodes."""
        return [self._lesson(played, name, settings_of(self.settings, name)) for name in policies]

    def _lesson(self, played: StepRollouts, name: str, settings: TrainSettings) -> Lesson:
        version = self.learners[name].version
        bound = settings.max_policy_lag
        # of the plays alone: a branch repeats its trunk, and would count those turns once more
        numbers: dict[str, Any] = dict(policy_measures(played.plays, name, self.worlds, version))
        episodes: Sequence[Episode] = played.taught
        late = None
        stale = False
        if settings.overlap or bound is not None:
            episodes, ages = fresh(episodes, name, version, bound)
            numbers |= ages
            late = warning(name, ages, bound)
            dropped = ages.get("dropped_stale")
            stale = bool(dropped) and dropped == sum(ages["lags"].values())  # nothing is left
        gamma = discounts(settings.credit.gamma, played.step)
        turns = self._turns(episodes, name, gamma, settings)
        numbers = {
            "gamma": logged(gamma, sorted(set(turns.agent.tolist()))),
            "excluded": sum(turns.excluded.values()),
            **numbers,
        }
        # a seed of its own, so that a policy learns the same with or without others beside it
        rng = random.Random(stable_seed(self.config.run.seed, "update", name, played.step))
        lr = learning_rate(settings, played.step)
        return Lesson(name, settings, gamma, turns, numbers, played.step, rng, lr, stale, late)

    def _turns(
        self, episodes: Sequence[Episode], name: str, gamma: Any, settings: TrainSettings
    ) -> TurnTable:
        """The credited turns of a policy; a critic says what would have followed where the driver
        cut a play."""
        tails = None
        if name in self.critics:
            cut = self.critics[name].tails(episodes, name)
            tails = still_here(lambda one: self.worlds.of_episode(one).scenario, episodes, cut)
        return credited_turns(episodes, name, settings, gamma, self.worlds, tails)

    def teach(self, lesson: Lesson, phases: Phases) -> dict[str, Any]:
        """Estimates and updates; gives what is logged of the policy."""
        settings = lesson.settings
        name = lesson.policy
        turns = lesson.turns
        numbers = {"lr": lesson.lr, **lesson.numbers}
        if lesson.stale:  # no step without tokens: Adam's moments alone would move the weights
            return {**numbers, "optimizer_steps": 0.0}
        if (shaping := settings.estimator.shaping) is not None:
            # both are logged: what is learned for is the shaped return, what counts the raw one
            numbers["return_raw"] = mean_return(turns)
            past = self.states.get(f"{name}@shaping")
            turns, self.states[f"{name}@shaping"] = shaped(
                turns, shaping.form, shaping.alpha, gamma=lesson.gamma, state=past
            )
            numbers["return_shaped"] = mean_return(turns)
        learner = self.learners[name]
        turns, away = charged(learner, settings.loss, turns, lesson.gamma)
        numbers |= away
        if name in self.critics:
            turns = valued(turns, self.critics[name])
        advantages, self.states[name] = advantages_of(
            turns, settings, lesson.gamma, several=self.worlds.several, state=self.states[name]
        )
        phases.lap("credit")
        loss = settings.loss
        if is_charged(loss):  # not twice
            loss = loss.model_copy(update={"kl": 0.0})
        numbers |= learner.update(turns, advantages, lr=lesson.lr, settings=loss, rng=lesson.rng)
        # raises before anything is published: the checkpoint holds the weights of before
        check_fresh(name, lesson.step + 1, numbers.get("fresh_gap"), learner.parity)
        if name in self.critics:
            # after the policy: its advantages were taken against the values of before
            options = settings.estimator.options
            targets = raw_gae(turns, gamma=lesson.gamma, **options) + turns.value
            numbers |= self.critics[name].fit(turns, targets, settings.critic, lesson.rng)
        phases.lap("update")
        return numbers


def still_here(
    scenario_of: Callable[[Episode], Scenario],
    episodes: Sequence[Episode],
    tails: Mapping[tuple[int, str], float],
) -> dict[tuple[int, str], float]:
    """The values of what follows, without those of agents whose part was over (`Leave`) before the
    driver cut the play: nothing follows for them.

    A record says whom the world cut, not who has left, so plays that the driver cut are replayed
    from it.
    """
    gone: dict[int, set[str]] = {}
    # once per episode: several agents of one play share a replay
    for index in dict.fromkeys(i for i, agent in tails if agent not in episodes[i].cut):
        cut = episodes[index]
        scenario = scenario_of(cut)
        task = task_of(scenario, cut.task)
        game = replay(scenario, task, cut.seed, cut.turns, cut.calls, cut.forks)
        gone[index] = game.left - game.cut.keys()
        game.close()  # a scenario may hold files or processes
    return {(n, a): value for (n, a), value in tails.items() if a not in gone.get(n, ())}


# An episode that was played with weights too old to learn from is left out as a whole: dropping
# single turns would leave only the late turns of long episodes. Longer episodes tend to be older,
# so what is dropped is counted by length.

WARN = 0.05  # share of dropped episodes above which the user is warned


class Fresh(NamedTuple):
    """The episodes that a policy may learn from, and what is logged."""

    episodes: list[Episode]
    metrics: Mapping[str, Any]


def lag(episode: Episode, policy: str, version: int) -> int | None:
    """Publishes of the policy up to `version` since its oldest reply in this episode; None where
    it sampled nothing in it."""
    seen = [
        reply.version for turn in episode.turns for reply in turn.replies if reply.policy == policy
    ]
    # the oldest turn decides: an episode may go on while its policy is published
    return version - min(seen) if seen else None


def fresh(episodes: Sequence[Episode], policy: str, version: int, bound: int | None) -> Fresh:
    """Leaves out what is older than `bound` publishes (None: nothing).

    Metrics: `lags` (episodes by lag), and with a bound `dropped_stale` (episodes) and
    `dropped_turns` (those by the policy's turns in them).
    """
    usable = []
    lags = Counter[int]()
    dropped = Counter[int]()
    for episode in episodes:
        age = lag(episode, policy, version)
        # None: only others sampled in it, so it is never too old, and counted nowhere
        if age is not None:
            lags[age] += 1
        if age is not None and bound is not None and age > bound:
            played = (any(reply.policy == policy for reply in t.replies) for t in episode.turns)
            dropped[sum(played)] += 1
        else:
            usable.append(episode)
    # keys as text: the record is JSON, and a resume compares what it reads with what it writes
    metrics: dict[str, Any] = {"lags": {str(age): count for age, count in sorted(lags.items())}}
    if bound is not None:
        by_length = {str(turns): count for turns, count in sorted(dropped.items())}
        metrics |= {"dropped_stale": dropped.total(), "dropped_turns": by_length}
    return Fresh(usable, metrics)


def warning(policy: str, metrics: Mapping[str, Any], bound: int | None) -> str | None:
    """One line where more than WARN of a step's episodes were too old."""
    sampled = sum(metrics["lags"].values())
    dropped = metrics.get("dropped_stale", 0)
    if not dropped or dropped <= WARN * sampled:
        return None
    return (
        f"policy {policy}: {dropped} of {sampled} episodes were played with weights more than"
        f" {bound} publishes old and are not learned from, long ones first; raise"
        " train.max_policy_lag, or set train.overlap: false"
    )
