"""Wrong use of the views: a typed error of one clear line, and nothing changed."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from gem_ma import Ask, Reward, Scenario, aec_env, gym_env, parallel_env
from gem_ma.kernel.errors import ActionError, ConfigError, ScenarioError


def gym(name: Any, **options: Any) -> Any:
    return gym_env(name, agent="player_0", others={"player_1": "random_legal"}, **options)


VIEWS: tuple[Callable[..., Any], ...] = (aec_env, parallel_env, gym)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("rounds", ["3", None, [1], {}, int])
def test_an_option_of_another_type_is_named(view: Callable[..., Any], rounds: Any) -> None:
    with pytest.raises(ConfigError, match=r"rounds: a whole number from 1 to 10000; got"):
        view("dilemma", rounds=rounds)


@pytest.mark.parametrize("call", ["last", "observe", "step", "render"])
def test_nothing_is_played_before_reset(call: str) -> None:
    env = aec_env("dilemma")
    words = {"observe": ("player_0",), "step": ("defect",)}.get(call, ())
    with pytest.raises(ActionError, match=r"call reset\(\) first"):
        getattr(env, call)(*words)


def test_last_after_the_end_says_so() -> None:
    env = aec_env("dilemma", rounds=1)
    env.reset(seed=1)
    for agent in env.agent_iter():
        env.step(None if env.last()[2] else "defect")
        assert agent in env.possible_agents
    with pytest.raises(ActionError, match="the episode is over"):
        env.last()


@pytest.mark.parametrize("view", VIEWS)
def test_a_copy_shares_no_game(view: Callable[..., Any]) -> None:
    env = view("dilemma")
    other = copy.copy(env)
    env.reset(seed=1)
    with pytest.raises(ActionError, match="reset"):
        _ = other.game
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(env)


class Breaks(Scenario):
    """Fails at its second step."""

    agents = ("player_0", "player_1")
    chance = False

    def play(self, rng: Any, task: Any) -> Any:
        yield Ask({"player_0": "?"})
        raise KeyError("lost")


@pytest.mark.parametrize("view", VIEWS)
def test_a_failing_scenario_is_a_scenario_error_now_and_at_every_later_step(
    view: Callable[..., Any],
) -> None:
    env = view(Breaks)
    for seed in (0, 1):
        env.reset(seed=seed)
        for _ in range(2):
            with pytest.raises(ScenarioError, match="KeyError: 'lost'"):
                env.step({"player_0": "a"} if view is parallel_env else "a")


def test_rendered_text_reorders_no_letters() -> None:
    shown = aec_env(Echo, render_mode="ansi")
    shown.reset(seed=1)
    shown.step("a\u202eb\u2066c\u200f\x1b[31m")
    text = shown.render()
    assert text is not None and text.replace("\n", "").isprintable()
    assert "a\\u202eb\\u2066c\\u200f\\x1b[31m" in text


class Echo(Scenario):
    agents = ("speaker",)

    def play(self, rng: Any, task: Any) -> Any:
        said = yield Ask({"speaker": "Say something."})
        yield Reward({"speaker": float(bool(said))})


EDITS = {
    "set": lambda message: message.__setitem__("content", "no"),
    "update": lambda message: message.update(content="no"),
    "pop": lambda message: message.pop("content"),
    "popitem": lambda message: message.popitem(),
    "clear": lambda message: message.clear(),
    "setdefault": lambda message: message.setdefault("more", "no"),
    "merge": lambda message: operator.ior(message, {"content": "no"}),
    "del": lambda message: operator.delitem(message, "content"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_who_edits_an_observation_changes_no_later_one(edit: str) -> None:
    env = aec_env("kuhn_poker")
    env.reset(seed=0)
    plain = json.dumps(env.observe("player_0"))
    EDITS[edit](env.observe("player_0")["messages"][0])
    assert json.dumps(env.observe("player_0")) == plain
    env.step("check")
    (_, *later), (_, *others) = (env.observe(agent)["messages"] for agent in env.possible_agents)
    assert later and others and json.dumps(env.observe("player_0"))[:40] == plain[:40]


def test_an_observation_is_a_tuple_in_all_that_one_does_with_one() -> None:
    env = parallel_env("kuhn_poker")
    first, _ = env.reset(seed=0)
    plain = json.loads(json.dumps(first))
    messages = first["player_0"]["messages"]
    begun = tuple(plain["player_0"]["messages"])
    assert isinstance(messages, tuple) and messages == begun and begun == messages
    assert (messages != begun) is False and begun[0] in messages and messages[-1] == begun[-1]
    assert messages[:1] == begun[:1] and tuple(reversed(messages)) == begun[::-1]
    for made in (
        pickle.loads(pickle.dumps(first)),
        copy.deepcopy(first),
        {"player_0": {"messages": operator.add(messages, ())}},
        {"player_0": {"messages": operator.add((), messages)}},
        {"player_0": {"messages": (*messages,)}},
    ):
        assert env.observation_space("player_0").contains(made["player_0"])
        assert made["player_0"]["messages"] == begun and repr(messages) == repr(begun)
    messages[0]["content"] = "no"  # it stays edited for who edited it
    assert "no" in json.dumps(first) and messages != begun and messages[0]["content"] == "no"
    later = env.step({"player_0": "check"})[0]["player_0"]["messages"]
    assert later[: len(begun)] == begun
    with pytest.raises(IndexError):
        messages[len(messages)]
