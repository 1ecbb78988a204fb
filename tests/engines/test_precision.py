"""Weights in bfloat16 are learned by float32 masters: steps smaller than a rounding are kept, a
resume is exact, float16 is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import credit
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.batching import Batched
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Message, Request, Sampling

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.training.learner import Demonstration  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from tests import plays  # noqa: E402
from tests.plays import learn  # noqa: E402

FIRST = "Kuhn poker. Your card is {}.", "Moves so far: none. Choose check or bet."


def learner_of(path: Path, dtype: str = "bfloat16") -> TorchLearner:
    engine: Any = open_engine("main", f"transformers/{path}", dtype=dtype)
    return TorchLearner(engine.engine, Sampling(max_tokens=4))


def hands(learner: TorchLearner, count: int = 24, first: int = 0) -> list[Episode]:
    policy = Policy("main", Batched(learner.engine), Sampling(max_tokens=4))
    return plays.hands(policy, count=count, first=first)


def update(
    learner: TorchLearner, played: list[Episode], lr: float = 1e-3, seed: int = 0, **loss: Any
) -> dict[str, float]:
    table = credit.turns(played, "main")
    worth = np.array([random.Random(f"{seed}/{at}").gauss(0, 1) for at in range(len(table.turns))])
    return learn(learner, table, worth, lr=lr, seed=seed, **loss)


@pytest.mark.long
def test_steps_smaller_than_a_rounding_add_up(thin_model: Path) -> None:
    learner = learner_of(thin_model)
    played = hands(learner)
    for _ in range(3):
        update(learner, played, lr=1e-6)
    for name, weight in learner.parameters.items():
        assert weight.dtype == torch.bfloat16 and learner.masters[name].dtype == torch.float32
        assert torch.equal(learner.masters[name].to(torch.bfloat16), weight)
    moved = {
        name: float((master - learner.parameters[name].float()).detach().abs().max())
        for name, master in learner.masters.items()
    }
    assert max(moved.values()) > 1e-6  # the masters hold what the rounded weights cannot


@pytest.mark.long
def test_gradients_of_many_passes_are_added_in_float32(thin_model: Path) -> None:
    exact, whole, cut = (
        learner_of(thin_model, "float32"),
        learner_of(thin_model),
        learner_of(thin_model),
    )
    with torch.no_grad():
        for name, weight in exact.parameters.items():
            # the same rounded weights, computed with in float32
            weight.copy_(whole.parameters[name])
    played, found = hands(whole), []
    for learner, tokens in ((exact, 16_384), (whole, 16_384), (cut, 64)):
        learner.optimizer = torch.optim.SGD(learner.masters.values(), lr=1.0)
        before = {name: weight.detach().clone() for name, weight in learner.masters.items()}
        update(learner, played, lr=1.0, minibatches=1, grad_clip=1e9, pass_tokens=tokens)
        found.append(
            torch.cat(
                [
                    (before[name] - weight.detach()).flatten()
                    for name, weight in learner.masters.items()
                ]
            )
        )
        assert all(weight.grad is None for weight in learner.parameters.values())
    true, one, many = found
    errors = [float((other - true).norm() / true.norm()) for other in (one, many)]
    assert errors[1] < 1.5 * errors[0] < 0.1  # more passes are no worse than one


@pytest.mark.longest
def test_a_resumed_learner_in_bfloat16_ends_bit_equal(thin_model: Path) -> None:
    def steps(learner: TorchLearner, numbers: range) -> None:
        for number in numbers:
            update(learner, hands(learner, 8, first=100 * number), seed=number, epochs=2)
            learner.publish()

    straight, stopped, again = (
        learner_of(thin_model),
        learner_of(thin_model),
        learner_of(thin_model),
    )
    steps(straight, range(4))
    steps(stopped, range(2))
    files = stopped.state()
    again.load(files)
    assert again.state() == files
    steps(again, range(2, 4))
    assert again.state() == straight.state()
    without = {name: data for name, data in files.items() if name != "masters.safetensors"}
    with pytest.raises(DataError, match=r"'main'.*masters.safetensors"):
        learner_of(thin_model).load(without)
    with pytest.raises(DataError, match="float32 weights do not fit"):
        learner_of(thin_model).load(
            {**files, "masters.safetensors": files["optimizer.safetensors"]}
        )


def test_float16_is_refused_with_a_way_out(thin_model: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"policy 'main': float16 loses small gradients, so it is not trained; set dtype:"
            r" bfloat16 or float32"
        ),
    ):
        learner_of(thin_model, "float16")


@pytest.mark.longest
def test_learning_in_bfloat16_is_as_good_as_in_float32(thin_model: Path) -> None:
    """A one-step task: bet with K, check with J. Cloned on noise first, then learned by its
    reward."""
    demonstrations = [
        Demonstration(
            Request(
                "player_0",
                tuple(Message(text.format(card)) for text in FIRST),
                legal=("check", "bet"),
            ),
            said,
        )
        for card in "JQK"
        for said in ("check", "bet")
    ]
    shares = {}
    for dtype in ("float32", "bfloat16"):
        learner = learner_of(thin_model, dtype)
        learner.clone(demonstrations, WarmStartSettings(cast={}, steps=40, batch=6))
        learner.publish()
        good: list[float] = []
        for step in range(12):
            played = hands(learner, 48, first=1000 * step)
            table = credit.turns(played, "main")
            opening = [n for n, turn in enumerate(table.turns) if turn.step == 0]
            cards = [
                "K" in "".join(m.text for m in table.turns[n].observed if "card" in m.text)
                for n in opening
            ]
            right = np.array(
                [
                    (table.turns[n].action.parsed == "bet") == king
                    for n, king in zip(opening, cards, strict=True)
                ],
                np.float64,
            )
            good.append(float(right.mean()))
            part = table.take(opening)
            learn(learner, part, right - right.mean(), lr=2e-3, seed=step, target_kl=0.05, epochs=2)
            assert learner.publish()["parity_share"] <= 1
        shares[dtype] = float(np.mean(good[:2])), float(np.mean(good[-3:]))
    for dtype, (before, after) in shares.items():
        assert before < 0.65 < 0.85 < after, (dtype, shares)
