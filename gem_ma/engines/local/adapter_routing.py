"""Which row of a batch sees which adapter: set for a forward pass (`route`), followed by a hook.

Knows modules that hold adapters by name; makes and stores none (`gem_ma.engines.local.adapters`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gem_ma.engines.local.adapter_change import changed

Division = tuple[tuple[str, Any], ...]  # (adapter, its rows [n], or None where all rows are its)
# A context variable, so that threads that run batches at the same time do not mix their divisions.
_DIVISION: ContextVar[Division] = ContextVar("gem_ma_adapters", default=())


@contextmanager
def route(adapters: Sequence[str | None], torch: Any, device: Any) -> Iterator[None]:
    """Row k of every forward pass inside sees `adapters[k]`; None is the base. One adapter alone
    is for any number of rows."""
    different = list(dict.fromkeys(adapters))
    if len(different) == 1:
        division: Division = () if different[0] is None else ((different[0], None),)
    else:
        rows = {
            name: [row for row, other in enumerate(adapters) if other == name] for name in different
        }
        division = tuple(
            (name, torch.tensor(rows[name], device=device))
            for name in different
            if name is not None
        )
    token = _DIVISION.set(division)
    try:
        yield
    finally:
        _DIVISION.reset(token)


def add_adapters(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    """The layer's output with what the adapters of its rows add; runs after the base layer."""
    for name, rows in _DIVISION.get():
        if name in layer.lora_A:
            if rows is None:
                output = _added(layer, name, inputs[0], output)
            else:
                part = _added(layer, name, inputs[0][rows], output[rows])
                output = output.index_copy(0, rows, part)
    return output


def _added(layer: Any, name: str, inputs: Any, output: Any) -> Any:
    """The output of a layer with what one adapter adds to all its rows."""
    down = layer.lora_A[name]
    up = layer.lora_B[name]
    scaling = layer.scaling[name]
    if down.weight.dim() == 2:
        # weights alone: plain LoRA has no bias and no dropout here
        return changed(output, inputs, down.weight, up.weight, scaling)
    # A target is a name, and in a model that sees, a convolution over patches may share its name
    # with a linear layer (`proj` of Qwen2-VL). Its thin layers are convolutions, no products.
    change = up(down(inputs.to(down.weight.dtype))) * scaling
    return output + change.to(output.dtype)
