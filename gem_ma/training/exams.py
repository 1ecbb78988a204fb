"""Scores during training: what a batch of episodes says, and an exam on seeds that are never trained on, sampled and greedy.

Reads records. Failed episodes stand beside every mean; success is what the scenario declares, apart from reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.engines.base import Policy
from gem_ma.errors import ConfigError
from gem_ma.evaluation.exploitability import Strategy, engine_strategy, exploitability, token_strategy
from gem_ma.scenario import Scenario
from gem_ma.settings import Config
from gem_ma.training.schedule import exam_plans, play_all
from gem_ma.types import Episode


def measures(episodes: Sequence[Episode], scenario: Scenario) -> dict[str, Any]:
    """Means over the scored episodes: `return` by agent, `success` (None where the scenario knows none), turns, share of unreadable answers.

    `ok`, `failed`, `cut` count episodes; `invalid` is by agent, over turns with a closed choice.
    """
    scored = [episode for episode in episodes if episode.end.scored]
    paid = [episode.returns() for episode in scored]
    judged = [verdict for episode in scored if (verdict := scenario.success(episode)) is not None]
    asked = {agent: [t for e in scored for t in e.turns if t.agent == agent and t.legal is not None] for agent in scenario.agents}
    return {
        "episodes": len(episodes),
        "ok": len(scored),
        "failed": len(episodes) - len(scored),
        "cut": sum(episode.end.bootstraps for episode in scored),
        "return": {agent: _mean([total[agent] for total in paid]) for agent in scenario.agents},
        "success": _mean(judged),
        "turns": _mean([len(episode.turns) for episode in scored]),
        "invalid": {agent: _mean([turn.action.parsed is None for turn in turns]) for agent, turns in asked.items()},
    }


async def exam(config: Config, scenario: Scenario, policies: Mapping[str, Policy], learners: Mapping[str, Any]) -> dict[str, Any]:
    """Plays `evaluate.episodes` on `evaluate.seed`, ...: `sampled` as configured and `greedy` (temperature 0), each as `measures`.

    Where the game is small and zero-sum and all probabilities are known, adds the exact `nash_conv` of the last weights, and of their
    average where a learner keeps one.
    """
    plans = exam_plans(config, scenario)
    result: dict[str, Any] = {}
    for name, temperature in (("sampled", None), ("greedy", 0.0)):
        players = {
            key: policy if temperature is None else replace(policy, sampling=replace(policy.sampling, temperature=temperature))
            for key, policy in policies.items()
        }
        result[name] = measures(await play_all(config, plans, players), scenario)
    return result | _exact(config, scenario, policies, learners)


def _exact(config: Config, scenario: Scenario, policies: Mapping[str, Policy], learners: Mapping[str, Any]) -> dict[str, float]:
    seats = {agent: config.agents[agent] for agent in scenario.agents if agent in config.agents}
    if not scenario.zero_sum or len(seats) != len(scenario.agents) or any(seat.behaviour != "direct" for seat in seats.values()):
        return {}
    owners = {agent: seat.policy or "" for agent, seat in seats.items()}
    last = {name: strategy for name in set(owners.values()) if (strategy := _strategy(name, policies, learners)) is not None}
    means = {name: engine_strategy(learners[name].average()) for name in last if hasattr(learners.get(name), "average")}
    try:
        if len(last) < len(set(owners.values())):
            return {}
        found = {"nash_conv": exploitability(scenario, {agent: last[name] for agent, name in owners.items()}).nash_conv}
        if means:
            averaged = exploitability(scenario, {agent: means.get(name, last[name]) for agent, name in owners.items()})
            found["nash_conv_averaged"] = averaged.nash_conv
    except ConfigError:  # chance that cannot be listed, or too large a game: no exact score
        return {}
    return found


def _strategy(name: str, policies: Mapping[str, Policy], learners: Mapping[str, Any]) -> Strategy | None:
    policy, learner = policies.get(name), learners.get(name)
    if policy is not None and hasattr(policy.engine, "probabilities"):
        return engine_strategy(policy.engine, policy.sampling)
    return token_strategy(learner) if hasattr(learner, "score") else None


def _mean(values: Sequence[float]) -> float | None:
    return float(sum(values)) / len(values) if values else None
