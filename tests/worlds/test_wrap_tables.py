"""Odd PettingZoo environments of users: each works, or is refused in one clear line."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from gem_ma.kernel.errors import ConfigError, ScenarioError
from gem_ma.kernel.scenario import Game
from gem_ma.worlds import wrap

D = spaces.Discrete
ROWS = {  # a space, an answer, what is no answer
    "box": (spaces.Box(-1, 1, (2,)), "0.5 7", "0.5"),
    "several": (spaces.MultiDiscrete([2, 3], start=[1, 1]), "2 3", "0 0"),
    "many": (spaces.MultiDiscrete([100] * 3), "9 99 0", "9 99 100"),
    "dict": (spaces.Dict({"a": D(2), "b": spaces.Box(-1, 1, (1,))}), "1 0.25", "1"),
    "huge": (D(10**9), "123456", "0.5"),
    "text": (spaces.Text(4), "abc", "abcde"),
}


class Hands(ParallelEnv):
    """All show a hand at once, three times."""

    metadata, possible_agents, spaces_of = {"name": "hands"}, ["a", "b"], {}

    def observation_space(self, agent):
        return D(9)

    def action_space(self, agent):
        return self.spaces_of.get(agent, D(2))

    def reset(self, seed=None, options=None):
        self.agents, self.left = list(self.possible_agents), 3
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def told(self, **others):
        """What a step gives, with some of it replaced."""
        self.left -= 1
        ends = dict.fromkeys(self.agents, self.left <= 0)
        result = {
            "seen": dict.fromkeys(self.agents, 0),
            "paid": dict.fromkeys(self.agents, 1.0),
            "ends": ends,
            "cuts": dict.fromkeys(self.agents, False),
            "infos": {agent: {} for agent in self.agents},
        }
        return tuple((result | others).values())

    def step(self, actions):
        for agent in self.agents:
            assert self.action_space(agent).contains(actions[agent]), actions
        result = self.told()
        self.agents = self.agents if self.left else []
        return result


class Turns(AECEnv):
    """Two agents in turn, two turns each; nobody is ever dropped."""

    metadata, possible_agents, space = {"name": "turns"}, ["a", "b"], D(2)

    def __init__(self):
        super().__init__()

    def observation_space(self, agent):
        return D(9)

    def action_space(self, agent):
        return self.space

    def observe(self, agent):
        return 0

    def reset(self, seed=None, options=None):
        self.agents, self.count = list(self.possible_agents), 0
        self.rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict(self.terminations)
        self.infos = dict.fromkeys(self.agents)
        self.agent_selection = self.agents[0]

    def step(self, action):
        if action is None:
            return
        assert self.space.contains(action)
        self.count += 1
        self.rewards = {agent: float(agent == self.agent_selection) for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, self.count == 4)
        self.agent_selection = self.agents[self.count % 2]


def mine(kind, **members):
    return type("Mine", (kind,), members)


def played(env, answer=None):
    game = Game(wrap(env), None, 0)
    while game.pending and game.step < 9:
        game.send({name: answer or asked.legal[-1] for name, asked in game.pending.items()})
    assert game.over
    return {
        agent: sum(entry.value for entry in game.ledger if entry.agent == agent)
        for agent in wrap(env).agents
    }


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("kind", [Hands, Turns])
def test_actions_that_are_no_choice_are_read_out_of_the_answer(kind, case):
    space, answer, wrong = ROWS[case]
    env = mine(kind, space=space, spaces_of={"a": space, "b": space})
    assert set(played(env, answer).values()) <= {2.0, 3.0}
    game = Game(wrap(env), None, 0)
    game.send(dict.fromkeys(game.pending, wrong))
    assert game.over and {entry.why for entry in game.ledger} == {"forfeit"}


def test_one_agent_may_choose_while_another_writes_numbers():
    game = Game(wrap(mine(Hands, spaces_of={"b": spaces.Box(-1, 1, (2,))})), None, 0)
    assert game.pending["a"].legal == ("0", "1") and game.pending["b"].legal is None
    assert "2 numbers" in game.view("b")[0].text and "number" not in game.view("a")[0].text
    game.send({"a": "1", "b": "0.5 -0.5"})
    assert not game.over and len(game.ledger) == 2


@pytest.mark.parametrize("names", [[0, 1], [("red", 0), ("red", 1)], ["a b", "c/d"]], ids=str)
@pytest.mark.parametrize("kind", [Hands, Turns])
def test_agents_may_be_called_by_numbers_and_tuples(kind, names):
    paid = played(mine(kind, possible_agents=names))
    assert [*paid] == [str(name) for name in names] and len(set(paid.values())) == 1


ENDS = {
    "all stay listed": lambda self, actions: self.told(),
    "all are named at once": lambda self, actions: self.told(ends={"__all__": self.left == 1}),
    "all are cut": lambda self, actions: self.told(
        ends={}, cuts=dict.fromkeys(self.agents, self.left == 1)
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_play_ends_when_its_environment_says_so(case):
    assert played(mine(Hands, step=ENDS[case])) == {"a": 3.0, "b": 3.0}


def test_who_ended_alone_is_asked_no_more():
    def step(self, actions):
        assert set(actions) == ({"a", "b"} if self.left == 3 else {"b"})
        paid = dict.fromkeys(actions, 1.0)
        return self.told(paid=paid, ends={"a": True, "b": self.left == 1})

    assert played(mine(Hands, step=step)) == {"a": 1.0, "b": 3.0}


def test_an_environment_in_turns_that_drops_nobody_ends():
    assert played(Turns) == {"a": 2.0, "b": 2.0}


def test_no_info_says_nothing_and_rewards_may_be_arrays():
    def step(self, actions):
        return self.told(infos=None, paid={agent: np.ones(1) for agent in actions})

    assert played(mine(Hands, step=step)) == {"a": 3.0, "b": 3.0}


REFUSED = {
    "graph": ({"spaces_of": {"b": spaces.Graph(D(2), None)}}, "Mine: no answer in words is an"),
    "nobody": ({"possible_agents": []}, "possible_agents wants names that differ"),
    "twins": ({"possible_agents": [1, "1"]}, "possible_agents wants names that differ"),
    "old reset": ({"reset": lambda self, **how: {}}, "reset.. gave dict; it has to give"),
    "no seed": ({"reset": lambda self: None}, "argument 'seed'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_broken_table_is_refused_in_a_line(case):
    members, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as caught:
        wrap(mine(Hands, **members))
    assert "\n" not in str(caught.value)


def test_a_table_without_its_list_of_agents_is_refused():
    class Bare:
        agents = ("a",)

        def reset(self, seed=None): ...

        def step(self, actions): ...

        def action_space(self, agent): ...

    with pytest.raises(ConfigError, match="Bare has no possible_agents"):
        wrap(Bare())


STEPS = {
    "four values": (lambda self, actions: (1, 2, 3, 4), "gave 4 values; it has to give"),
    "no observation": (lambda self, actions: self.told(seen={}), "'a' has to act, and got no obs"),
    "no dict": (lambda self, actions: self.told(paid=1.0), "rewards have to be a dict of agents"),
    "a stranger": (lambda self, actions: self.told(paid={"zz": 1.0}), "reward for 'zz', who is"),
    "rewards": (lambda self, actions: self.told(paid={"a": [1, 2]}), "reward has to be a number"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_broken_step_of_a_table_is_one_line(case):
    step, message = STEPS[case]
    game = Game(wrap(mine(Hands, step=step)), None, 0)
    with pytest.raises(ScenarioError, match=message) as caught:
        game.send({"a": "1", "b": "1"})
    assert "\n" not in str(caught.value)


def test_an_environment_that_asks_who_is_out_is_named_in_a_line():
    def step(self, action):
        self.agents, self.rewards = ["b"], {}

    game = Game(wrap(mine(Turns, step=step)), None, 0)
    with pytest.raises(ScenarioError, match="agent_selection is 'a', who is out; b play on"):
        game.send({"a": "1"})


OPTIONS = {
    "turns": (0, -1, 2.5, "5", None, True, float("nan")),
    "worst": ("x", float("nan"), float("inf"), [1], True),
    "chance": ("no", None, 3),
    "zero_sum": ("no", 1),
    "listed": ("x", None, -1),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_another_kind_is_one_line(option):
    for value in OPTIONS[option]:
        with pytest.raises(ConfigError, match=rf"^Hands: {option} wants .*; got"):
            wrap(Hands, **{option: value})


def test_who_comes_back_plays_again():
    def step(self, actions):
        self.agents = ["a", "b"]
        result = self.told(ends={"a": self.left == 1, "b": self.left in (1, 3)})
        self.agents = {2: ["a"], 1: ["a", "b"], 0: []}[self.left]
        return result

    game = Game(wrap(mine(Hands, step=step)), None, 0)
    asked = []
    while game.pending:
        asked.append("".join(game.pending))
        game.send(dict.fromkeys(game.pending, "1"))
    assert asked == ["ab", "a", "ab"]
