"""Gymnasium and PettingZoo in text, and a user's own environments of them."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from pettingzoo import ParallelEnv

from gem_ma import registry
from gem_ma.cli.main import main
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.testing import check_scenario
from gem_ma.testing.fresh import described, rebuilt
from gem_ma.worlds import line, wrap
from gem_ma.worlds.copies import whole_copy
from gem_ma.worlds.foreign import FOUL

FEW = (9, 12, 13)  # rules of the views, which know nothing of adapters


class Walk(gymnasium.Env):
    """A walk on a line; the wind is drawn at each step."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-9, 9, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.array([0.0]), {}

    def step(self, action):
        print("a step")
        self.place += (1 if action else -1) * int(self.np_random.integers(1, 3))
        over = abs(self.place) >= 6
        return np.array([float(self.place)]), float(self.place >= 6), over, False, {}


class Reach(Walk):
    """The same by a number."""

    action_space = spaces.Box(-1.0, 1.0, (2,))

    def step(self, action):
        self.place = float(action.sum())
        return np.array([self.place]), self.place, False, False, {}


class Hands(ParallelEnv):
    """Two agents show a hand at once, three times; the first wins where both are alike."""

    metadata = {"name": "hands"}
    possible_agents = ["odd", "even"]

    def __init__(self):
        self.render_mode = None

    def observation_space(self, agent):
        return spaces.Discrete(9)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.left = list(self.possible_agents), 3
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.left -= 1
        value = 1 if actions["odd"] == actions["even"] else -1
        over = dict.fromkeys(self.agents, self.left == 0)
        seen = {"odd": int(actions["even"]), "even": int(actions["odd"])}
        paid, infos = {"odd": value, "even": -value}, {agent: {} for agent in self.agents}
        self.agents = [] if self.left == 0 else self.agents
        return seen, paid, over, dict.fromkeys(over, False), infos


def finished(fork, parent):
    while fork.pending and fork.step < parent.step:
        fork.send({turn.agent: turn.action for turn in parent.turns if turn.step == fork.step})
    return fork


@pytest.mark.parametrize("env", [Walk(), Walk, lambda: Walk()])
def test_a_users_environment_is_a_scenario_that_forks_exactly(env, capsys):
    scenario = wrap(env, turns=30, actions=["back", "forth"])
    assert scenario.limits == Limits(max_steps=30) and scenario.chance
    game = Game(scenario, None, 3)
    while game.pending:
        game.send({"player": "forth"})
    assert game.step > 3 and [entry.value for entry in game.ledger] == [1.0]
    assert finished(game.fork(2), game).turns == game.turns
    line.forget()
    assert finished(game.fork(2), game).turns == game.turns
    assert capsys.readouterr().out == ""


class Pickled(Walk, EzPickle):
    """Its copies by pickle begin anew."""

    def __init__(self):
        EzPickle.__init__(self)


def test_a_fork_takes_a_copy_that_stands_where_its_original_stood(monkeypatch):
    monkeypatch.setattr(line, "perf_counter", lambda: 0.0)  # a copy costs nothing
    monkeypatch.setattr(line, "COSTS", {})
    game = Game(wrap(Pickled, turns=30), None, 3)
    for _ in range(2):
        game.send({"player": "0"})
    fork = game.fork(1)
    fork.send({"player": "1"})  # from a copy
    line.forget()
    again = game.fork(1)
    again.send({"player": "1"})  # stepped anew
    assert fork.view("player") == again.view("player")


def test_copies_in_threads_stand_where_their_originals_stand():
    env = Pickled()
    env.reset(seed=1)
    env.place = 3
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as threads:
            copies = threads.map(lambda number: whole_copy(env).place, range(200))
            assert set(copies) == {3}
    finally:
        sys.setswitchinterval(before)


def test_two_plays_of_one_object_do_not_disturb_each_other():
    scenario = wrap(Walk(), turns=30)
    alone = Game(scenario, None, 1)
    alone.send({"player": "1"})
    line.forget()
    first, second = Game(scenario, None, 1), Game(scenario, None, 2)
    second.send({"player": "0"})
    first.send({"player": "1"})
    assert first.view("player") == alone.view("player")


def test_numbers_are_read_out_of_a_text_and_kept_within_bounds():
    game = Game(wrap(Reach(), turns=5, chance=False), None, 0)
    assert game.pending["player"].legal is None
    game.send({"player": "I push 0.25 and then 7"})
    assert game.ledger[-1].value == 1.25
    game.send({"player": "harder"})
    assert "Box" in game.new("player")[-1].text and len(game.ledger) == 1


@pytest.mark.parametrize("env", [Walk, Reach])
def test_an_unreadable_answer_has_the_price_that_is_typed(env):
    game = Game(wrap(env, turns=3, chance=False, foul=-0.5), None, 0)
    game.send({"player": "harder"})
    assert [(entry.value, entry.why) for entry in game.ledger] == [(-0.5, FOUL)]
    game.send({"player": "1 1"})
    assert game.step == 2 and not game.over


@pytest.mark.long
def test_a_parallel_environment_asks_all_at_once():
    scenario = wrap(Hands(), zero_sum=True, chance=False, worst=-3.0)
    game = Game(scenario, None, 0)
    assert set(game.pending) == {"odd", "even"}
    game.send({"odd": "1", "even": "1"})
    game.send({"odd": "1", "even": "hm"})
    paid = {
        agent: sum(e.value for e in game.ledger if e.agent == agent)
        for agent in Hands.possible_agents
    }
    assert game.over and paid == {"odd": 3.0, "even": -3.0}
    check_scenario(scenario, seeds=range(3), skip=FEW)


def test_a_time_limit_cuts_and_an_end_ends():
    lake = registry.make("gymnasium:FrozenLake-v1", is_slippery=False)
    assert lake.limits == Limits(max_steps=100) and not lake.chance
    game = Game(lake, None, 0)
    assert "FrozenLake" in game.view("player")[0].text
    assert game.view("player")[1].text.startswith("[S]FFF")
    for move in ("down", "down", "right", "right", "down", "right"):
        game.send({"player": move})
    assert game.over and [entry.value for entry in game.ledger] == [1.0]


def test_what_is_no_environment_is_refused_in_a_line():
    with pytest.raises(ConfigError, match="takes an environment"):
        wrap(dict)
    with pytest.raises(ConfigError, match="no option 'turn'; it has turns"):
        wrap(Walk, turn=3)
    with pytest.raises(ConfigError, match="Did you mean"):
        registry.make("gymnasium:FrozenLke-v1")
    with pytest.raises(ConfigError, match="there is no environment 'chekers_v1'"):
        registry.make("pettingzoo:chekers_v1")
    walk = Walk()
    walk.held = (n for n in ())
    with pytest.raises(ConfigError, match="pass a function that makes it"):
        wrap(walk)


OWN = """
import gymnasium
from gem_ma.worlds import wrap
from tests.worlds.test_wrap import Walk

def made():
    return wrap(Walk, turns=6)

walk = made()
gymnasium.register("OwnWalk-v0", Walk, max_episode_steps=6)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_walk.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    sys.modules.pop("own_walk", None)
    gymnasium.registry.pop("OwnWalk-v0", None)


@pytest.mark.long
@pytest.mark.parametrize("name", ["own_walk.py", "own_walk.py:walk", "own_walk:walk"])
def test_a_config_names_a_wrapped_environment_by_its_file(own, name):
    made = registry.make(name)
    assert (made.id, made.turns) == (name, 6)
    assert registry.load("scenarios", name)().id == ""  # the one in the file got no id
    assert main(["run", name, "-n", "2", "--quiet"]) == 0
    assert main(["run", name, "scenario.turns=3", "--quiet"]) == 2  # it is made already


def test_fresh_processes_play_a_wrapped_environment_alike(own, monkeypatch):
    again = rebuilt(described(registry.make("own_walk.py")))
    assert (again.id, again.turns, again.agents) == ("own_walk.py", 6, ("player",))


def test_an_id_of_a_module_is_registered_by_its_import(own):
    made = registry.make("gymnasium:own_walk:OwnWalk-v0")
    assert made.turns == 6
    game = Game(made, None, 1)
    game.send({"player": "1"})
    assert game.step == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "tests.worlds.test_wrap:Walk",
            "one is made of an environment by: game = gem_ma.worlds.wrap",
        ),
        ("own_walk.py:made", "a config calls no function"),
        ("os:abort", "a config calls no function"),  # it would end this very process
    ],
)
def test_what_is_no_scenario_is_not_called_and_is_told_how_to_become_one(own, name, words, capsys):
    assert main(["run", name, "--quiet"]) == 2
    assert words in capsys.readouterr().err
