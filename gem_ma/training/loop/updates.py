"""One step's learning: recorded episodes -> credit -> advantages -> an update of each policy. Knows
no algorithm by name and plays nothing.

In two halves. `prepare` reads the record (it may ask a tokenizer, which a thread must not share
with playing); `teach` computes, in whatever thread.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma import credit
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import stable_seed
from gem_ma.estimators import estimate, mean_return, raw_gae, shaped
from gem_ma.registry import task_of
from gem_ma.scenario import Scenario, replay
from gem_ma.training.learner.critic import Critic, valued
from gem_ma.training.learner.mismatch import check_fresh
from gem_ma.training.learner.torch_learner import Learner
from gem_ma.training.loop.metrics import policy_measures
from gem_ma.training.loop.overlap import Played
from gem_ma.training.loop.timings import Phases
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.schedule.discounts import discounts, logged
from gem_ma.training.schedule.plans import learning_rate
from gem_ma.training.schedule.staleness import fresh, warning
from gem_ma.training.selfplay.guard import Guard
from gem_ma.types import Episode


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy learns from at a step, which counts from 0. `told` is logged; `stale`
    where it has only episodes that are too old, so it learns nothing.
    """

    policy: str
    settings: TrainSettings
    gamma: Any
    turns: credit.TurnTable
    told: dict[str, Any]
    step: int
    rng: random.Random
    lr: float
    stale: bool
    warning: str | None


class Updates:
    """The learners of a run with their critics and the states of their estimators."""

    def __init__(
        self,
        config: Config,
        settings: TrainSettings,
        scenario: Scenario,
        learners: Mapping[str, Learner],
        critics: Mapping[str, Critic],
        states: dict[str, dict[str, float]],
        guard: Guard,
    ) -> None:
        self.config, self.settings, self.scenario, self.guard = config, settings, scenario, guard
        self.learners, self.critics, self.states = learners, critics, states
        # how much memory their passes may have, cloning included
        for name, learner in learners.items():
            learner.bound(settings_of(settings, name).loss)
        for name, critic in critics.items():
            critic.pass_tokens = settings_of(settings, name).loss.pass_tokens

    def prepare(self, played: Played, policies: Sequence[str]) -> list[Lesson]:
        """The lessons of the policies that learn at this step, all from the same recorded
        episodes."""
        return [self._lesson(played, name, settings_of(self.settings, name)) for name in policies]

    def _lesson(self, played: Played, name: str, own: TrainSettings) -> Lesson:
        version, bound = self.learners[name].version, own.max_policy_lag
        told: dict[str, Any] = dict(policy_measures(played.plays, name, self.scenario, version))
        kept: Sequence[Episode] = played.episodes
        late, stale = None, False
        if own.overlap or bound is not None:
            kept, ages = fresh(kept, name, version, bound)
            told |= ages
            late, stale = (
                warning(name, ages, bound),
                bool(ages.get("dropped_stale"))
                and ages["dropped_stale"] == sum(ages["lags"].values()),
            )
        gamma = discounts(own.credit.gamma, played.step)
        tails = (
            still_here(self.scenario, kept, self.critics[name].tails(kept, name))
            if name in self.critics
            else None
        )
        rule, team, truncated = own.credit.rule, own.credit.team, own.credit.truncated
        turns = credit.turns(
            kept, name, rule=rule, gamma=gamma, team=team, tails=tails, truncated=truncated
        )
        told = {
            "gamma": logged(gamma, sorted(set(turns.agent.tolist()))),
            "excluded": sum(turns.excluded.values()),
            **told,
        }
        rng = random.Random(stable_seed(self.config.run.seed, "update", name, played.step))
        lr = learning_rate(own, played.step) * self.guard.brake[name]
        return Lesson(name, own, gamma, turns, told, played.step, rng, lr, stale, late)

    def teach(self, lesson: Lesson, phases: Phases) -> dict[str, Any]:
        """Estimates and updates; gives what is logged of the policy."""
        own, name, turns, told = lesson.settings, lesson.policy, lesson.turns, dict(lesson.told)
        if lesson.stale:
            return {"lr": lesson.lr, **told, "optimizer_steps": 0.0}
        options = own.estimator.options
        if (shaping := own.estimator.shaping) is not None:
            told["return_raw"], past = mean_return(turns), self.states.get(f"{name}@shaping")
            turns, self.states[f"{name}@shaping"] = shaped(
                turns, shaping.form, shaping.alpha, gamma=lesson.gamma, state=past
            )
            told["return_shaped"] = mean_return(turns)
        if name in self.critics:
            turns = valued(turns, self.critics[name])
        advantages, self.states[name] = estimate(
            own.estimator.name,
            turns,
            own.estimator.key,
            self.states[name],
            gamma=lesson.gamma,
            **options,
        )
        phases.lap("credit")
        learner = self.learners[name]
        stats = learner.update(turns, advantages, lr=lesson.lr, settings=own.loss, rng=lesson.rng)
        check_fresh(name, lesson.step + 1, stats.get("fresh_gap"), learner.parity)
        if name in self.critics:
            targets = raw_gae(turns, gamma=lesson.gamma, **options) + turns.value
            stats = {**stats, **self.critics[name].fit(turns, targets, own.critic, lesson.rng)}
        phases.lap("update")
        return {"lr": lesson.lr, **told, **stats}


def still_here(
    scenario: Scenario, episodes: Sequence[Episode], tails: Mapping[tuple[int, str], float]
) -> dict[tuple[int, str], float]:
    """The values of what follows, without those of agents whose part was over (`Leave`) before the
    driver cut the play: nothing follows for them.

    Who has left stands in no record, so the plays are played again from it.
    """
    gone: dict[int, set[str]] = {}
    for index in dict.fromkeys(index for index, _ in tails):
        cut = episodes[index]
        game = replay(
            scenario, task_of(scenario, cut.task), cut.seed, cut.turns, cut.calls, cut.forks
        )
        gone[index] = set(game.left)
        game.close()
    return {
        (index, agent): value for (index, agent), value in tails.items() if agent not in gone[index]
    }
