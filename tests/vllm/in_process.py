"""Run by the Python of .venv-vllm: the vllm engine in its process. Writes what came of it as one
JSON object to the file of its last argument."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import torch

from gem_ma.engines.base import Policy
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Request, Sampling
from gem_ma.training.train import open_learner

OPTIONS = {
    "max_model_len": 1024,
    "gpu_memory_utilization": 0.1,
    "kv_cache_memory_bytes": 64 * 2**20,
    "enforce_eager": True,
}
SAMPLING = Sampling(max_tokens=8)


class Sharing(VLLM):
    """Publishes all weights to a vLLM that others sample too: one start less."""

    def trained(self) -> Any:
        return self._trained


def move(learner: Any, far: float = 0.02) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in learner.parameters.values():
            weight.add_(torch.randn(weight.shape, generator=generator) * far)


def asked(engine: VLLM, seeds: range) -> list[dict[str, Any]]:
    async def every() -> list[Any]:
        requests = [
            Request("a", (Message("hello there"),), sampling=Sampling(max_tokens=16), seed=seed)
            for seed in seeds
        ]
        return list(await asyncio.gather(*map(engine.sample, requests)))

    return [
        {"ids": reply.token_ids, "logprobs": reply.logprobs, "version": reply.version}
        for reply in asyncio.run(every())
    ]


def main(untied: str, tied: str, out: str) -> None:
    found: dict[str, Any] = {}
    engine = VLLM(untied, policy="main", engine=OPTIONS)
    learner: Any = open_learner(Policy("main", engine, SAMPLING))
    found["alone"], found["crowd"] = asked(engine, range(3, 4)), asked(engine, range(40))
    found["gap of version 0"] = learner.check()["parity_gap"]
    found["stale"] = 0.0
    move(learner)
    try:
        learner.check()
    except EngineError as error:
        found["stale"] = str(error)
    found["gap of version 1"] = learner.publish()["parity_gap"]
    found["after"] = asked(engine, range(3, 4))
    overflow = asyncio.run(
        engine.sample(Request("a", (Message("word " * 1000),), sampling=SAMPLING))
    )
    found["overflow"] = overflow.finish

    tied_options = {**OPTIONS, "max_model_len": 1000}
    adapted = {
        name: VLLM(tied, policy=name, engine=tied_options, lora={"rank": 4})
        for name in ("one", "other")
    }
    learners: dict[str, Any] = {
        name: open_learner(Policy(name, each, SAMPLING)) for name, each in adapted.items()
    }
    found["adapter gaps"] = []
    for each in (*learners.values(), *learners.values()):
        move(each, 0.3)
        found["adapter gaps"].append(each.publish()["parity_gap"])
    found["one core"] = adapted["one"].backend.core is adapted["other"].backend.core  # type: ignore[attr-defined]
    found["adapted"] = [asked(each, range(1)) for each in adapted.values()]
    with_tied = Sharing(tied, policy="tied", engine=tied_options)
    with_tied.backend.rank = adapted["one"].backend.rank  # type: ignore[attr-defined]  # the running one will do
    try:
        open_learner(Policy("tied", with_tied, SAMPLING))
        found["tied"] = "opened"
    except ConfigError as error:
        found["tied"] = str(error)
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":  # vLLM starts children that import this file
    main(*sys.argv[1:4])
