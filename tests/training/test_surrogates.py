"""A loss is one function: registered once, it trains tables and language models under every ratio,
and its gradient is the one that torch finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from gem_ma.config.learning import LossSettings
from gem_ma.config.loading import load
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.losses import (
    AGGREGATIONS,
    RATIOS,
    SURROGATES,
    Clip,
    Sampled,
    Slope,
    Surrogate,
    clipped,
    k3,
    pull,
)
from gem_ma.training.train import run_training

torch = pytest.importorskip("torch", reason="needs the train extra")
DOCS = Path(__file__).parents[2] / "docs" / "training.md"


def documented() -> Surrogate:
    """The function that docs/training.md shows."""
    block = DOCS.read_text(encoding="utf-8").partition("def weighted")[2].partition("```")[0]
    known: dict[str, Any] = {"SURROGATES": {}}
    exec(f"def weighted{block}", known)
    made: Surrogate = known["SURROGATES"]["weighted"]
    return made


def mixed(logprobs: Any, old: Any, advantages: Any, clip: Clip) -> tuple[Any, Any]:
    """Every operation that tensors and slopes share."""
    drift = logprobs - old
    soft = (drift * drift / 2).expm1() * 0.1 + 1.5 - drift
    steep = (-drift).exp() * advantages / (drift.exp() + 1.0)
    return (soft.maximum(steep) - 2.0 * drift.detach() * drift).clamp(-3.0, 3.0), drift > clip.high


@pytest.fixture
def surrogates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SURROGATES, "weighted", documented())
    monkeypatch.setitem(SURROGATES, "mixed", mixed)


@pytest.mark.usefixtures("surrogates")
@pytest.mark.parametrize("name", ["clipped", "cispo", "weighted", "mixed"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_the_gradient_in_numpy_is_the_one_that_torch_finds(name: str, ratio: Any) -> None:
    rng = np.random.default_rng(3)
    turn = np.sort(rng.integers(0, 6, 20))
    part = np.array([0, 0, 1, 1, 2, 2])[turn]
    worth, old = rng.normal(size=6)[turn], -3 * rng.random(20)
    new = old + rng.normal(size=20) * 0.9
    how = LossSettings(
        surrogate=name, ratio=ratio, aggregation="turn_mean", clip=0.1, clip_high=0.2
    )
    clip = Clip(0.1, 0.2)
    tokens = Sampled(worth, old, turn, part)
    step = pull(new, old, tokens, how, 1)

    logprobs = torch.tensor(new, requires_grad=True)
    before, advantages = torch.tensor(old), torch.tensor(worth)
    if ratio == "token":
        gain, cut = SURROGATES[name](logprobs, before, advantages, clip)
        loss = -(gain * torch.tensor(tokens.weights(how, 1))).sum()
    else:
        turns, first = np.unique(turn, return_index=True)
        whole = ratio.startswith("episode")
        over = [part == part[at] if whole else turn == turn[at] for at in first]
        drifts = [(logprobs - before)[torch.tensor(mask)] for mask in over]
        drift = torch.stack([d.mean() if ratio.endswith("mean") else d.sum() for d in drifts])
        zeros = torch.zeros(len(turns), dtype=drift.dtype)
        gain, cut = SURROGATES[name](drift, zeros, advantages[torch.tensor(first)], clip)
        loss = -gain.sum() / len(turns)
    loss.backward()
    assert logprobs.grad is not None
    assert step.loss == pytest.approx(float(loss.detach()), rel=1e-12)
    assert step.slope == pytest.approx(logprobs.grad.numpy(), rel=1e-9, abs=1e-12)
    assert int(step.clipped.sum()) > 0 and int(cut.sum()) > 0
    # the ratios of whole episodes lie far from 1, all outside of a weight that is clipped twice
    assert (name, ratio) == ("weighted", "episode") or int(step.clipped.sum()) < 20


def test_the_divergence_has_one_formula() -> None:
    new, other = np.linspace(-3, -1e-9, 9), np.linspace(-2, -1, 9)
    away = k3(Slope.of(new), other)
    tensor = torch.tensor(new, requires_grad=True)
    expected = k3(tensor, torch.tensor(other))
    expected.sum().backward()
    assert tensor.grad is not None
    assert away.value == pytest.approx(expected.detach().numpy(), rel=1e-12)
    assert away.slope == pytest.approx(tensor.grad.numpy(), rel=1e-12)
    assert (k3(Slope.of(new), new + 1e-9).value >= 0).all()


@pytest.mark.longest
@pytest.mark.usefixtures("surrogates")
@pytest.mark.parametrize("ratio", ["token", "turn_sum"])
def test_a_loss_of_one_function_trains_a_table_and_a_language_model(
    ratio: str, thin_model: Path
) -> None:
    shared = ["train.episodes=16", "evaluate.episodes=4", "train.loss.minibatches=2"]
    shared += ["train.loss.epochs=2", f"train.loss.ratio={ratio}"]
    model = [f"policies.main.model=transformers/{thin_model}", "train.warm_start={}"]
    for config, options in (
        ("kuhn_table", ["train.lr=5"]),
        ("kuhn_tiny", [*model, "train.lr=.01"]),
    ):
        weights = {}
        for name in ("clipped", "weighted"):
            overrides = [*shared, *options, "train.steps=2", f"train.loss.surrogate={name}"]
            summary = run_training(load(config, overrides, configs_first=True).config)
            assert summary["changed"] == ["main"]
            weights[name] = summary["weights"]["main"]
        assert weights["clipped"] != weights["weighted"]  # it was this loss that it learned by


def test_the_settings_name_what_is_registered() -> None:
    fields = LossSettings.model_fields
    assert get_args(fields["ratio"].annotation) == RATIOS
    assert get_args(fields["aggregation"].annotation) == AGGREGATIONS
    assert SURROGATES[fields["surrogate"].default] is clipped


def test_an_unknown_loss_is_refused_with_its_key() -> None:
    config = load("kuhn_table", ["train.loss.surrogate=cliped"], configs_first=True).config
    with pytest.raises(ConfigError, match=r"train\.loss\.surrogate: .*'cliped'.*are clipped"):
        run_training(config)
