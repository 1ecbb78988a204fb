"""The Parallel view: who must act, whose action counts, and when it is over."""

from __future__ import annotations

import time

import pytest
from pettingzoo.test import max_cycles_test

import gem_ma
from gem_ma import Ask, Leave, Reward, Scenario
from gem_ma.kernel.errors import ActionError


class Turns(Scenario):
    """Ann alone, then both, then Bob alone; Ann leaves."""

    agents = ("ann", "bob")
    chance = False

    def play(self, rng, task):
        yield Reward({"bob": 0.5})
        said = yield Ask({"ann": "1"}, legal=("a", "b"))
        yield Ask({"ann": "2", "bob": said["ann"].text})
        yield Reward({"ann": 1.0, "bob": 2.0})
        yield Leave("ann")
        yield Ask({"bob": "3"})


@pytest.fixture
def env():
    env = gem_ma.parallel_env(Turns)
    env.reset(seed=0)
    return env


def test_idle_agents_may_say_anything_or_nothing(env):
    with pytest.raises(ActionError, match="no agent is called 'nobody'"):
        env.step({"ann": "a", "nobody": "a typing error"})
    observations, rewards, *_ = env.step({"ann": "a", "bob": "ignored"})
    assert observations["bob"]["messages"][-1]["content"] == "a"
    assert rewards == {"ann": 0.0, "bob": 0.5}
    env.reset(seed=0)
    env.step({"ann": "a", "bob": None})
    assert [turn.agent for turn in env.game.turns] == ["ann"]


@pytest.mark.parametrize("actions", [{}, {"bob": "x"}, {"ann": None}, ["a"]])
def test_a_missing_active_agent_is_named_and_nothing_changes(env, actions):
    with pytest.raises(ActionError, match="ann" if isinstance(actions, dict) else "agent: action"):
        env.step(actions)
    assert env.game.step == 0


def test_an_episode_ends_for_each_agent_once(env):
    assert env.reset(seed=0)[1]["bob"]["active_agents"] == ("ann",)
    env.step({"ann": "a"})
    observations, rewards, terminations, truncations, infos = env.step({"ann": "x", "bob": "y"})
    assert terminations == {"ann": True, "bob": False}
    assert truncations == {"ann": False, "bob": False}
    assert rewards == {"ann": 1.0, "bob": 2.0}
    assert env.agents == ["bob"]
    assert infos["ann"]["stop"] == "terminated"
    assert set(observations) == {"ann", "bob"}
    observations, rewards, terminations, *_ = env.step({"bob": "z"})
    assert set(observations) == {"bob"} and terminations == {"bob": True} and env.agents == []
    with pytest.warns(UserWarning, match="over"):
        assert env.step({}) == ({}, {}, {}, {}, {})


def test_a_limit_truncates_all_who_are_left():
    env = gem_ma.parallel_env(Turns, max_steps=1)
    env.reset(seed=0)
    _, _, terminations, truncations, _ = env.step({"ann": "a"})
    assert set(truncations.values()) == {True}
    assert set(terminations.values()) == {False}
    assert env.agents == []


def test_a_closed_environment_refuses(env):
    env.close()
    with pytest.raises(ActionError, match="closed"):
        env.step({"ann": "a"})


@pytest.mark.parametrize("limit", ["rounds", "max_steps"])
@pytest.mark.filterwarnings("ignore")
def test_the_suite_on_cycles_passes_where_all_act_at_every_step(limit):
    class Module:
        parallel_env = staticmethod(
            lambda max_cycles: gem_ma.parallel_env("dilemma", **{limit: max_cycles})
        )
        env = staticmethod(lambda max_cycles: gem_ma.aec_env("dilemma", **{limit: max_cycles}))

    max_cycles_test(Module)


class Endless(Scenario):
    """Both speak at each step, and hear each other, until the driver ends it."""

    agents = ("ann", "bob")
    chance = False

    def play(self, rng, task):
        while True:
            yield Ask({"ann": "?", "bob": "?"}, legal=("a", "b"))


def test_a_step_late_in_a_long_play_costs_what_an_early_one_does():
    def seconds(steps: int) -> float:
        env = gem_ma.parallel_env(Endless, max_steps=steps)
        env.reset(seed=0)
        start = time.process_time()
        while env.agents:
            observations, *_ = env.step(dict.fromkeys(env.agents, "a"))
            assert observations["ann"]["messages"][-1]["content"]
        return time.process_time() - start

    # 4.2 to 5.7; where each observation copies what all messages before it hold, 19 and more
    assert any(seconds(1000) < 10 * seconds(250) for _ in range(5))
