"""Every registered scenario: the kit, the suites of PettingZoo and Gymnasium as they are, and
one play under four names."""

from __future__ import annotations

import random
import warnings

import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test, seed_test

import gem_ma
from gem_ma.envs.observation import encode
from gem_ma.registry import catalog
from gem_ma.testing import check_scenario

IDS = sorted(catalog("scenarios"))
A_FEW_AND_FIFTY = pytest.mark.parametrize(
    "episodes",
    [pytest.param(10, id="few"), pytest.param(50, id="fifty", marks=pytest.mark.learning)],
)
SHORT = 12  # decision points
# times dearer: an answer costs two interpreters, or a shell
JUDGED = {"code": 12, "terminal": 12}
EXPECTED = (
    "Observation",
    "Action space",
    "We recommend agents",
    "Not able to test alternative",
    "No render fps",
)

pytestmark = pytest.mark.parametrize("name", IDS)


@pytest.fixture(autouse=True)
def only_expected_warnings():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    odd = [
        w
        for w in caught
        if ("pettingzoo" in w.filename or "gymnasium" in w.filename)
        and not any(e in str(w.message) for e in EXPECTED)
    ]
    assert not odd, [str(warning.message) for warning in odd]


@pytest.mark.long
def test_it_keeps_every_rule(name):
    # games without an end of their own are cut early: the whole length is `make test-learning`'s
    report = check_scenario(name, seeds=range(3), limits=gem_ma.Limits(max_steps=SHORT))
    assert 9 in report.passed and 12 in report.passed


@pytest.mark.learning
def test_it_keeps_every_rule_at_full_length(name):
    report = check_scenario(name)
    assert 9 in report.passed and 12 in report.passed


@A_FEW_AND_FIFTY
def test_the_aec_suites_pass(name, episodes):
    env = gem_ma.aec_env(name)
    for _ in range(max(1, episodes // JUDGED.get(name, 1))):
        api_test(env, num_cycles=40)
    for _ in range(3):
        seed_test(lambda: gem_ma.aec_env(name), num_cycles=40)
    render_test(lambda render_mode=None: gem_ma.aec_env(name, render_mode=render_mode))


@A_FEW_AND_FIFTY
def test_the_parallel_suites_pass(name, episodes):
    env = gem_ma.parallel_env(name)
    for _ in range(episodes // 2):  # the suite resets twice
        parallel_api_test(env, num_cycles=40)
    for _ in range(3):
        parallel_seed_test(lambda: gem_ma.parallel_env(name), num_cycles=40)


@A_FEW_AND_FIFTY
def test_gymnasiums_checker_passes_in_every_seat(name, episodes):
    agents = gem_ma.make(name).agents
    for agent in agents:
        env = gem_ma.gym_env(
            name, agent=agent, others={other: "random_legal" for other in agents if other != agent}
        )
        for _ in range(max(1, episodes // 6)):  # one check plays about ten episodes
            check_env(env)


@A_FEW_AND_FIFTY
def test_legal_random_play_is_never_illegal(name, episodes):
    env = gem_ma.aec_env(name, max_steps=30)
    for seed in range(episodes):
        env.reset(seed=seed)
        for agent in env.agent_iter():
            _, _, terminated, truncated, info = env.last()
            env.step(
                None
                if terminated or truncated
                else env.action_space(agent).sample(info.get("action_mask"))
            )
        assert all(
            turn.legal is None or turn.action.parsed in turn.legal for turn in env.game.turns
        )


@pytest.mark.parametrize("seed", [0, 1, 2])
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
    assert {
        agent: shown["messages"] for agent, shown in observations.items()
    } == transcripts and sums == pytest.approx(totals)

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
