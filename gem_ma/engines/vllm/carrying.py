"""What vLLM servers must hold, as JSON values: another process that samples from the same servers
looks after them in the same way."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gem_ma.engines.vllm.backend import Adapter, Draw
from gem_ma.engines.vllm.replica import Weights
from gem_ma.kernel.types import Sampling
from gem_ma.record.codec import REPLY


def written(weights: Weights) -> dict[str, Any]:
    """The weights, their draws and replies as JSON values."""
    return {
        "adapters": [asdict(adapter) for adapter in weights.adapters],
        "folder": weights.folder,
        "name": weights.name,
        "draws": [asdict(draw) for draw in weights.draws],
        "replies": [REPLY.write(reply) for reply in weights.replies],
    }


def read(values: dict[str, Any]) -> Weights:
    """The inverse of `written`."""
    return Weights(
        adapters=tuple(Adapter(**adapter) for adapter in values["adapters"]),
        folder=values["folder"],
        name=values["name"],
        draws=tuple(map(_draw, values["draws"])),
        replies=tuple(REPLY.read(reply) for reply in values["replies"]),
    )


def _draw(values: dict[str, Any]) -> Draw:
    how = {**values["sampling"], "stop": tuple(values["sampling"]["stop"])}
    adapter = values["adapter"]
    return Draw(
        **{
            **values,
            "prompt": tuple(values["prompt"]),
            "sampling": Sampling(**how),
            "adapter": None if adapter is None else Adapter(**adapter),
        }
    )
