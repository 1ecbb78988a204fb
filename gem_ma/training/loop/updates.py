"""One step's learning: recorded episodes -> credit -> advantages -> an update of each policy. Knows
no algorithm by name and plays nothing.

In two halves. `prepare` reads the record (it may ask a tokenizer, which a thread must not share
with playing); `teach` computes, in whatever thread.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma import credit
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimate, key_among_worlds, mean_return, raw_gae, shaped
from gem_ma.credit.table import TurnTable
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Episode
from gem_ma.runs.worlds import Worlds
from gem_ma.training.learner.critic import Critic, valued
from gem_ma.training.learner.mismatch import check_fresh
from gem_ma.training.loop.anchoring import charged, check_anchored, is_charged
from gem_ma.training.loop.lessons import Lesson
from gem_ma.training.loop.metrics import policy_measures
from gem_ma.training.loop.played import Played
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.tails import still_here
from gem_ma.training.loop.timings import Phases
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.schedule.discounts import discounts, logged
from gem_ma.training.schedule.rates import learning_rate
from gem_ma.training.schedule.staleness import fresh, warning


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
        for name, critic in critics.items():
            loss = settings_of(settings, name).loss
            critic.pass_tokens = loss.pass_tokens
            critic.recompute = loss.recompute

    def prepare(self, played: Played, policies: Sequence[str]) -> list[Lesson]:
        """The lessons of the policies that learn at this step, all from the same recorded
        episodes."""
        return [self._lesson(played, name, settings_of(self.settings, name)) for name in policies]

    def _lesson(self, played: Played, name: str, settings: TrainSettings) -> Lesson:
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
        return Lesson(
            policy=name,
            settings=settings,
            gamma=gamma,
            turns=turns,
            numbers=numbers,
            step=played.step,
            rng=rng,
            lr=lr,
            stale=stale,
            warning=late,
        )

    def _turns(
        self, episodes: Sequence[Episode], name: str, gamma: Any, settings: TrainSettings
    ) -> TurnTable:
        """The credited turns of a policy; a critic says what would have followed where the driver
        cut a play."""
        how = settings.credit
        tails = None
        if name in self.critics:
            cut = self.critics[name].tails(episodes, name)
            tails = still_here(lambda one: self.worlds.of_episode(one).scenario, episodes, cut)
        return credit.turns(
            episodes,
            name,
            rule=how.rule,
            gamma=gamma,
            team=how.team,
            tails=tails,
            truncated=how.truncated,
        )

    def teach(self, lesson: Lesson, phases: Phases) -> dict[str, Any]:
        """Estimates and updates; gives what is logged of the policy."""
        settings = lesson.settings
        name = lesson.policy
        turns = lesson.turns
        numbers = {"lr": lesson.lr, **lesson.numbers}
        if lesson.stale:  # no step without tokens: Adam's moments alone would move the weights
            return {**numbers, "optimizer_steps": 0.0}
        how = settings.estimator
        options = settings.estimator.options
        if (shaping := how.shaping) is not None:
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
        key = key_among_worlds(how.name, how.key, how.groups) if self.worlds.several else how.key
        state = self.states[name]
        cut = settings.credit.cut
        advantages, self.states[name] = estimate(
            how.name, turns, key, state, gamma=lesson.gamma, cut=cut, **options
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
            targets = raw_gae(turns, gamma=lesson.gamma, **options) + turns.value
            numbers |= self.critics[name].fit(turns, targets, settings.critic, lesson.rng)
        phases.lap("update")
        return numbers
