"""Losses against slow loops and closed forms."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from gem_ma.errors import ConfigError
from gem_ma.training.losses import AGGREGATIONS, clipped, entropy, k3, token_weights

torch = pytest.importorskip("torch", reason="needs the train extra")


def test_token_weights_by_hand() -> None:
    turn = np.array([7, 7, 7, 2])
    assert token_weights(turn, "turn_sum").tolist() == [0.5] * 4
    assert token_weights(turn, "token_mean").tolist() == [0.25] * 4
    assert token_weights(turn, "turn_mean").tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    for how in AGGREGATIONS:
        assert token_weights(np.zeros(0, np.int64), how).tolist() == []
    with pytest.raises(ConfigError, match="turn_sum, token_mean, turn_mean"):
        token_weights(turn, "mean")


@pytest.mark.parametrize("advantage", [2.0, -2.0])
@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0, 1.1, 1.5])
def test_the_clipped_objective_by_hand(ratio: float, advantage: float) -> None:
    value, cut = clipped(torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]), 0.2)
    bound = min(max(ratio, 0.8), 1.2)
    assert float(value) == pytest.approx(min(ratio * advantage, bound * advantage), rel=1e-6)
    assert bool(cut) == ((ratio == 1.5 and advantage > 0) or (ratio == 0.5 and advantage < 0))


def test_a_clipped_token_gives_no_gradient() -> None:
    logprobs = torch.tensor([math.log(1.5), math.log(1.1)], requires_grad=True)
    value, _ = clipped(logprobs, torch.zeros(2), torch.ones(2), 0.2)
    value.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 1.1])


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_of_k3_is_the_divergence_of_two_distributions(seed: int) -> None:
    rng = random.Random(seed)
    p = torch.tensor([rng.random() + 0.1 for _ in range(6)], dtype=torch.float64)
    q = torch.tensor([rng.random() + 0.1 for _ in range(6)], dtype=torch.float64)
    p, q = p / p.sum(), q / q.sum()
    expected = float((p * k3(p.log(), q.log())).sum())  # under p, as sampled
    assert expected == pytest.approx(float((p * (p / q).log()).sum()), abs=1e-12)
    assert (k3(p.log(), q.log()) >= 0).all()
    assert float(k3(p.log(), p.log()).abs().max()) == 0.0


def test_entropy_of_uniform_is_log_of_its_size_and_banned_ids_count_nothing() -> None:
    scores = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -math.inf, -math.inf], [50.0, 0.0, -math.inf, 0.0]], requires_grad=True)
    value = entropy(scores.log_softmax(-1))
    assert value.tolist() == pytest.approx([math.log(4), math.log(2), 0.0], abs=1e-6)
    value.sum().backward()
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())
