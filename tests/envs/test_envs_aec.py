"""The AEC view: order of play, when rewards are paid, what is refused, and what it survives."""

from __future__ import annotations

import pytest

import gem_ma
from gem_ma import Action, Ask, Leave, Limits, Reward, Scenario, Tell, Tool, ToolCall
from gem_ma.kernel.errors import ActionError, ConfigError


class Line(Scenario):
    """Three in a row; the first leaves after its turn, a reward comes before anybody is asked."""

    agents = ("ann", "bob", "cat")
    chance = False

    def play(self, rng, task):
        yield Reward({"cat": 0.5}, why="early")
        yield Tell({"cat": f"Task {task}."})
        yield Ask({"ann": "Go."}, legal=("a", "b"))
        yield Reward({"ann": 1.0, "bob": 2.0})
        yield Leave("ann")
        yield Ask({"bob": "Go."})
        yield Ask({"bob": "Both.", "cat": "Both."}, legal={"bob": ("x", "y")})
        yield Reward({"cat": 3.0})

    def tasks(self, split):
        return ("zero", "one", "two")


def started(scenario=Line, **options):
    env = gem_ma.aec_env(scenario, **options)
    env.reset(seed=0)
    return env


def run(env, text="a"):
    """[(agent, reward of last, dead)] of a whole episode."""
    seen = []
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        seen.append((agent, reward, terminated or truncated))
        env.step(None if terminated or truncated else text)
    return seen


def test_order_deaths_and_rewards_are_those_worked_out_by_hand():
    assert run(started()) == [
        ("ann", 0.0, False),
        ("ann", 1.0, True),  # its dead step carries its last reward
        ("bob", 2.0, False),
        ("bob", 0.0, False),
        ("cat", 0.5, False),  # paid before the first Ask, published with the first commit
        ("bob", 0.0, True),
        ("cat", 3.0, True),
    ]


def test_infos_hold_the_facts_and_nothing_else():
    env = started()
    assert env.infos["ann"] == {
        "active_agents": ("ann",),
        "active": True,
        "step": 0,
        "turn": 0,
        "illegal": False,
        "action_mask": ("a", "b"),
    }
    assert env.infos["bob"] == {
        "active_agents": ("ann",),
        "active": False,
        "step": 0,
        "turn": 0,
        "illegal": False,
    }
    env.step("nonsense")
    assert env.infos["ann"]["illegal"]
    assert env.infos["ann"]["stop"] == "terminated"
    assert env.infos["ann"]["turn"] == 1
    env.step(None)
    assert "stop" not in env.infos["bob"] and "action_mask" not in env.infos["bob"]
    env.step("anything")
    assert env.infos["bob"]["active_agents"] == ("bob", "cat")
    assert "action_mask" not in env.infos["cat"]


def test_the_second_of_a_simultaneous_step_sees_nothing_of_the_first():
    env = gem_ma.aec_env("dilemma")
    env.reset(seed=0)
    before, infos = env.observe("player_1"), dict(env.infos)
    env.step("defect")
    assert env.agent_selection == "player_1"
    assert env.observe("player_1") == before
    assert env.infos == infos
    assert set(env.rewards.values()) == {0}


def test_a_limit_truncates_and_the_rules_own_end_terminates():
    env = started(max_steps=2)
    env.step("a")
    env.step(None)
    env.step("a")
    assert env.truncations == {"bob": True, "cat": True}
    assert env.terminations == {"bob": False, "cat": False}
    assert env.infos["bob"]["stop"] == "max_steps"
    # the unanswered Ask stays visible
    assert env.observe("bob")["messages"][-1]["content"] == "Both."
    env = started(limits=Limits(max_turns=1))
    env.step("a")
    assert env.terminations["ann"]
    assert env.truncations["bob"]
    assert env.infos["bob"]["stop"] == "max_turns"
    env = gem_ma.aec_env("dilemma", rounds=1, max_steps=1)
    env.reset(seed=0)
    for _ in range(2):
        env.step("defect")
    assert all(env.terminations.values()) and not any(env.truncations.values())


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_a_seed_names_an_episode_and_starts_a_sequence(seed):
    def deals(env):
        shown = []
        for number in range(6):
            env.reset(seed=seed if number == 0 else None)
            shown.append((env.game.seed, env.observe("player_0")))
        return shown

    env = gem_ma.aec_env("kuhn_poker")
    first = deals(env)
    assert first == deals(env) == deals(gem_ma.aec_env("kuhn_poker"))
    assert first[0][0] == seed and len({number for number, _ in first}) == 6


def test_tasks_are_chosen_by_object_by_key_by_index_by_reset_or_by_seed():
    def shown(env, **reset):
        env.reset(**reset)
        return env.observe("cat")["messages"][0]["content"]

    assert shown(gem_ma.aec_env(Line, task="two"), seed=0) == "Task two."
    assert shown(gem_ma.aec_env(Line, task="test/1"), seed=0) == "Task one."
    assert shown(gem_ma.aec_env(Line, task=2), seed=0) == "Task two."
    assert shown(gem_ma.aec_env(Line, task=2), seed=0, options={"task": 0}) == "Task zero."
    env = gem_ma.aec_env(Line)
    assert [shown(env, seed=seed) for seed in range(4)] == [
        "Task zero.",
        "Task one.",
        "Task two.",
        "Task zero.",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"task": 7}, "train/2"),
        ({"task": -1}, "no task"),
        ({"render_mode": "rgb_array"}, "human, ansi"),
        ({"max_steps": 0}, "at least 1"),
        ({"limits": Limits(max_turns=0)}, "at least 1"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments, says):
    with pytest.raises(ConfigError, match=says):
        gem_ma.aec_env(Line, **arguments)


def test_an_instance_takes_no_options_and_a_wrong_option_is_named():
    with pytest.raises(ConfigError, match="rounds"):
        gem_ma.aec_env(gem_ma.make("dilemma"), rounds=3)
    with pytest.raises(ConfigError, match="round"):
        gem_ma.aec_env("dilemma", round=3)
    with pytest.raises(ConfigError, match="dilemma"):
        gem_ma.aec_env("dilema")


def test_a_refused_action_changes_nothing():
    env = started()
    before = env.observe("ann"), dict(env.infos)
    for wrong in (None, 3, ["a"], {"text": "a"}):
        with pytest.raises(ActionError, match="ann"):
            env.step(wrong)
    assert (env.observe("ann"), dict(env.infos)) == before and env.agent_selection == "ann"
    env.step("a")
    with pytest.raises(ValueError, match="None"):
        env.step("a")  # dead: only None
    env.step(None)
    assert env.agent_selection == "bob"


def test_an_ended_or_closed_environment_refuses_steps_until_reset():
    env = gem_ma.aec_env(Line)
    with pytest.raises(ActionError, match="reset"):
        env.step("a")
    with pytest.raises(ActionError, match="reset"):
        env.observe("ann")
    env.reset(seed=0)
    run(env)
    assert env.agents == []
    with pytest.raises(ActionError, match="over"):
        env.step("a")
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(ActionError, match="closed"):
        env.step("a")
    env.reset(seed=0)
    env.step("a")


def test_any_text_is_in_the_spaces_and_is_taken():
    env = started()
    for text in ("", "é 😀 “”", "\x00\x1b", "x" * 30_000, "[]"):
        env.reset(seed=0)
        assert env.action_space("ann").contains(text)
        env.step(text)
        observation = env.observe("ann")
        assert env.observation_space("ann").contains(observation)
        assert observation["messages"][-1]["content"] == text
    env.reset(seed=0)
    env.step("lone \ud800")
    assert env.observe("ann")["messages"][-1]["content"].encode("utf-8")


class Desk(Scenario):
    """A tool."""

    agents = ("clerk",)
    chance = False
    tools = (
        Tool("close", "Closes.", {"type": "object", "properties": {"why": {"type": "string"}}}),
    )

    def play(self, rng, task):
        said = yield Ask({"clerk": "?"}, tools=self.tools)
        yield Reward({"clerk": float(len(said["clerk"].tool_calls))})


@pytest.mark.parametrize(
    "action",
    [
        '{"name": "close", "arguments": {"why": "done"}}',
        Action("", (ToolCall("1", "close", {"why": "done"}),)),
    ],
)
def test_tool_calls_come_as_text_or_as_an_action(action):
    env = started(Desk)
    assert env.infos["clerk"]["tools"] == (Desk.tools[0].schema,)
    env.infos["clerk"]["tools"][0]["function"]["name"] = "mine"
    assert Desk.tools[0].schema["function"]["name"] == "close"
    env.step(action)
    assert env.last()[1] == 1.0 and '"close"' in env.observe("clerk")["messages"][-1]["tool_calls"]


def test_rendering_is_text_without_control_characters_and_human_prints_each_line_once(capsys):
    env = started(render_mode="ansi")
    env.step("a\x1b[31m\nb")
    assert "ann: a\\x1b[31m\\nb" in env.render() and capsys.readouterr().out == ""
    env = started(render_mode="human")
    run(env)
    assert env.render() is None
    assert capsys.readouterr().out.count("step 0  ann: a\n") == 1


def test_state_is_refused_unless_the_scenario_has_features():
    with pytest.raises(NotImplementedError):
        started().state()

    class Featured(Line):
        """Counts its steps."""

        def state(self, game):
            return [game.step]

    assert started(Featured).state() == [0]
