"""Who learns the one-order desk, on tasks and seeds never trained on: the assistant against the
baselines, then the user, then both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from gem_ma import config
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.types import Message
from gem_ma.runs.plans import open_policies, scenario_of
from gem_ma.runs.worlds import Worlds
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.schedule.plans import demonstrations
from gem_ma.training.train import open_learner, run_training

pytestmark = pytest.mark.learning
CONFIG = Path(__file__).parents[2] / "configs" / "retail_train.yaml"
SEATS = ("assistant", "user")


def loaded(seed, folder, *overrides):
    pytest.importorskip("torch")
    from gem_ma.engines.local.tiny import make_model

    model = folder / "model"
    if not model.exists():
        make_model(str(model), "retail_one_order")
    return config.load(
        CONFIG,
        [
            f"run.seed={seed}",
            *(f"policies.{seat}.model=transformers/{model}" for seat in SEATS),
            *overrides,
        ],
    ).config


def baselines(scenario, count):
    """Success of every baseline cast on the tasks of the exam."""

    async def score(cast):
        plans = [
            Plan(scenario, {seat: Seat(who) for seat, who in cast.items()}, f"test/{n}", n)
            for n in range(count)
        ]
        return np.mean([bool(scenario.success(episode)) async for episode in play_many(plans, {})])

    return {name: float(asyncio.run(score(cast))) for name, cast in scenario.baseline_casts.items()}


@pytest.mark.parametrize("seed", range(5))
def test_a_tiny_assistant_learns_to_serve_better_than_anybody_who_never_looks(seed, tmp_path):
    given = loaded(seed, tmp_path)
    curve = {}
    summary = run_training(
        given, on_step=lambda step, metrics: curve.update({step: metrics["success"]})
    )
    before, after = (summary[when] for when in ("before", "after"))
    scenario = scenario_of(given)
    found = baselines(scenario, given.evaluate.episodes) | scenario.baselines
    print(f"seed {seed}: " + ", ".join(f"{name} {score:.3f}" for name, score in found.items()))
    print(
        f"seed {seed}: sampled {before['sampled']['success']:.3f} ->"
        f" {after['sampled']['success']:.3f}, ",
        end="",
    )
    print(f"greedy {before['greedy']['success']:.3f} -> {after['greedy']['success']:.3f}")
    print(
        f"seed {seed}: "
        + " ".join(
            f"{step}:{success:.2f}"
            for step, success in curve.items()
            if step == 1 or step % 10 == 0
        )
    )
    assert before["sampled"]["success"] <= 0.20 and after["sampled"]["success"] >= 0.58
    assert (
        after["sampled"]["success"]
        > max(score for name, score in found.items() if "expert" not in name) + 0.1
    )
    assert summary["changed"] == ["assistant"] and after["sampled"]["failed"] == 0


def test_the_cloned_assistant_reads_the_order(tmp_path):
    given = loaded(0, tmp_path)
    policies, scenario, warm = (
        open_policies(given),
        scenario_of(given),
        given.train.warm_start["assistant"],
    )
    learner = open_learner(policies["assistant"])
    players, assistant = LocalPlayers(given, policies), policies["assistant"]
    shown = asyncio.run(demonstrations(Worlds.of(given, scenario), players, assistant, warm))
    learner.clone(shown, warm)
    chat = learner.engine.chat

    def chance(order, answer):
        said = [
            Message.system("desk"),
            Message("change colour", "user"),
            Message("look", "assistant"),
            Message.tool("1", order),
        ]
        said += [Message("ask colour", "assistant"), Message("red", "user")]
        return float(
            np.exp(learner.score([(chat.render("assistant", said), chat.answer(answer))])[0].sum())
        )

    for shown, other in (
        ("pending small", "pending huge"),
        ("pending small", "delivered small"),
        ("delivered huge", "delivered large"),
    ):
        verb = {"pending": "modify", "delivered": "exchange"}[shown.split()[0]]
        answer = f"{verb} red {shown.split()[1]}"
        assert chance(shown, answer) > chance(other, answer) + 0.1
