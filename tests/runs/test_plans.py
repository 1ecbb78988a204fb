"""A config decides what is played, to the seed; policies are opened where they have a seat."""

from pathlib import Path

import pytest

from gem_ma.config.loading import load
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Ask, Play, Scenario
from gem_ma.runs.plans import (
    Plans,
    cast_of,
    count,
    evaluation_plans,
    open_policies,
    scenario_of,
)

QUIZ = "tests.runs.test_plans:Quiz"


class Quiz(Scenario):
    """Five questions."""

    agents = ("a",)

    def __init__(self, level: int = 1) -> None:
        self.level = level

    def tasks(self, split: str) -> range:
        return range(5)

    def play(self, rng: object, task: object) -> Play:
        yield Ask({"a": "?"})


class Engine:
    """An engine that keeps what it was given."""

    def __init__(self, name: str, *, policy: str, api_key: str = "", port: int = 0) -> None:
        self.name, self.policy, self.key, self.port = name, policy, api_key, port

    def learner(self, sampling: object, *, apart: bool = False) -> object:
        raise NotImplementedError


def plans(source: str, *overrides: str) -> list[Plan]:
    config = load(source, overrides).config
    scenario = scenario_of(config)
    listed = list(evaluation_plans(config, scenario))
    assert count(config, scenario) == len(listed) == len({plan.id for plan in listed})
    return listed


def test_same_config_gives_same_plans() -> None:
    first, again = plans(QUIZ, "run.seed=3"), plans(QUIZ, "run.seed=3")
    assert [plan.id for plan in first] == [plan.id for plan in again]
    assert [plan.seed for plan in first] != [plan.seed for plan in plans(QUIZ, "run.seed=4")]


def test_repeats_of_a_task_share_its_seed() -> None:
    listed = plans(QUIZ, "run.seed=3", "run.episodes_per_task=2", "scenario.tasks=[4, 1]")
    seed_4, seed_1 = stable_seed(3, "test/4"), stable_seed(3, "test/1")
    assert [plan.id for plan in listed] == [
        ("test/4", seed_4, 0),
        ("test/4", seed_4, 1),
        ("test/1", seed_1, 0),
        ("test/1", seed_1, 1),
    ]


def test_a_task_starts_alike_whatever_else_is_played() -> None:
    assert plans(QUIZ, "scenario.tasks=[3]")[0].id == plans(QUIZ, "scenario.tasks=5")[3].id


def test_n_of_a_single_task_are_n_seeds_and_a_longer_run_begins_with_the_shorter() -> None:
    short, long = plans("kuhn_poker", "scenario.tasks=3"), plans("kuhn_poker", "scenario.tasks=6")
    assert len({plan.seed for plan in long}) == 6 and [plan.id for plan in long[:3]] == [
        plan.id for plan in short
    ]


def test_repeats_of_a_single_task_have_seeds_of_their_own() -> None:
    assert (
        len(
            {
                plan.seed
                for plan in plans("kuhn_poker", "scenario.tasks=2", "run.episodes_per_task=3")
            }
        )
        == 6
    )


def test_a_plan_carries_limits_options_and_the_cast() -> None:
    (plan,) = plans(
        QUIZ,
        "scenario.tasks=1",
        "scenario.level=2",
        "run.max_steps=7",
        "run.episode_timeout_s=2.5",
        "agents.a.behaviour=silent",
    )
    assert (
        plan.limits == Limits(max_steps=7, timeout_s=2.5)
        and plan.options == {"level": 2}
        and plan.scenario.level == 2
    )  # type: ignore[attr-defined]
    assert (
        plan.cast["a"].behaviour
        == "silent"
        == cast_of(load(QUIZ, ["agents.a.behaviour=silent"]).config)["a"].behaviour
    )


def test_a_task_that_is_not_there_is_refused_when_the_data_has_changed_since() -> None:
    config = load(QUIZ, ["scenario.tasks=[4]"]).config

    class Shrunk(Quiz):
        def tasks(self, split: str) -> range:
            return range(2)

    with pytest.raises(ConfigError, match=r"no task 4; split 'test' has 2 \(0 to 1\)"):
        list(evaluation_plans(config, Shrunk()))


CONFIG = """\
scenario: {id: dilemma}
agents:
  player_0: {policy: main}
  player_1: {policy: main}
policies:
  main: {model: "tests.runs.test_plans:Engine/tiny", temperature: 0.5, port: 80, api_key: "${env:PLANS_KEY}"}
  spare: {model: "tests.runs.test_plans:Engine/none"}
"""


def test_policies_with_a_seat_are_opened_once_with_their_options_and_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG)
    (tmp_path / "tiny").mkdir()
    monkeypatch.setenv("PLANS_KEY", "secret")
    config = load(path).config
    policies = open_policies(config, base=tmp_path)
    assert list(policies) == ["main"] and policies["main"].sampling.temperature == 0.5
    engine = policies["main"].engine
    assert (engine.name, engine.policy, engine.key, engine.port) == (
        str(tmp_path / "tiny"),
        "main",
        "secret",
        80,
    )  # type: ignore[attr-defined]
    assert list(open_policies(config, base=tmp_path, names=["spare"])) == ["main", "spare"]
    with pytest.raises(ConfigError, match="no policy is called 'other'"):
        open_policies(config, names=["other"])
    monkeypatch.delenv("PLANS_KEY")
    with pytest.raises(ConfigError, match="PLANS_KEY is not set"):
        open_policies(config)


def test_the_further_policies_of_a_seat_are_opened_and_stand_in_the_cast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANS_KEY", "secret")
    path = tmp_path / "run.yaml"
    path.write_text(
        CONFIG.replace(
            "player_1: {policy: main}", "player_1: {policy: main, policies: {judge: spare}}"
        )
    )
    loaded = load(path)
    assert list(open_policies(loaded.config)) == ["main", "spare"]
    assert cast_of(loaded.config)["player_1"].policies == {"judge": "spare"}
    assert loaded.resolved()["agents"] == {
        "player_0": {
            "behaviour": "direct",
            "policy": "main",
            "options": {},
            "policies": {},
            "tools": [],
            "memory": None,
        },
        "player_1": {
            "behaviour": "direct",
            "policy": "main",
            "options": {},
            "policies": {"judge": "spare"},
            "tools": [],
            "memory": None,
        },
    }


def test_plans_are_made_one_at_a_time() -> None:
    config = load("kuhn_poker", ["scenario.tasks=1_000_000_000"]).config
    scenario = scenario_of(config)
    assert count(config, scenario) == 10**9 and next(evaluation_plans(config, scenario)).repeat == 0


@pytest.mark.parametrize(
    ("source", "tasks", "repeats", "world"),
    [
        ("dilemma", "7", 1, ""),
        ("dilemma", "7", 3, "here"),
        ("retail_scripted", "[4, 1, 9]", 3, ""),
        ("retail_scripted", "null", 1, "here"),
    ],
)
def test_ids_are_those_of_the_plans(source: str, tasks: str, repeats: int, world: str) -> None:
    words = [f"scenario.tasks={tasks}", f"run.episodes_per_task={repeats}"]
    config = load(source, words).config
    made = Plans(config, scenario_of(config), world)
    assert list(made.ids()) == [plan.id for plan in made] and len(made) >= 3 * repeats
