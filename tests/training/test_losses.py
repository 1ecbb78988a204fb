"""Losses against slow loops and closed forms."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from gem_ma.training.learner.losses import (
    AGGREGATIONS,
    RATIOS,
    Clip,
    cispo,
    clipped,
    k3,
    token_weights,
    truncated_weight,
    unit_pull,
)

torch = pytest.importorskip("torch", reason="needs the train extra")

CLIP = Clip(0.2, 0.2)


def test_token_weights_by_hand() -> None:
    turn = np.array([7, 7, 7, 2])
    assert token_weights(turn, "turn_sum").tolist() == [0.5] * 4
    assert token_weights(turn, "token_mean").tolist() == [0.25] * 4
    assert token_weights(turn, "turn_mean").tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    for how in AGGREGATIONS:
        assert token_weights(np.zeros(0, np.int64), how).tolist() == []


@pytest.mark.parametrize("advantage", [2.0, -2.0])
@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0, 1.1, 1.5])
def test_the_clipped_objective_by_hand(ratio: float, advantage: float) -> None:
    value, cut = clipped(
        torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]), CLIP
    )
    bound = min(max(ratio, 0.8), 1.2)
    assert float(value) == pytest.approx(min(ratio * advantage, bound * advantage), rel=1e-6)
    assert bool(cut) == ((ratio == 1.5 and advantage > 0) or (ratio == 0.5 and advantage < 0))


def test_a_clipped_token_gives_no_gradient() -> None:
    logprobs = torch.tensor([math.log(1.5), math.log(1.1)], requires_grad=True)
    value, _ = clipped(logprobs, torch.zeros(2), torch.ones(2), CLIP)
    value.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 1.1])


@pytest.mark.parametrize("advantage", [2.0, 0.0, -2.0])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.25, 1.5, 4.0])
def test_both_bounds_by_hand(ratio: float, advantage: float) -> None:
    log = torch.tensor([math.log(ratio)], requires_grad=True)
    value, cut = clipped(log, torch.zeros(1), torch.tensor([advantage]), Clip(0.2, 0.3))
    expected = min(ratio * advantage, min(max(ratio, 0.8), 1.3) * advantage)
    assert float(value.detach()) == pytest.approx(expected, rel=1e-6)
    value.sum().backward()
    still = {2.0: ratio > 1.3, 0.0: True, -2.0: ratio < 0.8}[advantage]
    assert (float(log.grad) == 0.0) == still
    assert bool(cut) == (still and advantage != 0)


def test_a_clipped_weight_of_cispo_is_learned_from_all_the_same() -> None:
    log = torch.tensor([math.log(0.1), 0.0, math.log(1.5)], requires_grad=True)
    value, cut = cispo(log, torch.zeros(3), torch.tensor([1.0, -2.0, 3.0]), Clip(0.2, 0.3))
    value.sum().backward()
    assert log.grad is not None
    assert log.grad.tolist() == pytest.approx([0.1, -2.0, 3 * 1.3])
    assert cut.tolist() == [False, False, True]


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


# -- ratios of whole turns and episodes ----------------------------------------------------------


def _unit_case(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    turn = np.sort(rng.integers(0, 5, 14))
    part = np.array([0, 0, 1, 1, 2])[turn]
    old = -rng.random(14) * 3
    return old + rng.normal(size=14) * 0.3, old, rng.normal(size=5)[turn], turn, part


@pytest.mark.parametrize("ratio", RATIOS[1:])
@pytest.mark.parametrize("seed", range(4))
def test_the_pull_of_a_unit_is_the_gradient_of_its_slow_loss(ratio: str, seed: int) -> None:
    new, old, advantage, turn, part = _unit_case(seed)
    logprobs = torch.tensor(new, requires_grad=True)
    turns, total = sorted(set(turn.tolist())), torch.zeros((), dtype=torch.float64)
    for one in turns:
        mine = [t for t in range(len(turn)) if turn[t] == one]
        over = (
            mine
            if not ratio.startswith("episode")
            else [t for t in range(len(turn)) if part[t] == part[mine[0]]]
        )
        drift = sum(logprobs[t] - old[t] for t in over)
        rho = (drift / len(over) if ratio.endswith("mean") else drift).exp()
        worth = float(advantage[mine[0]])
        total = total - torch.minimum(rho * worth, rho.clamp(0.95, 1.05) * worth) / len(turns)
    total.backward()
    pull, loss, cut = unit_pull(new, old, advantage, turn, part, ratio, Clip(0.05, 0.05), clipped)
    assert loss == pytest.approx(float(total.detach()), abs=1e-12)
    assert pull == pytest.approx(logprobs.grad.numpy(), abs=1e-12)
    assert cut.any()


def test_a_turn_of_one_token_has_one_loss_under_every_ratio() -> None:
    rng = np.random.default_rng(0)
    old, turn = -rng.random(6), np.arange(6)
    new, advantage = old + rng.normal(size=6) * 0.3, rng.normal(size=6)
    value, cut = clipped(torch.tensor(new), torch.tensor(old), torch.tensor(advantage), CLIP)
    for ratio in RATIOS[1:]:
        _, loss, cut_too = unit_pull(new, old, advantage, turn, turn, ratio, CLIP, clipped)
        assert loss == pytest.approx(-float(value.mean())) and cut_too.tolist() == cut.tolist()


def test_aggregations_with_a_fixed_denominator() -> None:
    turn, part = np.array([7, 7, 7, 2]), np.array([0, 0, 0, 1])
    assert token_weights(turn, "constant", longest=8).tolist() == [1 / 16] * 4
    assert token_weights(turn, "episode_sum", part).tolist() == [0.5] * 4
    assert token_weights(turn, "episode_sum", np.zeros(4, np.int64)).tolist() == [1.0] * 4


def test_an_engine_with_the_same_numbers_gives_weights_of_exactly_one_and_the_cap_caps() -> None:
    turn, part = np.array([0, 0, 1]), np.array([0, 0, 0])
    for ratio in RATIOS:
        assert truncated_weight(np.zeros(3), turn, part, ratio, 2.0).tolist() == [1, 1, 1]
        assert truncated_weight(np.full(3, 5.0), turn, part, ratio, 2.0).tolist() == [2, 2, 2]
        assert truncated_weight(np.full(3, 5.0), turn, part, ratio, None).tolist() == [1, 1, 1]
    gap = np.log([1.1, 1.2, 0.5])
    assert truncated_weight(gap, turn, part, "token", 9.0) == pytest.approx([1.1, 1.2, 0.5])
    assert truncated_weight(gap, turn, part, "turn_sum", 9.0) == pytest.approx([1.32, 1.32, 0.5])
    assert truncated_weight(gap, turn, part, "turn_mean", 9.0) == pytest.approx(
        [1.32**0.5, 1.32**0.5, 0.5]
    )
    assert truncated_weight(gap, turn, part, "episode", 9.0) == pytest.approx([0.66] * 3)
