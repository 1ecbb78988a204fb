"""Odd environments of users: each works, or is refused in one clear line."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ConfigError, ScenarioError
from gem_ma.kernel.scenario import Game
from gem_ma.registry import make
from gem_ma.worlds import line, wrap
from gem_ma.worlds.spaces import words

D = spaces.Discrete
ACTIONS = [  # a space, an answer, the action that it means
    (spaces.MultiBinary(3), "0 1 1", [0, 1, 1]),
    (spaces.MultiBinary(40), "0 1 " * 20, [0, 1] * 20),
    (spaces.MultiDiscrete([3, 3], start=[5, 7]), "6 8", [6, 8]),
    (spaces.MultiDiscrete([[2, 3], [2, 2]]), "1 2 0 1", [[1, 2], [0, 1]]),
    (spaces.MultiDiscrete([100] * 3), "5, 6 and 7", [5, 6, 7]),
    (spaces.Tuple((D(2), D(3, start=4))), "1 6", (1, 6)),
    (spaces.Dict({"a": D(2), "b": spaces.Tuple((D(3), spaces.MultiBinary(2)))}), "1 2 0 1", None),
    (spaces.Dict({"a": D(2), "b": spaces.Box(-1, 1, (2,))}), "1 0.5 -0.5", None),
    (D(3, start=-1), "-1", -1),
    (D(10**9), "12345", 12345),
    (spaces.Box(0, 255, (2,), np.uint8), "300 20", [255, 20]),
    (spaces.Box(0, 10, (1,), np.int64), "1e999", [10]),
    (spaces.Box(-1, 1, ()), "0.5", 0.5),
    (spaces.Text(5), "abc", "abc"),
]
UNREADABLE = [  # beyond what the dtype can hold, too few, too many, a fraction of a choice
    (spaces.Box(-np.inf, np.inf, (1,), np.float32), "1e39"),
    (spaces.Box(-np.inf, np.inf, (1,)), "1e999"),
    (spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64), "1e30"),
    (spaces.MultiDiscrete([100] * 3), "1 2"),
    (spaces.MultiDiscrete([100] * 3), "1 2 3 4"),
    (spaces.MultiDiscrete([100] * 3), "1 2 100"),
    (D(10**9), "0.5"),
]
UNANSWERABLE = [
    None,
    spaces.Sequence(D(3)),
    spaces.Graph(D(3), D(2)),
    spaces.OneOf((D(3), D(2))),
    spaces.Dict({"a": D(2), "t": spaces.Text(4)}),
    spaces.Tuple(()),
]


class Steps(gymnasium.Env):
    """Four steps; holds what it was stepped by."""

    action_space, observation_space = D(2), spaces.Box(-9, 9, (1,))
    actions_taken: list = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        type(self).actions_taken.append(action)
        self.count += 1
        return np.zeros(1), 1.0, self.count >= 4, False, {}


def steps(**members):
    return type("Mine", (Steps,), {"actions_taken": [], **members})


@pytest.mark.parametrize(("space", "answer", "action"), ACTIONS, ids=str)
def test_an_action_that_is_a_row_of_numbers_can_be_answered(space, answer, action):
    env = steps(action_space=space)
    game = Game(wrap(env, chance=False), None, 0)
    game.send({"player": answer.strip()})
    taken = env.actions_taken[-1]
    assert space.contains(taken) and len(game.ledger) == 1
    if action is not None:
        assert np.array_equal(taken, action)


@pytest.mark.parametrize(("space", "answer"), UNREADABLE, ids=str)
def test_an_answer_that_is_no_action_is_asked_again_with_the_space(space, answer):
    env = steps(action_space=space)
    game = Game(wrap(env, chance=False), None, 0)
    assert "An action is" in game.view("player")[0].text
    game.send({"player": answer})
    assert not env.actions_taken and "An action is" in game.new("player")[-1].text


@pytest.mark.parametrize("space", UNANSWERABLE, ids=str)
def test_an_action_that_no_answer_can_be_is_refused_in_a_line(space):
    with pytest.raises(ConfigError, match=r"^Mine: no answer in words is an action of") as caught:
        wrap(steps(action_space=space))
    assert "\n" not in str(caught.value)


def raises(*_, **__):
    raise RuntimeError("kaput\nsecond line")


def gives(*values):
    return lambda self, action: values


SEEN = np.zeros(1)
BROKEN = {
    "init": (steps(__init__=raises), "cannot be started: kaput second line"),
    "reset": (steps(reset=raises), "cannot be played: kaput second line"),
    "step": (steps(step=raises), "cannot be played: kaput second line"),
    "exit": (steps(step=lambda self, action: sys.exit(3)), "SystemExit: 3"),
    "function": (raises, "cannot be started: kaput"),
    "no seed": (steps(reset=lambda self: (SEEN, {})), "argument 'seed'"),
    "old reset": (steps(reset=lambda self, **how: SEEN), "reset.. gave ndarray; it has to give"),
    "old step": (steps(step=gives(SEEN, 1.0, True, {})), "step.. gave 4 values; it has to give"),
    "no step": (steps(step=lambda self, action: None), "step.. gave NoneType"),
    "no reward": (steps(step=gives(SEEN, None, True, False, {})), "a reward has to be a number"),
    "rewards": (steps(step=gives(SEEN, np.ones(2), True, False, {})), "a reward has to be a num"),
    "ends": (steps(step=gives(SEEN, 1.0, np.ones(2), False, {})), "terminated has to be true or"),
    "vector": (gymnasium.vector.SyncVectorEnv([Steps] * 2), "is made of 2 environments"),
    "short mask": (
        steps(reset=lambda self, **how: (SEEN, {"action_mask": [1]})),
        "an action_mask of 1 places came with 2 actions",
    ),
    "empty mask": (
        steps(reset=lambda self, **how: (SEEN, {"action_mask": np.zeros(2)})),
        "an action_mask allowed no action",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_environment_is_refused_in_a_line(case):
    env, message = BROKEN[case]
    with pytest.raises(ConfigError, match=message) as caught:
        wrap(env)
    assert "\n" not in str(caught.value)


def test_a_fault_of_many_lines_in_a_play_is_one_line():
    with pytest.raises(ScenarioError, match="kaput second line"):
        Game(wrap(steps(step=raises), chance=False), None, 0).send({"player": "1"})


def test_an_array_of_one_reward_is_that_reward_and_no_info_says_nothing():
    env = steps(step=gives(SEEN, np.array([2.0]), np.array([True]), False, None))
    game = Game(wrap(env), None, 0)
    game.send({"player": "1"})
    assert game.over and game.ledger[-1].value == 2.0


def test_a_wrapper_that_limits_time_cuts_a_play_and_ends_none():
    scenario = wrap(lambda: TimeLimit(Steps(), 3))
    assert scenario.limits == Limits(max_steps=3)
    assert wrap(lambda: TimeLimit(Steps(), 3), turns=9).limits == Limits(max_steps=3)
    game = Game(scenario, None, 0)
    for _ in range(3):
        game.send({"player": "1"})
    assert not game.over


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (np.array(["a", "b"]), "a b"),
        (np.array([None, "x"], dtype=object), "None x"),
        (np.array([1j]), "1j"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "2020-01-01"),
        ({"image": "no", "mission": "x"}, "image: no\nmission: x"),
        ({"image": np.full((1, 1, 3), 99), "mission": "x"}, "image: 99 99 99\nmission: x"),
        ({"image": np.zeros((1, 1, 3)), "mission": 3}, "image: 0 0 0\nmission: 3"),
    ],
)
def test_any_observation_has_words(seen, text):
    assert words(seen) == text


def test_what_is_remembered_of_long_texts_is_bounded_by_their_length():
    shelf = line.Shelf(9, most=100)
    for number in range(9):
        shelf.put(bytes([number]), number, weight=30)
    assert list(shelf.values.values()) == [6, 7, 8]
    shelf.put(b"8", "light", weight=1)
    assert len(shelf.values) == 4 and shelf.weight == 91
    stop = line.Stop((line.Tell({"a": "12345"}),), {"a": ("123", "4567")})
    assert line._weight(stop) == 12


def test_a_fault_names_the_environment_whatever_options_are_typed():
    broken = steps(reset=raises)
    with pytest.raises(ConfigError, match=r"^Mine: cannot be played: kaput second line$"):
        wrap(broken, turns=3, chance=False)


def test_tensors_are_read_like_arrays():
    class Tensor:  # as torch's: `size` is a method, and a dtype has no kind
        dtype, shape = "torch.float32", (1,)
        size = item = ravel = lambda self: self
        __float__, __bool__ = (lambda self: 2.0), (lambda self: True)

        def tolist(self):
            return [0.5]

    env = steps(step=gives(Tensor(), Tensor(), Tensor(), False, {}))
    game = Game(wrap(env), None, 0)
    game.send({"player": "1"})
    assert game.over and game.ledger[-1].value == 2.0 and words(Tensor()) == "0.5"


def raising(error):
    def told(self):
        raise error

    return property(told)


@pytest.mark.parametrize("error", [RuntimeError("kaput\nsecond line"), AttributeError("kaput")])
@pytest.mark.parametrize("member", ["action_space", "possible_agents", "num_envs", "unwrapped"])
def test_a_property_that_raises_is_one_line(member, error):
    with pytest.raises(ConfigError, match=r"^Mine: cannot be (started|played): kaput") as caught:
        wrap(steps(**{member: raising(error)}))
    assert "\n" not in str(caught.value)


OPTIONS = {
    "turns": (0, -1, 2.5, "5", True, [1], float("nan"), np.int64(3)),
    "foul": ("-1", None, float("nan"), float("inf"), [1], True),
    "chance": ("no", 3, [1]),
    "listed": ("x", None, -1, 1.5, True),
    "brief": (3, None, ["x"]),
    "actions": ("ab", 3, ["a", 1], ["a", "a"], ["a b", "A  B"], ["a", ""], {"a": 1, "b": 2}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_another_kind_is_one_line(option):
    for value in OPTIONS[option]:
        with pytest.raises(ConfigError, match=rf"^Steps: {option} wants .*; got") as caught:
            wrap(Steps, **{option: value})
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"FrozenLake-v1'?: turns "):
        make("gymnasium:FrozenLake-v1", turns="5")


@pytest.mark.parametrize("declared", ["20", [1], -20, True, float("nan"), None])
def test_a_declared_limit_that_is_none_limits_nothing(declared):
    assert wrap(steps(max_steps=declared, _max_episode_steps=declared)).limits.max_steps == 200
    assert wrap(steps(max_steps=np.int64(3))).limits.max_steps == 3


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"b", "a", "c"}, "a, b, c"),
        ([np.zeros(2), 1.0], "0 0, 1"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), "1 --"),
    ],
)
def test_an_observation_has_the_same_words_in_every_process(seen, text):
    assert words(seen) == text


def test_an_object_without_words_of_its_own_is_the_same_in_every_play():
    thing = type("Thing", (), {})
    env = steps(reset=lambda self, **how: (thing(), {}), step=gives(thing(), 0.0, True, False, {}))
    assert "0x" not in words(thing()) and not wrap(env).chance
    assert "0x" not in words(np.array([thing()], dtype=object))


@pytest.mark.parametrize("mask", [np.ones((2, 2)), np.array(1), "ab", 1])
def test_a_mask_that_is_no_row_is_one_line(mask):
    with pytest.raises(ConfigError, match="Mine: cannot be played: an action_mask"):
        wrap(steps(reset=lambda self, **how: (SEEN, {"action_mask": mask})))


def test_an_environment_that_is_its_own_copy_is_refused_unless_it_is_made_anew():
    class Shared(Steps):
        def __deepcopy__(self, memo):
            return self

    with pytest.raises(ConfigError, match="its copy is itself"):
        wrap(Shared())
    assert wrap(Shared).agents == ("player",)


def test_what_draws_nothing_is_shown_by_its_observation():
    class Blank(Steps):
        render_mode = "ansi"

        def render(self):
            return None

    assert "None" not in Game(wrap(Blank), seed=0).view("player")[-1].text
