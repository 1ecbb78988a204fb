"""Other libraries' habits: Gymnasium's registry, numbered actions with a mask, plain texts, and
GEM's calls."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import gem_ma
from gem_ma import registry
from gem_ma.envs import gem_api as gym_like
from gem_ma.envs.registration import FIRST, VERSIONS
from gem_ma.kernel.errors import ActionError, ConfigError
from tests.command_line import environment

TRY = "env = gymnasium.make('{}'); env.reset(seed=1); print(env.spec.id)"


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "env_id"),
    [
        ("import gem_ma, gymnasium", "gem_ma/kuhn_poker-v1"),
        ("import gymnasium, gem_ma", "gem_ma/kuhn_poker-v1"),
        ("import gymnasium", "gem_ma:gem_ma/kuhn_poker-v1"),
    ],
)
def test_an_id_is_there_in_whichever_order_things_are_imported(first: str, env_id: str) -> None:
    command = [sys.executable, "-W", "error", "-c", f"{first}\n{TRY.format(env_id)}"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout == "gem_ma/kuhn_poker-v1\n", done.stderr


def test_every_scenario_is_registered_in_its_version() -> None:
    ids = {env_id for env_id in gymnasium.registry if env_id.startswith("gem_ma/")}
    made = {name: registry.load("scenarios", name) for name in registry.builtin("scenarios")}
    assert ids == {f"gem_ma/{name}-v{made[name].version}" for name in made}
    assert all(VERSIONS.get(name, FIRST) == factory.version for name, factory in made.items())


def test_views_of_an_id_pass_the_checker_and_seat_everybody() -> None:
    for obs in ("chat", "text", "discrete"):
        check_env(gymnasium.make("gem_ma/kuhn_poker-v1", obs=obs).unwrapped, skip_render_check=True)
    env = gymnasium.make(
        "gem_ma/tic_tac_toe-v1", agent="o", others={"x": "first_legal"}, obs="text"
    )
    text, _ = env.reset(seed=1)
    assert text.startswith("Tic-tac-toe. You are o.") and "Board: x 2 3" in text
    # only what is new, and nothing of what it said itself
    text, *_ = env.step("5")
    assert text == "Board: x x 3 / 4 o 6 / 7 8 9 Your move."
    with pytest.raises(ConfigError, match="chat, text, discrete"):
        gymnasium.make("gem_ma/kuhn_poker-v1", obs="pixels")


def test_numbers_stand_for_legal_strings_and_the_mask_says_which() -> None:
    env = gem_ma.discrete("tic_tac_toe", agent="x", others={"o": "random_legal"}, window=16)
    assert env.actions == tuple("123456789")
    rng = np.random.default_rng(0)
    for seed in range(20):
        vector, info = env.reset(seed=seed)
        ended = False
        while not ended:
            assert env.observation_space.contains(vector) and vector.sum() == 16
            legal = env.chat.game.pending["x"].legal
            assert [env.actions[n] for n in np.flatnonzero(env.action_masks())] == list(legal)
            action = rng.choice(np.flatnonzero(info["action_mask"]))
            vector, _, terminated, truncated, info = env.step(action)
            ended = terminated or truncated
        assert info["illegal"] is False and info["action_mask"].all()
    # the same play as that of texts
    chat = gem_ma.gym_env("tic_tac_toe", agent="x", others={"o": "random_legal"})
    env.reset(seed=3), chat.reset(seed=3)
    assert env.step(4)[1:4] == chat.step("5")[1:4]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "wrapper", ["OrderEnforcingWrapper", "AssertOutOfBoundsWrapper", "BaseWrapper"]
)
def test_wrappers_of_pettingzoo_pass_its_suite(wrapper: str) -> None:
    from pettingzoo.test import api_test
    from pettingzoo.utils import wrappers

    api_test(getattr(wrappers, wrapper)(gem_ma.aec_env("kuhn_poker")), 10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [None, {"num_episodes": 2}])
def test_wrappers_of_parallel_environments_pass_its_suite(options: dict[str, int] | None) -> None:
    from pettingzoo.test import parallel_api_test
    from pettingzoo.utils import wrappers

    wrapper = wrappers.MultiEpisodeParallelEnv if options else wrappers.BaseParallelWrapper
    parallel_api_test(wrapper(gem_ma.parallel_env("dilemma"), **(options or {})), 20)


@pytest.mark.parametrize("others", ["random_legal", 5, ["random_legal"]])
def test_who_plays_is_named_agent_by_agent(others: Any) -> None:
    for make in (gem_ma.gym_env, gym_like.make):
        with pytest.raises(ConfigError, match="others is "):
            make("kuhn_poker", agent="player_0", others=others)
    with pytest.raises(ConfigError, match="at least one"):
        gym_like.make_vec("kuhn_poker", 0)


@pytest.mark.parametrize("env_id", ["rg:leg_counting", "math:GSM8K", "qa:HotpotQA", "code:Taco8k"])
def test_ids_of_gem_that_are_something_else_here_say_what(env_id: str) -> None:
    with pytest.raises(ConfigError, match=r"reasoning_gym:|make\('(questions|code)'"):
        gym_like.make(env_id)


def test_what_has_no_numbers_says_so() -> None:
    with pytest.raises(ConfigError, match="free text"):
        gem_ma.discrete("retail", agent="assistant")
    with pytest.raises(ConfigError, match="seated already"):
        gem_ma.discrete(gem_ma.gym_env("guess_number", agent="player"), agent="player")
    env = gem_ma.discrete("tic_tac_toe", agent="x", actions=["1", "2"])
    with pytest.raises(ActionError, match="actions="):
        env.reset(seed=1)
    env = gem_ma.discrete("kuhn_poker", agent="player_0")
    env.reset(seed=1)
    with pytest.raises(ActionError, match="0 to 3"):
        env.step(7)
    # an array of 2^31 letters would be asked for
    chat = gem_ma.gym_env("guess_number", agent="player")
    for space in (chat.observation_space, chat.action_space):
        with pytest.raises((TypeError, ValueError), match=r"no flat form|cannot be flattened"):
            gymnasium.spaces.flatdim(space)


def test_a_vector_of_ones_own_takes_the_place_of_the_words() -> None:
    def count(seen: dict) -> np.ndarray:  # type: ignore[type-arg]
        return np.array([len(seen["messages"])], np.float32)

    env = gem_ma.discrete("guess_number", agent="player", encode=count)
    vector, _ = env.reset(seed=1)
    assert vector.tolist() == [1.0] and env.observation_space.shape == (1,)
    assert env.step(0)[0].tolist() == [3.0]


# -- GEM's calls ---------------------------------------------------------------------------------


def test_a_loop_of_gem_plays_and_a_copy_goes_on_alike() -> None:
    for env_id in ("game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "kuhn_poker"):
        env = gym_like.make(env_id)
        text, _ = env.reset(seed=3)
        assert isinstance(text, str) and text
        ended = False
        while not ended:
            copy = env.spawn(same_state=True)
            action = env.sample_random_action()
            assert copy.sample_random_action() == action
            step = env.step(action)
            assert copy.step(action)[:4] == step[:4]
            ended = step[2] or step[3]
        with pytest.raises(ActionError):
            env.step(action)


def test_many_are_stepped_together_and_what_ended_begins_anew() -> None:
    envs = gym_like.make_vec("game:GuessTheNumber-v0-easy", 3, wrappers=["concat"], seed=5)
    texts, _ = envs.reset()
    assert len(texts) == envs.num_envs == 3 and len({id(env) for env in envs.envs}) == 3
    for _ in range(4):
        _, _, over, _, infos = envs.step(["\\boxed{1}"] * 3)
    assert any(over)
    assert all(("final_obs" in info) == ended for info, ended in zip(infos, over, strict=True))
    assert len(envs.step({1: "2"})[0]) == 1
    gym_like.register("mine:Game-v0", "guess_number", numbers=3)
    assert "1 to 3" in gym_like.make("mine:Game-v0").reset(seed=1)[0]
    with pytest.raises(ConfigError, match="registered already"):
        gym_like.register("mine:Game-v0", "dilemma")


ODD: tuple[Any, ...] = (None, -1, 1.5, "x", "json:loads", "os:getpid", [1], {"a": 1}, b"x", set())
ODD += (object(), int, lambda: 1)


@pytest.mark.parametrize(
    "made",
    [
        lambda odd: registry.make(odd),
        lambda odd: registry.make("guess_number", numbers=odd),
        lambda odd: registry.make("kuhn_poker", wrappers=[odd]),
        lambda odd: registry.make("kuhn_poker", wrappers=[{"reward": odd}]),
        lambda odd: gem_ma.make_vec(odd),
        lambda odd: gem_ma.make_vec([{"id": odd}]),
        lambda odd: gem_ma.make_vec("guess_number", 2, numbers=odd),
        lambda odd: gem_ma.make_vec("guess_number", 2, agent=odd or 1),
        lambda odd: gem_ma.make_vec("guess_number", 2, others=odd or 1),
        lambda odd: gem_ma.make_vec("guess_number", 2, limits=odd or 1),
        lambda odd: gym_like.make(odd),
        lambda odd: gym_like.make("guess_number", numbers=odd),
        lambda odd: gym_like.make_vec(odd, 2),
        lambda odd: gym_like.make_vec("guess_number", odd),
        lambda odd: gym_like.make_vec("guess_number", wrappers=odd),
        lambda odd: gym_like.make_vec("guess_number", wrappers=[odd]),
        lambda odd: gym_like.make_vec("guess_number", seed=2.5 if odd == -1 else odd),
        lambda odd: gym_like.register(1 if isinstance(odd, str) else odd, "guess_number"),
        lambda odd: _stepped(gym_like.make_vec("guess_number", 2), odd),
    ],
)
def test_what_fits_no_option_is_one_line_from_python_too(made: Any) -> None:
    for odd in ODD:
        try:
            made(odd)
        except (ConfigError, ActionError) as error:
            assert len(str(error).splitlines()) == 1
        except TypeError as error:
            # a function that a caller hands over fails as it fails
            assert "'Env'" in str(error) or "<lambda>" in str(error)
        else:
            pytest.fail(f"{odd!r} was taken")


def _stepped(many: Any, actions: Any) -> None:
    many.reset()
    many.step(actions)


def test_a_step_that_is_refused_moves_no_environment() -> None:
    many = gym_like.make_vec("guess_number", 2)
    many.reset()
    with pytest.raises(ActionError, match="no environment is 7; they are 0 to 1"):
        many.step({0: "5", 7: "5"})
    for odd in (["3", None], ["3"]):
        with pytest.raises(ActionError, match="environment"):
            many.step(odd)
    assert [env._env.game.step for env in many.envs] == [0, 0]


class _Endless(gem_ma.Scenario):
    """A walk that its limit alone ends, over tasks of one split."""

    agents = ("walker",)
    chance = False
    limits = gem_ma.Limits(max_steps=3)

    def tasks(self, split: str) -> Any:
        return ("red", "blue") if split == "test" else ()

    def play(self, rng: Any, task: Any) -> Any:
        while True:
            yield gem_ma.Ask({"walker": f"to {task}"}, legal=("left", "right"))


def test_what_is_explored_are_the_tasks_and_limits_that_are_played() -> None:
    env = gem_ma.discrete(_Endless, split="test")
    assert {"red", "blue"} <= set(env.words) and env.reset(seed=0)[0].any()
    env.step(0), env.step(1)
    assert env.step(1)[3]
    running = gem_ma.gym_env(_Endless, agent="walker", split="test", task="red")
    running.reset(seed=0)
    assert "blue" not in gem_ma.discrete(running).words
    assert not running.step("left")[3]  # exploring has not touched its play
    with pytest.raises(ConfigError, match="leave obs out"):
        gem_ma.discrete(gem_ma.gym_env("guess_number", agent="player", obs="text"))


def test_a_refused_step_of_the_gem_loop_leaves_a_play_that_can_be_copied() -> None:
    env = gym_like.make("guess_number")
    env.reset(seed=1)
    with pytest.raises(ActionError):
        env.step(None)  # type: ignore[arg-type]
    assert env.spawn(same_state=True).step("3")[0] == env.step("3")[0]
