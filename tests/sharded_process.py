"""Processes that share a learner: `python -m tests.sharded_process SIZE JOB MODEL FOLDER`.

torch is imported once, and every process is a fork. The first prints what its job gives, as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gem_ma.config.learning import LossSettings
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner.losses import Sampled
from gem_ma.training.learner.rows import Row, Tokens
from gem_ma.training.learner.sharded_learner import ShardedLearner
from gem_ma.training.learner.shards import write_shards
from gem_ma.training.learner.torch_learner import Objective, TorchLearner
from gem_ma.training.processes.teams import SOLO, Team

KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "bfloat16": {"dtype": "bfloat16"},
    # of rank 1: some processes have no part of such a weight
    "lora": {"lora": {"rank": 1, "targets": ["q_proj", "down_proj"]}},
}
SETTINGS = {
    "many passes": (LossSettings(pass_tokens=32, entropy=0.05), 7),
    "fewer rows than processes": (LossSettings(recompute=True), 1),
}


def learner_of(model: str, kind: str, team: Team) -> TorchLearner:
    """A learner of this kind, in parts where the team has several processes."""
    engine = Transformers(model, policy="main", **KINDS[kind])
    with torch.no_grad():
        for name, weight in engine.weights().items():
            if "lora_B" in name:  # 0 in a new adapter
                weight.add_(0.1)
    if team.size == 1:
        return TorchLearner(engine, Sampling(max_tokens=8))
    made = ShardedLearner(engine, Sampling(max_tokens=8), team)
    made.join(team)
    return made


def pulled(learner: TorchLearner, rows: list[Row], settings: LossSettings) -> None:
    """Gathers the gradients of one minibatch."""
    tokens = Tokens.of(rows)
    learner.bound(settings)
    old = learner.scorer.logprobs(rows) + 0.05 * np.sin(np.arange(len(tokens.turn)))
    goal = Objective(
        Sampled(tokens.advantage, tokens.logprob, tokens.turn, tokens.turn),
        old,
        settings,
        learner.tensor,
        fresh=False,
        anchor=None,
        longest=8,
    )
    for pack in learner.scorer.packs(rows):
        learner.scorer.learn(pack, goal, spread=bool(settings.entropy), added=learner.gather)


def gradients(learner: TorchLearner, rows: list[Row], settings: LossSettings) -> dict[str, Any]:
    """The gradients of one minibatch, of all processes, whole."""
    pulled(learner, rows, settings)
    learner.sum_gradients()
    found = {name: whole(weight.grad) for name, weight in learner.masters.items()}
    learner.forget()
    return found


def whole(tensor: Any) -> Any:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).double().clone()


def compare(model: str, folder: Path, team: Team) -> dict[str, float]:
    """How far gradients in parts lie from whole ones, by kind of learner and settings."""
    from tests.training.test_head import apart, some_rows

    result = {}
    for kind in KINDS:
        alone, divided = (learner_of(model, kind, who) for who in (SOLO, team))
        rows = some_rows(alone.engine)
        for name, (settings, count) in SETTINGS.items():
            found = gradients(divided, rows[:count], settings)
            result[f"{kind}, {name}"] = apart(found, gradients(alone, rows[:count], settings))
    return result


class Server:
    """A sampler elsewhere: it counts what it is given, and may keep its old weights."""

    route, probes, parity = "somewhere", (), None

    def __init__(self, model: str, kind: str, *, deaf: bool = False) -> None:
        self.engine, self.deaf = learner_of(model, kind, SOLO).engine, deaf
        self.version, self.unpublished, self.taken = 0, False, 0

    def take(self, weights: Any) -> None:
        self.taken += 1
        if not self.deaf:
            self.engine.take(weights)

    def sample_ids(self, *asked: Any) -> Any:
        return self.engine.sample_ids(*asked)


def elsewhere(model: str, folder: Path, team: Team) -> dict[str, Any]:
    """A publish to a server by a learner in parts, in full and as an adapter, and to one that
    keeps its old weights."""
    from tests.training.test_head import some_rows

    result: dict[str, Any] = {}
    for kind, deaf in (("full", False), ("lora", False), ("full", True)):
        server = Server(model, kind, deaf=deaf)
        engine = Transformers(model, policy="main", **KINDS[kind])
        learner = ShardedLearner(engine, Sampling(max_tokens=8), team, server)
        learner.join(team)
        rows = some_rows(engine)
        for group in learner.optimizer.param_groups:
            group["lr"] = 1e-2
        pulled(learner, rows, LossSettings())
        learner.step(1.0, 0.0, rows)
        try:
            gap = learner.publish()["parity_mean"]
        except EngineError as error:
            gap = str(error)
        counts = [int(part) for part in team.gather(str(server.taken).encode())]
        result[f"{kind} {deaf}"] = [gap, counts, learner.version, learner.fingerprint()]
    return result


def steps(model: str, folder: Path, team: Team) -> dict[str, Any]:
    """Two optimiser steps, the files of a checkpoint, and two more; or, where the files are there,
    these two from them. Gives the weights at the end."""
    from tests.training.test_head import some_rows

    result = {}
    for kind in KINDS:
        learner, files = learner_of(model, kind, team), folder / kind
        rows, begun = some_rows(learner.engine), (folder / f"{kind}.json").exists()
        if begun:
            note = (folder / f"{kind}.json").read_bytes()
            learner.load({"learner.json": note}, sorted(files.iterdir()))
        for step in range(2 if begun else 4):
            if step == 2:
                tensors = {f"main/{name}": it for name, it in learner.tensors().items()}
                write_shards(files, tensors, learner.group)
                note = learner.state()["learner.json"]
                if team.first:
                    (folder / f"{kind}.json").write_bytes(note)
            for group in learner.optimizer.param_groups:
                group["lr"] = 1e-3
            pulled(learner, rows, SETTINGS["many passes"][0])
            learner.step(1.0, 0.0, rows)
        result[kind] = {name: whole(it).tolist() for name, it in learner.masters.items()}
    return result


def memory(model: str, folder: Path, team: Team) -> dict[str, Any]:
    """Bytes of weights, gradients and moments of this process's learner, after a step."""
    from tests.training.test_head import some_rows

    learner = learner_of(model, "full", team)
    rows, bytes_of = some_rows(learner.engine), {"weights": 0, "gradients": 0, "moments": 0}
    for _ in range(2):
        pulled(learner, rows, LossSettings())
        learner.sum_gradients()
        kept = {
            "weights": learner.masters.values(),
            "gradients": [weight.grad for weight in learner.masters.values()],
            "moments": [
                value
                for state in learner.optimizer.state.values()
                for key, value in state.items()
                if key != "step"
            ],
        }
        bytes_of = {name: sum(map(size, tensors)) for name, tensors in kept.items()}
        learner.optimizer.step()
        learner.forget()
    return {**bytes_of, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def size(tensor: Any) -> int:
    """Bytes of the part that lies in this process."""
    part = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(part.numel() * part.element_size())


JOBS = {"compare": compare, "elsewhere": elsewhere, "steps": steps, "memory": memory}


def work(rank: int, processes: int, job: str, model: str, folder: Path) -> None:
    """What a process does, from meeting the others to its end."""
    team = SOLO
    if processes > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        meet = f"file://{folder.resolve() / f'meet-{job}'}"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=processes)
        team = Team(rank, processes, dist.new_group(backend="gloo"))
    done = JOBS[job](model, folder, team)
    if team.first:
        print(json.dumps(done), flush=True)
    if processes > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401
    from transformers.models.qwen3 import modeling_qwen3  # noqa: F401

    import tests.training.test_head  # noqa: F401

    processes, given = int(sys.argv[1]), (sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    children = []
    for rank in range(processes):
        if not (child := os.fork()):
            work(rank, processes, *given)
            sys.exit()
        children.append(child)
    # the others would wait for one that has failed
    for _ in children:
        _, status = os.wait()
        if code := os.waitstatus_to_exitcode(status):
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            sys.exit(f"a process ended with exit code {code}")
