"""Worlds that cut a play themselves: the value of what would follow counts, for those who were cut
and for nobody else, in records, critics, views and the worlds of other libraries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from pettingzoo import AECEnv, ParallelEnv

from gem_ma import Ask, Game, Leave, Limits, Reward, Scenario, Tell, aec_env, credit, gym_env
from gem_ma import parallel_env as our_parallel_env
from gem_ma.config.learning import CriticSettings
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import ScenarioError
from gem_ma.kernel.scenario import replay
from gem_ma.kernel.types import Sampling
from gem_ma.record.codec import from_json, to_json
from gem_ma.testing import check_scenario
from gem_ma.training.learner.critic import TableCritic
from gem_ma.training.loop.updates import still_here
from gem_ma.worlds import wrap
from tests.plays import played_all


class Chain(Scenario):
    """Rooms in a row, each pays 1. `ends`: agent -> the step after which its part is over, and
    whether the world cut it; who is not named stays for ever."""

    agents = ("a", "b", "c")
    chance = False

    def __init__(self, ends: Mapping[str, tuple[int, bool]]) -> None:
        self.ends = ends

    def play(self, rng, task):
        here = [*self.agents]
        for step in range(8):
            yield Ask(dict.fromkeys(here, f"room {step}"), legal=("on",))
            yield Reward(dict.fromkeys(here, 1.0))
            for agent, (last, cut) in self.ends.items():
                if step == last - 1:
                    yield Tell({agent: f"room {step + 1}"})
                    yield Leave(agent, cut=cut)
                    here.remove(agent)
            if not here:
                return


class Walk(Chain):
    agents = ("a",)


class Pairs(Chain):
    """Of a kit that makes it anew."""

    def __init__(self) -> None:
        super().__init__({"a": (2, True), "b": (3, False), "c": (4, True)})


def played(world: Scenario, **limits: int) -> Episode:
    engine: Any = open_engine("main", "table/softmax")
    policies = {"main": Policy("main", engine, Sampling(max_tokens=4))}
    cast = {agent: Seat("direct", "main") for agent in world.agents}

    plans = [Plan(world, cast, limits=Limits(**limits))]

    return played_all(plans, policies, deterministic=True)[0]


def bots(world: Scenario, *choices: str) -> Episode:
    plans = [Plan(world, {agent: Seat("first_legal") for agent in world.agents})]

    return played_all(plans)[0]


ENDS = [
    ({"a": (2, True), "b": (2, True), "c": (2, True)}, End.TRUNCATED, "abc"),
    ({"a": (1, False), "b": (2, True), "c": (3, True)}, End.TRUNCATED, "bc"),
    ({"a": (2, False), "b": (2, True), "c": (2, False)}, End.TRUNCATED, "b"),
    ({"a": (1, True), "b": (2, False), "c": (2, False)}, End.TERMINATED, "a"),
    ({"a": (1, True), "b": (2, True)}, End.TERMINATED, "ab"),  # c went on to the last room
    ({"a": (2, False), "b": (2, False), "c": (2, False)}, End.TERMINATED, ""),
    ({}, End.TERMINATED, ""),
]


@pytest.mark.parametrize(("ends", "end", "cut"), ENDS)
def test_a_value_stands_in_for_those_whom_their_world_cut(
    ends: dict[str, tuple[int, bool]], end: End, cut: str
) -> None:
    episode = played(Chain(ends))
    assert (episode.end, episode.cut) == (end, tuple(cut))
    assert {agent for agent in "abc" if episode.goes_on(agent)} == {*cut}
    tails = TableCritic().tails([episode], "main")
    assert {agent for _, agent in tails} == {*cut}
    # a record says it: nothing is played again
    assert still_here(lambda _: pytest.fail("replayed"), [episode], tails) == tails
    returns = credit.turns([episode], "main", tails={(0, agent): 10.0 for agent in "abc"})
    last = {agent: returns.ret[returns.agent == agent].min() for agent in "abc"}
    assert last == {agent: 11.0 if agent in cut else 1.0 for agent in "abc"}
    dropped = credit.turns([episode], "main", truncated="drop")
    assert bool(dropped.excluded) == bool(cut)


def test_a_critic_gives_a_cut_chain_the_value_of_the_room_behind_it() -> None:
    long, short = played(Walk({"a": (6, True)})), played(Walk({"a": (2, True)}))
    assert (short.end, len(short.turns)) == (End.TRUNCATED, 2)
    gamma, critic = 0.5, TableCritic()
    table = credit.turns([long], "main", gamma=gamma, tails={(0, "a"): 2.0})
    assert table.ret.tolist() == [2.0] * 6  # 1 + .5 + .25 ... of a chain without an end
    critic.fit(table, table.ret + np.arange(6), CriticSettings(step=1.0), random.Random(0))
    tails = critic.tails([short], "main")
    assert tails == {(0, "a"): 4.0}  # what it has learned of room 2
    values = credit.turns([short], "main", gamma=gamma, tails=tails)
    assert values.ret.tolist() == [1 + gamma * (1 + gamma * 4.0), 1 + gamma * 4.0]
    assert values.tail_value.tolist() == [4.0, 4.0]


def test_who_left_before_the_driver_cut_the_others_is_worth_nothing_more() -> None:
    world = Chain({"a": (1, True), "b": (2, False)})
    episode = played(world, max_steps=3)
    assert (episode.end, episode.cut) == (End.MAX_STEPS, ("a",))
    tails = {(0, agent): 10.0 for agent in "abc"}
    assert still_here(lambda _: world, [episode], tails).keys() == {(0, "a"), (0, "c")}


def test_a_record_holds_it_and_others_stay_as_they_were() -> None:
    cut, whole = bots(Walk({"a": (2, True)})), bots(Walk({"a": (2, False)}))
    assert from_json(to_json(cut)) == cut and to_json(cut)["cut"] == ["a"]
    assert from_json(to_json(whole)) == whole and "cut" not in to_json(whole)
    game = replay(Walk({"a": (2, True)}), None, cut.seed, cut.turns, cut.calls)
    assert game.over and game.own_end is End.TRUNCATED and game.fork().cut == {"a": 2}
    branch = game.fork(1)
    assert branch.pending and not branch.cut
    branch.send({"a": "on"})
    assert branch.own_end is End.TRUNCATED


@pytest.mark.longest
def test_the_kit_takes_it_and_views_show_it() -> None:
    assert 12 in check_scenario(Pairs, seeds=range(2), skip={13}).passed
    parallel = our_parallel_env(Pairs())
    parallel.reset(seed=0)
    shown = []
    while parallel.agents:
        _, _, over, cut, infos = parallel.step(dict.fromkeys(parallel.agents, "on"))
        shown += [(a, over[a], cut[a], infos[a]["stop"]) for a in over if over[a] or cut[a]]
    assert shown == [
        ("a", False, True, "truncated"),
        ("b", True, False, "terminated"),
        ("c", False, True, "truncated"),
    ]
    aec = aec_env(Pairs())
    aec.reset(seed=0)
    ends = {}
    for agent in aec.agent_iter():
        _, _, over, cut, _ = aec.last()
        ends |= {agent: (over, cut)} if over or cut else {}
        aec.step(None if over or cut else "on")
    assert ends == {"a": (False, True), "b": (True, False), "c": (False, True)}
    alone = gym_env(Pairs(), agent="a", others={"b": "first_legal", "c": "first_legal"})
    alone.reset(seed=0)
    assert alone.step("on")[2:4] == (False, False) and alone.step("on")[2:4] == (False, True)


def test_a_cut_before_anybody_was_asked_is_refused() -> None:
    class Early(Walk):
        def play(self, rng, task):
            yield Leave("a", cut=True)

    with pytest.raises(ScenarioError, match="lets a leave before the first Ask"):
        Game(Early({}), None, 0)


# -- worlds of other libraries --------------------------------------------------------------------


class Table(ParallelEnv):
    """`plan`: agent -> (last step, terminated, truncated)."""

    metadata, possible_agents = {"name": "table"}, ["left", "right"]
    plan: dict[str, tuple[int, bool, bool]] = {}

    def observation_space(self, agent):
        return spaces.Discrete(9)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = [*self.possible_agents], 0
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.steps += 1
        who = [*self.agents]
        over = {agent: self.plan[agent][0] == self.steps and self.plan[agent][1] for agent in who}
        cut = {agent: self.plan[agent][0] == self.steps and self.plan[agent][2] for agent in who}
        self.agents = [agent for agent in who if not over[agent] and not cut[agent]]
        paid = dict.fromkeys(who, 1.0)
        return dict.fromkeys(who, self.steps), paid, over, cut, {agent: {} for agent in who}


class Turns(AECEnv):
    """The same, asked in turn; all are truncated or ended together."""

    metadata, possible_agents, render_mode = {"name": "turns"}, ["left", "right"], None
    is_cut, last = True, 3

    def observation_space(self, agent):
        return spaces.Discrete(9)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return self.steps

    def reset(self, seed=None, options=None):
        self.agents, self.steps = [*self.possible_agents], 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "left"

    def step(self, action):
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.steps += 1
        self.rewards = dict.fromkeys(self.agents, 1.0)
        if self.steps == self.last:
            ends = self.truncations if self.is_cut else self.terminations
            ends.update(dict.fromkeys(self.agents, True))
        self.agent_selection = self.agents[self.steps % 2]


class Solo(gymnasium.Env[int, int]):
    action_space, observation_space = spaces.Discrete(2), spaces.Discrete(9)
    over, cut = False, True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        last = self.steps == 3
        return self.steps, 1.0, last and self.over, last and self.cut, {}


def of(base: type, **fields: Any) -> Any:
    return type(base.__name__, (base,), fields)


def limited() -> Any:
    return TimeLimit(Solo(), 3)


both = ("left", "right")
FOREIGN: dict[str, tuple[Any, End, tuple[str, ...]]] = {
    "all cut": (
        of(Table, plan={"left": (3, False, True), "right": (3, False, True)}),
        End.TRUNCATED,
        both,
    ),
    "one cut": (
        of(Table, plan={"left": (2, False, True), "right": (4, True, False)}),
        End.TERMINATED,
        ("left",),
    ),
    "one after the other": (
        of(Table, plan={"left": (2, False, True), "right": (4, False, True)}),
        End.TRUNCATED,
        both,
    ),
    "both flags": (
        of(Table, plan={"left": (2, True, True), "right": (2, True, True)}),
        End.TERMINATED,
        (),
    ),
    "in turn": (Turns, End.TRUNCATED, both),
    "in turn, by the rules": (of(Turns, is_cut=False), End.TERMINATED, ()),
    "alone": (Solo, End.TRUNCATED, ("player",)),
    "alone, both flags": (of(Solo, over=True), End.TERMINATED, ()),
    "alone, by the rules": (of(Solo, over=True, cut=False), End.TERMINATED, ()),
    "alone, by the declared limit": (limited, End.MAX_STEPS, ()),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_truncation_of_another_library_is_none_of_its_ends(name: str) -> None:
    make_env, end, cut = FOREIGN[name]
    world = wrap(make_env, turns=None if name.endswith("limit") else 50)
    episode = bots(world)
    assert (episode.end, episode.cut) == (end, cut)
    assert sum(episode.returns().values()) == sum(entry.value for entry in episode.ledger) > 0
    for agent in cut:
        shown = episode.final[agent][-1].text
        assert str(len({turn.step for turn in episode.turns if turn.agent == agent})) in shown or (
            name == "in turn" and "3" in shown
        )
    again = bots(world)
    assert again == episode


def test_our_views_of_another_librarys_world_show_its_truncations() -> None:
    world = wrap(FOREIGN["one cut"][0], turns=50)
    env = our_parallel_env(world)
    env.reset(seed=0)
    flags = []
    while env.agents:
        _, _, over, cut, _ = env.step(dict.fromkeys(env.agents, "0"))
        flags.append((over, cut))
    assert flags[1] == (
        {"left": False, "right": False},
        {"left": True, "right": False},
    )
    assert flags[3] == ({"right": True}, {"right": False})
    solo = gym_env(wrap(Solo, turns=50), agent="player")
    solo.reset(seed=0)
    assert [solo.step("0")[2:4] for _ in range(3)] == [(False, False)] * 2 + [(False, True)]
