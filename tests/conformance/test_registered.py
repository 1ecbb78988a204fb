"""Every registered scenario: the kit, with the suites of PettingZoo and Gymnasium as they are, and
one play under four names."""

from __future__ import annotations

import random

import pytest

import gem_ma
from gem_ma.envs.observation import encode
from gem_ma.registry import catalog
from gem_ma.testing import check_scenario

IDS = sorted(catalog("scenarios"))
SHORT = 12  # decision points

pytestmark = pytest.mark.parametrize("name", IDS)


@pytest.mark.longest
def test_it_keeps_every_rule(name):
    # games without an end of their own are cut early: the whole length is `make test-learning`'s
    report = check_scenario(name, seeds=range(3), limits=gem_ma.Limits(max_steps=SHORT))
    assert 9 in report.passed and 12 in report.passed


@pytest.mark.learning
def test_it_keeps_every_rule_at_full_length(name):
    report = check_scenario(name)
    assert 9 in report.passed and 12 in report.passed


@pytest.mark.parametrize("seed", [0, 1])
def test_kernel_and_views_give_the_same_transcripts_and_sums(name, seed):
    scenario = gem_ma.make(name)
    task = scenario.tasks("train")[0]
    streams = lambda: {agent: random.Random(f"{seed}/{agent}") for agent in scenario.agents}  # noqa: E731

    def say(stream, legal):
        return stream.choice(legal) if legal else "please go on"

    rngs, game = streams(), gem_ma.Game(scenario, task, seed)
    while game.pending and game.step < 12:
        game.send({agent: say(rngs[agent], asked.legal) for agent, asked in game.pending.items()})
    transcripts = {
        agent: tuple(encode(message, agent) for message in game.view(agent))
        for agent in scenario.agents
    }
    totals = {
        agent: sum(entry.value for entry in game.ledger if entry.agent == agent)
        for agent in scenario.agents
    }

    rngs, sums, seen = streams(), dict.fromkeys(scenario.agents, 0.0), {}
    env = gem_ma.aec_env(name, task=task, max_steps=12)
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        sums[agent] += reward
        seen[agent] = observation["messages"]
        env.step(None if terminated or truncated else say(rngs[agent], info.get("action_mask")))
    assert seen == transcripts and sums == pytest.approx(totals)

    rngs, sums = streams(), dict.fromkeys(scenario.agents, 0.0)
    env = gem_ma.parallel_env(name, task=task, max_steps=12)
    observations, infos = env.reset(seed=seed)
    while env.agents:
        active = infos[env.agents[0]]["active_agents"]
        observations, rewards, _, _, infos = env.step(
            {agent: say(rngs[agent], infos[agent].get("action_mask")) for agent in active}
        )
        for agent, reward in rewards.items():
            sums[agent] += reward
    assert {agent: shown["messages"] for agent, shown in observations.items()} == transcripts
    assert sums == pytest.approx(totals)

    for own in scenario.agents:
        rngs, total = streams(), 0.0

        def other_seat(other, rngs):
            return lambda messages, legal, rng: say(rngs[other], legal)

        others = {other: other_seat(other, rngs) for other in scenario.agents if other != own}
        env = gem_ma.gym_env(name, agent=own, others=others, task=task, max_steps=12)
        observation, info = env.reset(seed=seed)
        done = False
        while not done:
            said = say(rngs[own], info.get("action_mask")) if info["active"] else ""
            observation, reward, terminated, truncated, info = env.step(said)
            total, done = total + reward, terminated or truncated
        assert observation["messages"] == transcripts[own] and total == pytest.approx(totals[own])
