"""Which row of a batch sees which adapter: set for a forward pass (`route`), followed by a hook.

Knows modules that hold adapters by name; makes and stores none (`gem_ma.engines.local.adapters`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

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
            down, up = layer.lora_A[name], layer.lora_B[name]
            seen = inputs[0] if rows is None else inputs[0][rows]
            # computed in the dtype of the adapter (float32), added in that of the base
            change = (up(down(seen.to(down.weight.dtype))) * layer.scaling[name]).to(output.dtype)
            output = output + change if rows is None else output.index_add(0, rows, change)
    return output
