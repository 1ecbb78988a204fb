"""What an adapter adds, and its gradients: those of the formula, in whatever blocks they are
computed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.local import adapters  # noqa: E402
from gem_ma.engines.local.adapters import add_adapters, changed, route  # noqa: E402


def drawn(*shape: int, learns: bool = True, dtype: Any = None) -> Any:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return values.to(dtype or torch.float64).requires_grad_(learns)


def formula(output: Any, inputs: Any, down: Any, up: Any, scaling: float) -> Any:
    return output + scaling * inputs @ down.T @ up.T


@pytest.mark.parametrize("rows", [1, 4, 5, 12])  # below a block, a whole one, one more, three
def test_values_and_gradients_are_those_of_the_formula(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "BLOCK", 4)
    parts = drawn(2, rows, 7), drawn(2, rows, 5), drawn(3, 5), drawn(7, 3)
    pull = drawn(2, rows, 7, learns=False)
    plain, made = formula(*parts, 1.7), changed(*parts, 1.7)
    assert made.shape == plain.shape and torch.allclose(made, plain)
    for wanted, grad in zip(
        torch.autograd.grad(plain, parts, pull), torch.autograd.grad(made, parts, pull), strict=True
    ):
        assert torch.allclose(grad, wanted)


def test_rounded_layers_keep_their_type_and_the_adapter_computes_in_its_own() -> None:
    parts = [drawn(600, 7, dtype=torch.bfloat16), drawn(600, 5, dtype=torch.bfloat16)]
    adapter = [drawn(3, 5, dtype=torch.float32), drawn(7, 3, dtype=torch.float32)]
    made = changed(*parts, *adapter, 2.0)
    made.sum().backward()
    assert made.dtype == parts[1].grad.dtype == torch.bfloat16
    assert adapter[0].grad.dtype == torch.float32
    # rounded once at the end: the change itself is as exact as float32
    exact = 2.0 * parts[1].float() @ adapter[0].T @ adapter[1].T
    assert torch.equal(made, parts[0] + exact.to(torch.bfloat16))
    [wanted] = torch.autograd.grad(exact.sum(), [adapter[1]])
    assert torch.allclose(adapter[1].grad, wanted, rtol=1e-4)


def test_a_frozen_adapter_passes_gradients_on_and_has_none() -> None:
    parts = drawn(6, 7), drawn(6, 5), drawn(3, 5, learns=False), drawn(7, 3, learns=False)
    changed(*parts, 0.5).sum().backward()
    assert torch.allclose(parts[1].grad, 0.5 * torch.ones(6, 7).double() @ parts[3] @ parts[2])
    assert parts[2].grad is None and torch.equal(parts[0].grad, torch.ones(6, 7).double())
    with torch.inference_mode():
        assert torch.allclose(changed(*parts, 0.5), formula(*parts, 0.5))


@pytest.mark.parametrize("axes", [0, 1, 2, 3])  # none is a linear layer
def test_convolutions_that_share_a_target_with_linear_layers_are_adapted(axes: int) -> None:
    """A target is a name, and `proj` of a model that sees is both."""
    kind = [torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d][axes]
    down = kind(3, 2, *[2] * bool(axes), bias=False)
    up = kind(2, 5, *[1] * bool(axes), bias=False)
    layer = SimpleNamespace(lora_A={"a": down}, lora_B={"a": up}, scaling={"a": 0.5})
    inputs = drawn(4, 3, *[2] * axes, dtype=torch.float32)
    output = drawn(4, 5, *[1] * axes, dtype=torch.float32)
    wanted = output + 0.5 * up(down(inputs))
    with route(["a"], torch, "cpu"):
        assert torch.allclose(add_adapters(layer, (inputs,), output), wanted)
    with route(["a", None, None, "a"], torch, "cpu"):
        mixed = add_adapters(layer, (inputs,), output)
    assert torch.allclose(mixed[[0, 3]], wanted[[0, 3]])
    assert torch.equal(mixed[[1, 2]], output[[1, 2]])
