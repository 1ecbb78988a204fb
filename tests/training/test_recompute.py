"""Activations that are computed again: the same gradients, little kept, nothing left behind."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from gem_ma.config.learning import LossSettings
from gem_ma.kernel.types import Sampling

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.local.transformers import Transformers  # noqa: E402
from gem_ma.training.learner.forward import layers, recomputed  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from tests.training.test_head import gradients, some_rows  # noqa: E402


@pytest.fixture(scope="module")
def learner(byte_model: Path) -> TorchLearner:
    lora = {"rank": 4, "targets": ["q_proj", "down_proj"]}
    made = TorchLearner(
        Transformers(str(byte_model), policy="main", lora=lora), Sampling(max_tokens=8)
    )
    with torch.no_grad():
        for weight in made.parameters.values():
            weight.add_(0.1)  # half of a new adapter is 0
    return made


def kept(model: Any, again: bool, width: int = 96) -> int:
    """Bytes that a forward pass keeps for its backward pass, beside weights."""
    held: dict[int, int] = {}
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.arange(5, 5 + width)[None]
    watched = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with watched, recomputed(model) if again else nullcontext():
        model.base_model(ids, use_cache=False).last_hidden_state.sum().backward()
    model.zero_grad(set_to_none=True)
    return sum(held.values())


def test_a_layer_keeps_what_it_was_given_alone(byte_model: Path) -> None:
    model = Transformers(str(byte_model), policy="main").model.requires_grad_(True)
    inputs = len(layers(model)) * 96 * model.config.hidden_size * 4
    assert kept(model, True) + inputs < 0.4 * kept(model, False)


@pytest.mark.long
def test_layers_are_computed_twice_with_a_gradient_and_once_without(learner: TorchLearner) -> None:
    calls: list[int] = []
    # inside of a layer: a layer itself is called once, whatever it does then
    inside = layers(learner.engine.model)[0].mlp
    watch = inside.register_forward_pre_hook(lambda *_: calls.append(1))
    rows = some_rows(learner.engine)
    learner.scorer.recompute = True
    gradients(learner, rows, LossSettings())  # a pass before, without gradient
    watch.remove()
    passes = len(list(learner.scorer.packs(rows)))
    assert len(calls) == 3 * passes
    assert all("forward" not in vars(layer) for layer in layers(learner.engine.model))


def test_a_backward_pass_in_another_thread_sees_the_same_adapter(learner: TorchLearner) -> None:
    """As on a GPU, whose backward pass runs in a thread of its own."""
    model, engine = learner.engine.model, learner.engine
    ids = torch.arange(5, 25)[None]

    def pulled(again: bool) -> list[Any]:
        with recomputed(model) if again else nullcontext():
            with engine.active():
                loss = model.base_model(ids, use_cache=False).last_hidden_state.square().sum()
            worker = threading.Thread(target=loss.backward)
            worker.start()
            worker.join()
        found = [weight.grad.clone() for weight in learner.parameters.values()]
        learner.forget()
        return found

    for one, other in zip(pulled(True), pulled(False), strict=True):
        assert torch.equal(one, other) and one.any()


def test_what_has_wrapped_a_layer_stays_around_it() -> None:
    """As accelerate does for `device_map`."""
    layer = torch.nn.Linear(2, 2)
    plain, seen = layer.forward, list[int]()

    def wrapped(inputs: Any) -> Any:
        seen.append(1)
        return plain(inputs)

    layer.forward = wrapped
    model = torch.nn.Module()
    model.list = torch.nn.ModuleList([layer])
    with recomputed(model):
        layer(torch.ones(1, 2)).sum().backward()
    assert layer.forward is wrapped and len(seen) == 2
