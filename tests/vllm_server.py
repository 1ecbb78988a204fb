"""A server on loopback that speaks vLLM's routes and samples a tiny model for real, so that other
weights give other log-probabilities. It can die, hang, be restarted, and keep old weights."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.types import Sampling
from tests.fault_server import Answer, Asked, FaultServer, drop, status

CONTEXT = 96


class Wire:
    """What stands for NCCL: a broadcast of a group begins once all of it have come."""

    def __init__(self) -> None:
        self.weights: dict[str, Any] = {}
        self.group = threading.Barrier(1)

    def begin(self, size: int) -> threading.Barrier:
        """A new group of so many, which they join next."""
        self.group = threading.Barrier(size, timeout=60)
        return self.group

    def send(self, group: threading.Barrier, weights: dict[str, Any]) -> None:
        self.weights = weights
        group.wait()


class FakeVllm:
    """One server. `forgets`: it says that it took weights, and keeps the old ones; `keeps_head`:
    all but the output head; `dev`: it is in development mode."""

    def __init__(self, model: Path, *, dev: bool = True, forgets: bool = False) -> None:
        self.model, self.dev, self.forgets, self.keeps_head = model, dev, forgets, False
        self.dead = self.hangs = False
        self.refuses: set[str] = set()  # paths that are answered with 500
        self.paths: list[str] = []
        self.sampled: list[tuple[str, tuple[int, ...]]] = []  # (weights, prompt) of each reply
        self.after = None  # called once, before the n-th completion
        self.wire: Wire | None = None
        self.restart()
        self.server = FaultServer(self._answer)

    def restart(self) -> None:
        """The weights of its start, under the name of its start."""
        self.engine = Transformers(str(self.model), policy="served", kv_tokens=0)
        self.engine.unshare()
        self.name, self.adapters, self.paused = "default", dict[str, str](), False
        self.group: threading.Barrier | None = None  # of a transfer
        self.rank, self.updating = 0, False

    @property
    def url(self) -> str:
        return self.server.url

    def __enter__(self) -> FakeVllm:
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__(*exc)

    def asked_for(self, path: str) -> int:
        return sum(one.partition("?")[0] == path for one in self.paths)

    def _answer(self, asked: Asked) -> Answer:
        if self.hangs:
            return Answer(then="hang", promised=-1)
        if self.dead:
            return drop()
        path = asked.path.partition("?")[0]
        self.paths.append(asked.path)
        if path in self.refuses:
            return status(500, "scripted")
        answer = getattr(self, "_" + path.removeprefix("/v1").strip("/"), None)
        if answer is None or (not self.dev and not path.startswith(("/v1", "/tokenize"))):
            return Answer(404, json.dumps({"detail": "Not Found"}).encode())
        made = answer(asked.body)
        return made if isinstance(made, Answer) else Answer(body=json.dumps(made).encode())

    def _models(self, body: dict[str, Any]) -> Any:
        return {"data": [{"id": "base", "parent": None, "max_model_len": CONTEXT}]}

    def _tokenize(self, body: dict[str, Any]) -> Any:
        ids = self.engine.chat.tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]
        return {"tokens": list(ids)}

    def _completions(self, body: dict[str, Any]) -> Any:
        prompt = tuple(body["prompt"])
        if body["model"] not in {"base", *self.adapters}:
            return status(404, f"The model `{body['model']}` does not exist.")
        allowed = body.get("allowed_token_ids")
        if allowed:
            ids, logprobs, finish = allowed, [0.0], "length"
        else:
            how = Sampling(temperature=body["temperature"], max_tokens=body["max_tokens"])
            (drawn,) = self.engine.sample_ids([prompt], [how], [body["seed"]])
            ids, logprobs, finish = drawn.ids, drawn.logprobs, drawn.finish
            self.sampled.append((self.name, prompt))
        choice = {
            "index": 0,
            "text": "?",
            "finish_reason": finish,
            "token_ids": list(ids),
            "prompt_token_ids": list(prompt),
            "logprobs": {"token_logprobs": [float(each) for each in logprobs]},
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
        return {"choices": [choice], "usage": usage}

    # -- weights ----------------------------------------------------------------------------------

    def _load_lora_adapter(self, body: dict[str, Any]) -> Any:
        self.adapters[body["lora_name"]] = body["lora_path"]
        return Answer(body=b"Success", content_type="text/plain")

    def _unload_lora_adapter(self, body: dict[str, Any]) -> Any:
        self.adapters.pop(body["lora_name"], None)
        return Answer(body=b"Success", content_type="text/plain")

    def _weight_info(self, body: dict[str, Any]) -> Any:
        return {"weight_version": self.name}

    def _pause(self, body: dict[str, Any]) -> Any:
        self.paused = True
        return {"status": "paused"}

    def _resume(self, body: dict[str, Any]) -> Any:
        self.paused = False
        return {"status": "resumed"}

    def _reset_prefix_cache(self, body: dict[str, Any]) -> Any:
        return Answer(body=b"")

    def _collective_rpc(self, body: dict[str, Any]) -> Any:
        from safetensors.torch import load_file

        assert self.paused and body["method"] == "reload_weights"
        folder = Path(body["kwargs"]["weights_path"])
        if not folder.is_dir():
            return status(500, f"no such folder: {folder}")
        if not self.forgets:
            self._take(load_file(folder / "model.safetensors"))
        return {"results": [None]}

    def _take(self, weights: dict[str, Any]) -> None:
        model, torch = self.engine.model, self.engine.torch
        old = model.lm_head.weight.detach().clone()
        if self.keeps_head:  # as it was made, for as long as it takes weights
            model.lm_head.weight = model.get_input_embeddings().weight
        self.engine.take(weights)
        if self.keeps_head:
            model.lm_head.weight = torch.nn.Parameter(old)

    def _update_weight_version(self, body: dict[str, Any]) -> Any:
        self.name = body["new_version"]
        return {"success": True}

    # -- by vLLM's own transfer -------------------------------------------------------------------

    def _get_world_size(self, body: dict[str, Any]) -> Any:
        return {"world_size": 1}

    def _init_weight_transfer_engine(self, body: dict[str, Any]) -> Any:
        assert self.wire is not None
        self.rank, self.group = body["init_info"]["rank_offset"], self.wire.group
        assert 0 < self.rank < body["init_info"]["world_size"]
        return {}

    def _shutdown_weight_transfer_engine(self, body: dict[str, Any]) -> Any:
        self.group = None
        return {}

    def _start_weight_update(self, body: dict[str, Any]) -> Any:
        assert self.paused
        self.updating = True
        return {}

    def _update_weights(self, body: dict[str, Any]) -> Any:
        assert self.paused and self.updating and self.wire is not None
        if self.group is None:
            return status(500, "not initialized")
        try:
            self.group.wait()
            self._take(self.wire.weights)
        except threading.BrokenBarrierError:
            return status(500, "the group is broken")
        return {}

    def _finish_weight_update(self, body: dict[str, Any]) -> Any:
        self.updating = False
        return {}
