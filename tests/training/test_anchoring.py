"""The divergence from reference weights in the reward; tables and language models alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gem_ma import Ask, Reward, Scenario, config, credit
from gem_ma.config.learning import LossSettings
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.loop.updates import charged, check_anchored
from gem_ma.training.schedule.checks import checked
from gem_ma.training.schedule.plans import training_plans
from gem_ma.training.train import open_learner, train
from tests.broken_runs import broken_and_whole

PAID = {"kl": 0.5, "kl_in": "reward"}


def played(settings: Config) -> tuple:
    """(a learner, the turns of one step)."""
    policies = open_policies(settings)
    plans = training_plans(worlds_of(settings), settings.train, 0)
    episodes = asyncio.run(LocalPlayers(settings, policies).play(plans))
    return open_learner(policies["main"]), credit.turns(episodes, "main", gamma=0.5)


def kuhn(kind: str, model: Path, *words: str) -> Config:
    small = ("train.episodes=8", "train.steps=4", "evaluate.episodes=8", "run.baselines=false")
    name = "kuhn_table"
    if kind == "torch":
        name = "kuhn_tiny"
        small = (*small, "train.warm_start={}", f"policies.main.model=transformers/{model}")
    return config.load(name, [*small, "train.on_collapse=off", "train.save_every=1", *words]).config


@pytest.mark.long
@pytest.mark.parametrize("kind", ["table", "torch"])
def test_a_turn_costs_what_its_tokens_say_in_a_slow_loop(kind, thin_model):
    learner, turns = played(kuhn(kind, thin_model))
    learner.hold()  # the weights that sampled
    away, tokens = learner.divergence(turns)
    assert tokens == sum(len(r.token_ids) for t in turns.turns for r in t.replies)
    assert np.abs(away).max() < 1e-4
    # tokens that were sampled with other log-probabilities, as by weights that have moved
    moved = tuple(
        replace(
            t,
            action=t.action,
            replies=tuple(
                replace(r, logprobs=tuple(p + 0.25 for p in r.logprobs)) for r in t.replies
            ),
        )
        for t in turns.turns
    )
    turns = replace(turns, turns=moved)
    away, _ = learner.divergence(turns)
    sizes = [sum(len(r.token_ids) for r in t.replies) for t in turns.turns]
    assert np.allclose(away, [0.25 * size for size in sizes], atol=1e-4)


def test_rewards_returns_and_totals_are_those_of_exact_fractions(thin_model):
    _, turns = played(kuhn("table", thin_model))
    costs = np.arange(1, len(turns) + 1) / 8  # eighths are exact in floats
    fake = SimpleNamespace(divergence=lambda table: (costs, len(costs)), hold=lambda: None)
    made, numbers = charged(fake, LossSettings(**PAID), turns, 0.5)
    for n in range(len(turns)):
        mine = [
            m
            for m in range(len(turns))
            if (turns.episode[m], turns.agent[m]) == (turns.episode[n], turns.agent[n])
        ]
        cost = {m: Fraction(costs[m]) / 2 for m in mine}
        later = sum(
            cost[m] * Fraction(1, 2) ** int(turns.k[m] - turns.k[n])
            for m in mine
            if turns.k[m] >= turns.k[n]
        )
        assert made.reward[n] == Fraction(turns.reward[n]) - cost[n]
        assert made.ret[n] == Fraction(turns.ret[n]) - later
        assert made.total[n] == Fraction(turns.total[n]) - sum(cost.values())
    assert numbers == {"kl_reference": float(costs.mean())}


class Levers(Scenario):
    """One choice; the lever of place n pays n."""

    agents = ("player",)

    def play(self, rng, task):
        said = yield Ask({"player": "which?"}, legal=("none", "one", "two"))
        if said["player"].parsed is not None:
            yield Reward({"player": float(("none", "one", "two").index(said["player"].parsed))})


@pytest.mark.longest
@pytest.mark.parametrize("place", ["reward", "off"])
def test_in_the_reward_it_is_learned_to_the_optimum_that_theory_names(place):
    """max E[r] - b KL(p || uniform) is p ~ exp(r / b); without it the best lever alone is left."""
    loss = {"kl": 1.0, "kl_in": "reward"} if place == "reward" else {}
    settings = Config.model_validate(
        {
            "scenario": {"id": "levers"},
            "agents": {"player": {"policy": "main"}},
            "policies": {"main": {"model": "table/softmax", "optimizer": "sgd"}},
            "train": {
                "policies": ["main"],
                "steps": 40,
                "episodes": 256,
                "lr": 1.0,
                "estimator": {"name": "dr_grpo", "key": "global"},
                "loss": {"minibatches": 1, **loss},
                "on_collapse": "off",
            },
            "evaluate": {"episodes": 2},
        }
    )
    table = Table(policy="main")
    asyncio.run(train(settings, Levers(), {"main": Policy("main", table)}, None))
    (logits,) = table.logits.values()
    chances = np.exp(logits) / np.exp(logits).sum()
    if place == "off":
        assert chances[2] > 0.9
    else:
        wanted = np.exp(np.arange(3.0))
        assert np.abs(chances - wanted / wanted.sum()).max() < 0.06


WORDS = ("kl=0.1", "kl_in=reward")


@pytest.mark.longest
@pytest.mark.parametrize("kind", ["table", "lora"])
def test_a_killed_run_ends_as_an_unbroken_one(tmp_path, kind, thin_model):
    words = [f"train.loss.{word}" for word in WORDS]
    if kind == "lora":
        words += ["policies.main.lora={rank: 2}", "train.overlap=true"]
    settings = kuhn("torch" if kind == "lora" else kind, thin_model, *words)
    broken_and_whole(tmp_path, settings)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("train.loss.kl_in=reward",), "kl_in: .* train.loss.kl is 0"),
        (
            ("train.loss.kl=1", "train.loss.kl_in=reward", "train.estimator.name=team_grpo"),
            "kl_in: team_grpo reads the ledger",
        ),
    ],
)
def test_what_would_do_nothing_is_refused_in_one_line(words, line, thin_model):
    more = ("train.group_size=2",)
    settings = kuhn("table", thin_model, *words, *more)
    with pytest.raises(ConfigError, match=line) as refused:
        checked(settings, settings.policies)
    assert "\n" not in str(refused.value)


def test_a_learner_without_a_reference_is_refused_by_name():
    bare = SimpleNamespace(policy="main")
    with pytest.raises(ConfigError, match="'main': SimpleNamespace keeps no reference"):
        check_anchored(SimpleNamespace(loss=LossSettings(**PAID)), bare)
    check_anchored(SimpleNamespace(loss=LossSettings(kl=1)), bare)
