"""The Gymnasium view: one seat is yours, behaviours of every kind sit in the others."""

from __future__ import annotations

import asyncio
import threading

import gymnasium
import numpy as np
import pytest

import gem_ma
from gem_ma import Action, Ask, Leave, Reward, Scenario, Seat
from gem_ma.kernel.errors import ActionError, ConfigError


class Plain:
    """A ready object whose act is no coroutine."""

    def act(self, asked):
        return asked.legal[0]


class Waits:
    """Truly async."""

    threads: set[str] = set()

    async def act(self, asked):
        await asyncio.sleep(0.001)
        self.threads.add(threading.current_thread().name)
        return Action(asked.legal[0])


def seeded(messages, legal, rng):
    return rng.choice(legal)


@pytest.mark.parametrize(
    "other",
    ["first_legal", seeded, Plain(), Waits(), Seat("random_legal")],
    ids=lambda given: type(given).__name__,
)
def test_every_kind_of_behaviour_may_play_the_others(other):
    env = gem_ma.gym_env("dilemma", agent="player_0", others={"player_1": other})
    assert isinstance(env, gymnasium.Env)
    episodes = []
    for _ in range(2):
        observation, info = env.reset(seed=3)
        assert info["active"] and info["action_mask"] == ("cooperate", "defect")
        steps = [env.step("defect") for _ in range(5)]
        assert [step[2] for step in steps] == [False] * 4 + [True]
        episodes.append(steps)
    assert episodes[0] == episodes[1] and observation in env.observation_space


class Bot:
    """Its act is a coroutine that ends at its first step; where it runs is noted."""

    threads: set[str] = set()

    def __init__(self, agent, sample, rng, task=None):
        pass

    async def act(self, asked):
        self.threads.add(threading.current_thread().name)
        return asked.legal[0]


class DeclaredBot(Bot):
    waits = False


class Liar(DeclaredBot):
    async def act(self, asked):
        await asyncio.sleep(0)
        return asked.legal[0]


@pytest.mark.parametrize("factory", [Bot, DeclaredBot])
def test_who_declares_that_it_never_waits_is_run_in_place(factory):
    Bot.threads.clear()
    env = gem_ma.gym_env("dilemma", agent="player_0", others={"player_1": factory})
    env.reset(seed=0)
    env.step("defect")
    here = threading.current_thread().name
    assert Bot.threads == ({here} if factory is DeclaredBot else {"gem_ma behaviours"})


def test_who_waits_in_spite_of_its_declaration_is_told_so_in_one_line():
    env = gem_ma.gym_env("dilemma", agent="player_0", others={"player_1": Liar})
    env.reset(seed=0)
    with pytest.raises(ActionError, match=r"'player_1'.*`waits = False` and has waited"):
        env.step("defect")


def test_the_bots_that_come_with_the_library_declare_it():
    from gem_ma.agents import CATALOG

    from gem_ma.driver.behaviour import as_factory, waits

    immediate = {name for name in CATALOG if not waits(as_factory(name))}
    assert {"random_legal", "first_legal", "silent", "retail_user", "retail_oracle"} <= immediate
    assert not immediate & {"direct", "tool_calling", "user_llm", "tic_tac_toe_by_board"}


def test_behaviours_that_wait_share_one_private_thread():
    Waits.threads.clear()
    for _ in range(2):
        env = gem_ma.gym_env("dilemma", agent="player_0", others={"player_1": Waits()})
        env.reset(seed=0)
        env.step("defect")
    assert Waits.threads == {"gem_ma behaviours"}


def test_it_works_inside_a_running_event_loop():
    async def inside():
        env = gem_ma.gym_env("dilemma", agent="player_0", others={"player_1": Waits()})
        env.reset(seed=0)
        return env.step("defect")[1]

    assert asyncio.run(inside()) == 5.0


class Short(Scenario):
    """May be over before Bob is asked; Ann may leave while Bob goes on."""

    agents = ("ann", "bob")
    chance = False

    def play(self, rng, task):
        yield Reward({"bob": 0.25})
        said = yield Ask({"ann": "stop or go"}, legal=("stop", "go"))
        if said["ann"].parsed == "stop":
            yield Reward({"bob": 1.0})
            return
        yield Reward({"ann": 2.0})
        yield Leave("ann")
        yield Ask({"bob": "?"})
        yield Ask({"bob": "?"})


def test_a_play_that_ends_before_the_agent_is_asked_pays_at_the_first_step():
    env = gem_ma.gym_env(Short, agent="bob", others={"ann": lambda messages, legal, rng: "stop"})
    _, info = env.reset(seed=0)
    assert not info["active"] and info["active_agents"] == ()
    assert env.step("whatever")[1:4] == (1.25, True, False)
    with pytest.raises(ActionError, match="over"):
        env.step("more")


def test_an_agent_that_leaves_is_done_while_others_go_on():
    env = gem_ma.gym_env(Short, agent="ann", others={"bob": "silent"})
    env.reset(seed=0)
    assert env.step("go")[1:4] == (2.0, True, False)


def test_a_limit_counts_the_steps_of_all_and_truncates():
    env = gem_ma.gym_env(
        Short, agent="bob", others={"ann": lambda messages, legal, rng: "go"}, max_steps=2
    )
    env.reset(seed=0)
    assert env.step("x")[2:4] == (False, True)


@pytest.mark.parametrize(
    ("agent", "others", "says"),
    [
        ("player_0", {}, "player_1"),
        ("player_9", {"player_1": "silent"}, "player_9"),
        ("player_0", {"player_0": "silent", "player_1": "silent"}, "yours"),
        ("player_0", {"player_1": "silent", "ghost": "silent"}, "ghost"),
        ("player_0", {"player_1": "silnt"}, "silent"),
        ("player_0", {"player_1": 3}, "behaviour"),
        ("player_0", ["silent"], "others"),
    ],
)
def test_a_wrong_cast_is_one_clear_line(agent, others, says):
    with pytest.raises(ConfigError, match=says):
        gem_ma.gym_env("dilemma", agent=agent, others=others)


def test_a_wrong_action_changes_nothing_and_a_wrong_behaviour_is_named():
    env = gem_ma.gym_env("dilemma", agent="player_0", others={"player_1": "silent"})
    with pytest.raises(ActionError, match="reset"):
        env.step("defect")
    env.reset(seed=0)
    with pytest.raises(ActionError, match="player_0"):
        env.step(3)
    assert env.game.step == 0

    class Mute:
        async def act(self, asked):
            return None

    env = gem_ma.gym_env("dilemma", agent="player_0", others={"player_1": Mute()})
    env.reset(seed=0)
    with pytest.raises(ActionError, match="player_1"):
        env.step("defect")


def test_a_negative_seed_is_refused_as_gymnasium_refuses_it():
    chosen = {"agent": "player_0", "others": {"player_1": "random_legal"}}
    env = gem_ma.gym_env("kuhn_poker", **chosen)
    views = (env, gem_ma.aec_env("kuhn_poker"), gem_ma.parallel_env("kuhn_poker"))
    # random.Random(-3) is random.Random(3): one play would go by two seeds
    for view in (*views, gem_ma.make_vec("kuhn_poker", **chosen)):
        with pytest.raises(ConfigError, match="a seed is 0 or more; got -3"):
            view.reset(seed=-3)
    assert env.reset(seed=np.int64(3)) == env.reset(seed=3) and env.np_random_seed == 3
