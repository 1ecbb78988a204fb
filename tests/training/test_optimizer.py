"""The optimiser's settings mean what torch's mean, for tables and language models; the way a rate
falls; turns that teach nothing."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma.config.learning import LossSettings
from gem_ma.config.loading import load
from gem_ma.config.training import TrainSettings
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.table_learner import TableLearner
from gem_ma.training.learner.table_rows import Moments
from gem_ma.training.schedule.settings import learning_rate
from gem_ma.training.train import run_training

torch = pytest.importorskip("torch", reason="needs the train extra")

from tests.training.test_learner_slow import batch, learner_of, make, played  # noqa: E402


@pytest.mark.parametrize(
    ("betas", "eps"), [((0.9, 0.95), 1e-8), ((0.0, 0.5), 1e-8), ((0.8, 0.999), 0.3)]
)
def test_the_moments_of_a_table_are_adams(betas: tuple[float, float], eps: float) -> None:
    rng = np.random.default_rng(0)
    weight = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.AdamW([weight], lr=0.1, betas=betas, eps=eps, weight_decay=0.0)
    moments, ours = Moments((2, 3)), np.zeros((2, 3))
    for _ in range(6):
        gradient = rng.normal(size=(2, 3))
        weight.grad = torch.tensor(-gradient)  # torch walks down, a table up
        adam.step()
        ours += moments.step(gradient, 0.1, betas, eps)
    assert ours == pytest.approx(weight.detach().numpy(), abs=1e-12)


def test_weight_decay_takes_its_share_of_every_weight(thin_model: Path) -> None:
    learner = learner_of(thin_model)
    learner.optimizer = learner.new_optimizer(0.0)
    table, _ = batch(learner, make("kuhn_poker"), 2)
    before = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
    how = LossSettings(minibatches=1, weight_decay=0.5)
    learner.update(table, np.zeros(len(table)), lr=0.1, settings=how, rng=random.Random(0))
    for name, weight in learner.parameters.items():
        assert torch.allclose(weight, before[name] * 0.95, atol=1e-7), name


@pytest.mark.long
def test_the_numbers_of_adam_hold_for_every_step(thin_model: Path) -> None:
    """With an epsilon far above the gradient, AdamW is plain gradient descent of rate lr / eps."""
    plain, adam = learner_of(thin_model), learner_of(thin_model)
    adam.optimizer = adam.new_optimizer(0.0)
    table, advantages = batch(plain, make("kuhn_poker"), 3)
    for learner, lr, more in ((plain, 0.1, {}), (adam, 1e5, {"eps": 1e6, "betas": [0.0, 0.0]})):
        how = LossSettings(minibatches=1, epochs=2, grad_clip=1e9, **more)
        learner.update(table, advantages, lr=lr, settings=how, rng=random.Random(0))
    for name, weight in plain.parameters.items():
        assert torch.allclose(weight, adam.parameters[name], atol=1e-5), name


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_weight_decay_of_a_table_is_of_the_views_that_were_met(optimizer: str) -> None:
    from gem_ma import credit
    from gem_ma.engines.base import Policy

    engine = Table(policy="main", optimizer=optimizer)
    table = credit.turns(played(Policy("main", engine), make("kuhn_poker"), 8), "main")
    advantages = np.random.default_rng(0).normal(size=len(table))
    steps = {}
    for decay in (0.0, 0.5):
        learner = TableLearner(engine)
        learner.weights = {key: np.array([1.0, -2.0]) for key in range(-1, 1)}
        how = LossSettings(minibatches=1, weight_decay=decay)
        learner.update(table, advantages, lr=0.1, settings=how, rng=random.Random(0))
        learner.update(table, advantages, lr=0.1, settings=how, rng=random.Random(0))
        steps[decay] = {key: row.copy() for key, row in learner.weights.items()}
    assert all(np.isfinite(row).all() for row in steps[0.5].values())
    norms = {d: sum(float((row**2).sum()) for row in rows.values()) for d, rows in steps.items()}
    assert norms[0.5] < norms[0.0]


def test_a_run_folder_keeps_the_numbers_of_adam(tmp_path: Path) -> None:
    import yaml

    how = load("kuhn_table", ["train.loss.betas=[0.5,0.9]"], configs_first=True).config
    file = tmp_path / "resolved.yaml"
    file.write_text(yaml.safe_dump(how.model_dump(mode="json", exclude_none=True)))
    again = load(str(file), []).config
    assert again.train is not None and again.train.loss.betas == [0.5, 0.9]
    for wrong in ("[0.5]", "[0.5,1.0]", "0.9", "[a,b]"):
        with pytest.raises(ConfigError, match=r"train\.loss\.betas"):
            load("kuhn_table", [f"train.loss.betas={wrong}"], configs_first=True)


def test_a_rate_falls_along_half_a_cosine() -> None:
    settings = TrainSettings(policies=["main"], steps=11, lr=1.0, lr_final=0.1, lr_decay="cosine")
    for step in range(11):
        expected = 0.1 + 0.9 * (1 + math.cos(math.pi * step / 10)) / 2
        assert learning_rate(settings, step) == pytest.approx(expected)
    still = TrainSettings(policies=["main"], steps=11, lr=1.0, lr_decay="cosine")
    assert {learning_rate(still, step) for step in range(11)} == {1.0}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("surrogate: none, kl: 1, clip_high: 0.3", "clip_high: does nothing under surrogate none"),
        ("surrogate: none, entropy: 1, ratio: episode", "ratio: does nothing"),
        ("ratio: turn_mean, aggregation: token_mean", "aggregation: does .* ratio turn_mean"),
        ("surrogate: dpo, aggregation: turn_mean", "aggregation: does .* surrogate dpo"),
        ("betas: [0.5, 0.9]", "betas: is of Adam, .* policies.main.optimizer=adam"),
        ("eps: 1e-6", "eps: is of Adam"),
    ],
)
def test_a_key_that_would_do_nothing_is_refused(words: str, line: str) -> None:
    more = ("train.estimator={name: grpo}", "train.group_size=2", "train.episodes=8")
    settings = load("kuhn_table", [f"train.loss={{{words}}}", *more], configs_first=True).config
    with pytest.raises(ConfigError, match=rf"^train\.loss\.{line}") as refused:
        run_training(settings)
    assert "\n" not in str(refused.value)


def test_a_cosine_that_ends_where_it_begins_is_refused() -> None:
    words = ["train.lr_decay=cosine", "train.lr_final=1"]
    with pytest.raises(ConfigError, match=r"train\.lr_decay: cosine does nothing .*lr_final"):
        run_training(load("kuhn_table", words, configs_first=True).config)


@pytest.mark.longest
def test_turns_that_their_limit_cut_may_teach_nothing(thin_model: Path) -> None:
    words: list[Any] = [
        f"policies.main.model=transformers/{thin_model}",
        "policies.main.constrain=null",
        "policies.main.max_tokens=1",  # a whole answer has an end of turn too
        "train.warm_start={}",
        "train.episodes=16",
        "train.steps=1",
        "evaluate.episodes=2",
    ]
    silent: dict[str, float] = {}
    for cut in ("learn", "skip"):

        def note(step: int, metrics: Any, cut: str = cut) -> None:
            numbers = metrics["policies"]["main"]
            # a reply of an end of turn alone was not cut, and teaches
            silent[cut] = numbers["zero_advantage"] - numbers["cut_by_length"] * (cut == "skip")

        overrides = [*words, f"train.credit.cut={cut}"]
        run_training(load("kuhn_tiny", overrides, configs_first=True).config, on_step=note)
    assert silent == {"learn": 0.0, "skip": 0.0}
