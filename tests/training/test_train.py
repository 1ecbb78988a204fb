"""The training loop: who learns, what is recorded, and that a killed run ends as an unbroken
one."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable
from functools import cache

import pytest

from gem_ma import Ask, Reward, Scenario, config
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.runs.plans import open_policies, scenario_of
from gem_ma.runs.store import RunFolder, read_episodes, read_metrics
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.schedule.plans import TRAINING_SEEDS, training_plans
from gem_ma.training.schedule.settings import learning_rate
from gem_ma.training.train import open_learner, run_training, train
from tests.broken_runs import (
    SMALL,
    WARM,
    Killed,
    break_off,
    opened,
    small,
    steps_of,
    trained,
    truth,
)
from tests.command_line import environment
from tests.warm import Command, start


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, bytes]]:
    """The truth of a run that nothing interrupts, made once for all that are compared with it."""

    @cache
    def of(*overrides: str) -> dict[str, bytes]:
        path = tmp_path_factory.mktemp("unbroken") / "run"
        trained(path, small(*overrides))
        return truth(path)

    return of


@pytest.mark.long
@pytest.mark.parametrize("learned", [(), ("speaker",), ("listener",), ("speaker", "listener")])
def test_exactly_the_named_policies_change(learned):
    summary = run_training(small(f"train.policies=[{', '.join(learned)}]"))
    assert tuple(summary["changed"]) == learned
    assert set(summary["changed"]) | set(summary["unchanged"]) == {"speaker", "listener"}
    assert summary["steps"] == (6 if learned else 0)


@pytest.mark.long
def test_a_frozen_policy_that_changes_is_an_error_and_not_a_result():
    settings = small("train.policies=[speaker]")
    policies = open_policies(settings)
    listener = policies["listener"].engine

    def tamper(step, metrics):
        listener.logits[next(iter(listener.logits))][0] += 1e-12

    with pytest.raises(EngineError, match="listener changed although only speaker learn"):
        asyncio.run(train(settings, scenario_of(settings), policies, None, on_step=tamper))


@pytest.mark.long
def test_the_record_holds_the_episodes_of_every_step_in_the_order_of_plans(tmp_path):
    settings = small()
    summary = trained(tmp_path / "run", settings)
    played = list(read_episodes(tmp_path / "run"))
    assert len(played) == 6 * 8  # demonstrations and exams are not episodes of the run
    lines = list(read_metrics(tmp_path / "run"))
    assert [(line["kind"], line["step"]) for line in lines] == [
        *(("evaluation", 0), ("train", 1), ("train", 2), ("train", 3), ("evaluation", 3)),
        *(("train", 4), ("train", 5), ("train", 6), ("evaluation", 6)),
    ]
    assert {seat.policy for seat in played[0].cast.values()} == {"speaker", "listener"}
    assert all(
        turn.replies[0].version == 1 + step
        for step in range(6)
        for e in played[8 * step : 8 * step + 8]
        for turn in e.turns
    )
    first = next(line for line in lines if line["kind"] == "train")
    assert first["episodes"] == first["ok"] == 8
    assert first["success"] == sum(e.returns()["listener"] == 1 for e in played[:8]) / 8
    assert {"lr", "entropy", "kl", "grad_norm", "parity_gap", "version"} <= first["policies"][
        "speaker"
    ].keys()
    assert json.loads((tmp_path / "run" / "summary.json").read_bytes()) == json.loads(
        json.dumps(summary)
    )
    assert not any("_s" in key for key in first)  # wall times stand apart
    assert len((tmp_path / "run" / "timings.jsonl").read_text().splitlines()) == 6


@pytest.mark.long
def test_training_and_evaluation_seeds_never_meet(tmp_path):
    settings = small()
    trained(tmp_path / "run", settings)
    assert (
        min(e.seed for e in read_episodes(tmp_path / "run"))
        >= TRAINING_SEEDS
        > settings.evaluate.seed + settings.evaluate.episodes
    )


def test_episodes_come_in_the_order_of_their_plans_whatever_ends_first():
    class Slow(Table):
        async def sample(self, request):
            await asyncio.sleep(request.seed % 4 / 1000)
            return await super().sample(request)

    settings = small(name="kuhn_table")
    plans = training_plans(worlds_of(settings), settings.train, 0)
    episodes = asyncio.run(
        LocalPlayers(settings, {"main": Policy("main", Slow(policy="main"))}).play(plans)
    )
    assert [episode.id for episode in episodes] == [plan.id for plan in plans]
    assert len({episode.id for episode in episodes}) == 8


@pytest.mark.longest
def test_the_same_config_gives_the_same_run_and_another_seed_another(tmp_path):
    for name, overrides in (
        ("a", ()),
        ("b", ()),
        ("c", ("run.seed=1",)),
        ("d", ("run.concurrency=3",)),
    ):
        trained(tmp_path / name, small(*overrides))
    assert truth(tmp_path / "a") == truth(tmp_path / "b") == truth(tmp_path / "d")
    assert truth(tmp_path / "a") != truth(tmp_path / "c")


@pytest.mark.long
@pytest.mark.parametrize(("at", "optimizer"), [(1, "sgd"), (2, "adam"), (5, "adam"), (6, "sgd")])
def test_a_run_that_is_killed_after_a_step_ends_as_an_unbroken_one(
    tmp_path, unbroken, at, optimizer
):
    overrides = (f"policies.speaker.optimizer={optimizer}", "train.estimator.name=rae")
    settings = small(*overrides)
    break_off(tmp_path / "broken", settings, at)
    trained(tmp_path / "broken", settings)
    assert truth(tmp_path / "broken") == unbroken(*overrides)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "call"),
    [("append", 1), ("append", 3), ("log", 1), ("log", 3), ("mark", 3), ("write_summary", 1)],
)
def test_a_run_that_is_killed_while_it_records_ends_as_an_unbroken_one(
    tmp_path, monkeypatch, unbroken, method, call
):
    whole = unbroken()
    settings, calls = small(), 0
    real = getattr(RunFolder, method)

    def kill(self, *values):
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        return real(self, *values)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, method, kill)
        with pytest.raises(Killed):
            trained(tmp_path / "broken", settings)
    trained(tmp_path / "broken", settings)
    assert truth(tmp_path / "broken") == whole


@pytest.mark.long
def test_a_run_under_repeated_sigkill_ends_as_an_unbroken_one(tmp_path):
    more = ("train.episodes=64", "run.baselines=false")
    settings = [*(word for word in SMALL if not word.startswith("train.episodes=")), *WARM, *more]

    def command(folder: str) -> Command:
        words = ["train", "referential_table", *settings, "--out", folder, "--quiet"]
        with open(os.devnull, "r+") as none:
            return start(*words, cwd=tmp_path, env=environment(), streams=[none] * 3)

    assert command("whole").wait(timeout=120) == 0
    rng = random.Random(4)
    for _ in range(4):
        process = command("broken")
        while not (tmp_path / "broken" / "manifest.json").exists():
            time.sleep(0.005)
        time.sleep(rng.uniform(0.02, 0.4))
        process.kill()
        process.wait(timeout=60)
    assert command("broken").wait(timeout=120) == 0
    assert truth(tmp_path / "broken") == truth(tmp_path / "whole")


@pytest.mark.long
def test_a_finished_run_is_not_touched_again(tmp_path):
    settings = small()
    summary = trained(tmp_path / "run", settings)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.json*")}
    again = trained(
        tmp_path / "run", settings, on_step=lambda *_: pytest.fail("a finished run took a step")
    )
    assert json.dumps(again) == json.dumps(summary)
    assert {file: file.stat().st_mtime_ns for file in before} == before


@pytest.mark.long
def test_one_policy_may_own_several_agents_and_learn_in_self_play():
    summary = run_training(small(name="kuhn_table"))
    assert summary["changed"] == ["main"]
    assert summary["before"]["nash_conv"] == pytest.approx(0.916667, abs=1e-6)
    assert {"nash_conv", "nash_conv_averaged"} <= summary["after"].keys()
    assert summary["after"]["sampled"]["success"] is None


def test_episodes_of_a_group_share_their_start_and_nothing_else_is_repeated(tmp_path):
    settings = small("train.group_size=4")
    plans = training_plans(worlds_of(settings), settings.train, 2)
    assert [plan.repeat for plan in plans] == [0, 1, 2, 3] * 2
    assert len({(plan.task, plan.seed) for plan in plans}) == 2
    assert len({plan.id for plan in plans}) == 8
    assert [plan.group for plan in plans] == [f"{plan.task}/{plan.seed}" for plan in plans]
    assert {plan.group for plan in training_plans(worlds_of(small()), small().train, 2)} == {None}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "grpo",
        "dr_grpo",
        "rloo",
        "agent_norm",
        "gigpo",
        "mt_grpo",
        "turn_grpo",
        "team_grpo",
        "at_grpo",
    ],
)
def test_estimators_that_compare_within_a_group_learn_from_groups(tmp_path, name):
    summary = trained(
        tmp_path / "run",
        small(f"train.estimator.name={name}", "train.group_size=4", "train.steps=3"),
    )
    assert summary["changed"] == ["speaker", "listener"]
    played = list(read_episodes(tmp_path / "run"))
    starts = {}
    for episode in played:
        starts.setdefault((episode.group, episode.task, episode.seed), []).append(
            episode.turns[0].observed
        )
    assert all(len(views) == 4 and len(set(views)) == 1 for views in starts.values())


@pytest.mark.long
def test_credit_and_estimator_settings_reach_the_loop(tmp_path):
    runs = {}
    for name in ("rebn", "reinforce", "rae"):
        trained(tmp_path / name, small(f"train.estimator.name={name}", "train.policies=[speaker]"))
        runs[name] = truth(tmp_path / name)["checkpoints/step-000006/speaker.table.json"]
    assert len(set(runs.values())) == 3
    state = json.loads(truth(tmp_path / "rae")["checkpoints/step-000006/trainer.json"])[
        "estimators"
    ]
    assert 0 < state["speaker"]["referential/speaker"] < 1


def test_the_learning_rate_warms_up_and_falls_linearly():
    settings = TrainSettings(policies=["main"], steps=11, lr=1.0, lr_final=0.1, lr_warmup=2)
    assert [round(learning_rate(settings, step), 4) for step in (0, 1, 5, 10)] == [
        0.5,
        0.91,
        0.55,
        0.1,
    ]
    assert learning_rate(TrainSettings(policies=["main"], steps=1, lr=0.5, lr_final=0.1), 0) == 0.5


def test_a_config_without_training_and_an_engine_without_weights_are_refused():
    settings = small()
    with pytest.raises(ConfigError, match="no section `train:`"):
        run_training(settings.model_copy(update={"train": None}))

    class Fixed:
        async def sample(self, request):
            raise NotImplementedError

    with pytest.raises(ConfigError, match="not trainable"):
        open_learner(Policy("fixed", Fixed()))
    assert open_learner(Policy("main", Table(policy="main"))).policy == "main"


class Fragile(Scenario):
    """Pays for the right answer; plays with an odd card fail."""

    agents = ("a",)

    def play(self, rng, task):
        card = rng.randrange(4)
        said = yield Ask({"a": f"card {card}"}, legal=("left", "right"))
        if card % 2:
            raise RuntimeError("the table broke")
        yield Reward({"a": float(said["a"].parsed == "left")})


def fragile(**changes) -> tuple[Config, dict[str, Policy]]:
    values = {
        "scenario": {"id": "x"},
        "agents": {"a": {"policy": "main"}},
        "policies": {"main": {"model": "table/softmax"}},
    }
    values |= {
        "train": {"policies": ["main"], "steps": 30, "episodes": 16, "lr": 3.0},
        "evaluate": {"episodes": 64},
    }
    return Config.model_validate({**values, **changes}), {
        "main": Policy("main", Table(policy="main"))
    }


@pytest.mark.long
def test_failed_episodes_are_counted_and_the_rest_is_learned_from(tmp_path):
    settings, policies = fragile()
    with opened(tmp_path / "run", settings) as folder:
        summary = asyncio.run(train(settings, Fragile(), policies, folder))
    lines = steps_of(tmp_path / "run")
    assert all(line["ok"] + line["failed"] == 16 for line in lines)
    assert sum(line["failed"] for line in lines) > 100
    assert summary["after"]["sampled"]["failed"] > 10
    assert (
        summary["before"]["sampled"]["return"]["a"]
        < 0.75
        < 0.9
        < summary["after"]["sampled"]["return"]["a"]
    )


class Late(Scenario):
    """Few plays have a second decision, and most of those fail after it."""

    agents = ("a",)

    def play(self, rng, task):
        said = yield Ask({"a": "first"}, legal=("left", "right"))
        if rng.randrange(6) == 0:
            yield Ask({"a": "second"}, legal=("left", "right"))
            if rng.randrange(4):
                raise RuntimeError("the table broke")
        yield Reward({"a": float(said["a"].parsed == "left")})


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "more", "level"),
    [
        (Late(), {"fork": {"at": 1, "width": 2}}, "forks"),
        (Fragile(), {"refill": 2, "group_size": 4, "estimator": {"name": "grpo"}}, "refill"),
    ],
    ids=["forks", "refill"],
)
def test_a_level_whose_few_plays_all_failed_is_data_like_any_other(scenario, more, level, tmp_path):
    learn = {"policies": ["main"], "steps": 20, "episodes": 16, "lr": 0.1, **more}
    settings, policies = fragile(train=learn, evaluate={"episodes": 8})
    alone = []

    class Watched(LocalPlayers):
        async def play(self, plans, **how):
            episodes = await super().play(plans, **how)
            alone.append(not any(episode.end.scored for episode in episodes))
            return episodes

    with opened(tmp_path / "run", settings) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("gem_ma.training.train.LocalPlayers", Watched)
        asyncio.run(train(settings, scenario, policies, folder))
    lines = steps_of(tmp_path / "run")
    assert len(lines) == 20 and any(alone)
    of_level = sum(line[level]["branches" if level == "forks" else "plays"] for line in lines)
    # nothing that was played is lost
    assert sum(1 for _ in read_episodes(tmp_path / "run")) == 20 * 16 + of_level


def test_a_step_in_which_everything_failed_ends_the_run_with_the_cause():
    class Broken(Fragile):
        def play(self, rng, task):
            yield Ask({"a": "?"}, legal=("left", "right"))
            raise RuntimeError("the table broke")

    settings, policies = fragile()
    with pytest.raises(EngineError, match=r"all 64 episodes failed.*the table broke"):
        asyncio.run(train(settings, Broken(), policies, None))


@pytest.mark.long
def test_trained_weights_are_a_model_that_another_run_can_name(tmp_path):
    path = tmp_path / "run"
    loaded = config.load("referential_table.yaml", [*WARM, "train.steps=2", "evaluate.episodes=64"])
    with RunFolder.open(path, config_text=loaded.text, resolved=loaded.resolved()) as folder:
        summary = run_training(loaded.config, folder, base=loaded.base)
    names = [
        f"policies.{name}.model={model['engine']}/{path / model['path']}"
        for name, model in summary["models"].items()
    ]
    again = config.load(
        "referential_table.yaml",
        [*names, "train.policies=[]", "train.warm_start={}", "evaluate.episodes=64"],
    )
    assert run_training(again.config, base=again.base)["before"] == summary["after"]
