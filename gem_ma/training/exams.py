"""Scores during training: what a batch of episodes says, and an exam on seeds that are never trained on, sampled and greedy.

Reads records. Failed episodes stand beside every mean; success is what the scenario declares, apart from reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.engines.base import Policy
from gem_ma.errors import ConfigError
from gem_ma.evaluation.exploitability import engine_strategy, exploitability
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

    Where the game is small, zero-sum and played by tables alone, adds the exact `nash_conv` of the last weights and of their average.
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
    engines = {agent: policies[seat.policy].engine for agent, seat in seats.items() if seat.policy and seat.behaviour == "direct"}
    if not scenario.zero_sum or len(engines) != len(scenario.agents) or not all(hasattr(engine, "probabilities") for engine in engines.values()):
        return {}
    averages = {name: learner.average() for name, learner in learners.items() if hasattr(learner, "average")}
    averaged = {agent: averages.get(seats[agent].policy or "", engine) for agent, engine in engines.items()}
    try:
        last = exploitability(scenario, {agent: engine_strategy(engine) for agent, engine in engines.items()})
        mean = exploitability(scenario, {agent: engine_strategy(engine) for agent, engine in averaged.items()})
    except ConfigError:  # chance that cannot be listed, or too large a game: no exact score
        return {}
    return {"nash_conv": last.nash_conv, "nash_conv_averaged": mean.nash_conv}


def _mean(values: Sequence[float]) -> float | None:
    return float(sum(values)) / len(values) if values else None
