"""Run by the Python of .venv-vllm: `route: nccl` with vLLM's own trainer side, save for NCCL itself,
which wants GPUs. Its classes, their arguments and the order in which they ask are vLLM's; the
servers are fakes that sample for real, and last a vLLM server that was started without a transfer.
Writes what came of it as one JSON object to the file of its last argument."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import vllm.distributed.weight_transfer.nccl_engine as nccl

from gem_ma.engines.base import Policy
from gem_ma.engines.vllm import transfer
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.types import Message, Request, Sampling
from gem_ma.training.train import open_learner
from tests.vllm.in_process import move
from tests.vllm_server import FakeVllm, Wire

SAMPLING = Sampling(max_tokens=6)


class Group:
    """In the place of an NCCL communicator: those who join a wire next."""

    def __init__(self, wire: Wire) -> None:
        self.barrier = wire.group

    def destroy(self) -> None:
        self.barrier.abort()


def replaced(wire: Wire, size: int) -> None:
    """NCCL, and nothing else of vLLM's."""
    wire.begin(size)

    def joined(opening: Any) -> Group:
        assert (opening.world_size, opening.rank, opening.packed) == (size, 0, True)
        return Group(wire)

    def broadcast(self: Any, source: Any, meta: Any) -> None:
        weights = {name: weight.clone() for name, weight in self._checked_iter(source, meta)}
        wire.send(self.model_update_group.barrier, weights)

    nccl.open_trainer_endpoint = joined
    nccl.NCCLTrainerWeightTransferEngine._broadcast = broadcast  # type: ignore[method-assign]
    transfer.check_device = lambda where, device: None  # type: ignore[assignment]


def learner_at(model: str, *urls: str) -> Any:
    engine = VLLM(model, policy="main", base_url=list(urls), route="nccl")
    return open_learner(Policy("main", engine, SAMPLING))


def main(model: str, served: str, url: str, out: str) -> None:
    wire = Wire()
    replaced(wire, 3)
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        servers = [stack.enter_context(FakeVllm(Path(model))) for _ in range(2)]
        for server in servers:
            server.wire = wire
        learner = learner_at(model, *(server.url for server in servers))
        counts = [len(server.paths) for server in servers]
        move(learner)
        found["published"] = learner.publish()
        found["paths"] = [
            [path for path in server.paths[count:] if not path.startswith("/v1")]
            for server, count in zip(servers, counts, strict=True)
        ]
        found["ranks"] = [server.rank for server in servers]
        found["paused"] = [server.paused for server in servers]
    try:
        learner_at(served, url)
        found["refused"] = "opened"
    except GemMaError as error:
        found["refused"] = str(error)
    with urllib.request.urlopen(url.removesuffix("/v1") + "/is_paused", timeout=30) as answer:
        found["is_paused"] = json.load(answer)["is_paused"]
    gc.collect()  # the refused policy publishes there no more
    request = Request("a", (Message("hello"),), sampling=SAMPLING, seed=1)
    reply = asyncio.run(VLLM(served, policy="after", base_url=url).sample(request))
    found["after"] = len(reply.token_ids)
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:5])
