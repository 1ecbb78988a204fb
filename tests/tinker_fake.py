"""The two clients of the Tinker API in this process, as plain classes: a server whose model is a
table of logits per prefix. What a real one may do wrong is switched on by name."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np

from gem_ma.engines.base import stable_seed
from gem_ma.training.learner.server_checks import divisor

BASE = "models/referential"


class RateLimitError(Exception):
    status_code = 429


class InternalServerError(Exception):
    status_code = 500


class APIConnectionError(Exception):
    pass


class Gone(Exception):
    status_code = 404


class Refused(Exception):
    status_code = 400


class RequestFailedError(Exception):
    category = SimpleNamespace(value="server")


def expired() -> Exception:
    """As the client raises it: an exception of its own, from the status 410."""
    status, error = InternalServerError("gone"), type("RetryableException", (Exception,), {})("old")
    status.status_code = 410
    error.__cause__ = status
    return error


FAULTS = {
    "429": lambda: RateLimitError("slow down"),
    "500": lambda: InternalServerError("oops"),
    "dropped": lambda: APIConnectionError("connection reset"),
    "expired": expired,
    "failed": lambda: RequestFailedError("out of memory"),
}


class Table:
    """Logits per prefix, begun at small numbers of its own; AdamW over all that were touched."""

    def __init__(self, size: int) -> None:
        self.size, self.count = size, 0
        self.rows: dict[tuple[int, ...], Any] = {}
        self.first: dict[tuple[int, ...], Any] = defaultdict(lambda: np.zeros(size))
        self.second: dict[tuple[int, ...], Any] = defaultdict(lambda: np.zeros(size))

    def logits(self, prefix: tuple[int, ...]) -> Any:
        if prefix not in self.rows:
            rng = np.random.default_rng(stable_seed(*prefix))
            self.rows[prefix] = rng.normal(size=self.size) * 0.3
        return self.rows[prefix]

    def logprobs(self, prefix: tuple[int, ...]) -> Any:
        logits = self.logits(prefix)
        return logits - np.logaddexp.reduce(logits)

    def step(self, gradient: dict[tuple[int, ...], Any], how: Any, clips: bool) -> float:
        norm = float(np.sqrt(sum((g**2).sum() for g in gradient.values())))
        shrink = min(1.0, how.grad_clip_norm / norm) if clips and how.grad_clip_norm and norm else 1
        self.count += 1
        for prefix in list({**self.first, **gradient}):
            slope = gradient.get(prefix, np.zeros(self.size)) * shrink
            first = self.first[prefix] = how.beta1 * self.first[prefix] + (1 - how.beta1) * slope
            second = how.beta2 * self.second[prefix] + (1 - how.beta2) * slope**2
            self.second[prefix] = second
            first = first / (1 - how.beta1**self.count)
            root = np.sqrt(second / (1 - how.beta2**self.count))
            row = self.logits(prefix)
            self.rows[prefix] = row - how.learning_rate * (
                first / (root + how.eps) + how.weight_decay * row
            )
        return norm


class Server:
    """What the clients speak to. `way`: by what it divides losses; `clips`: whether it knows
    grad_clip_norm; `keeps`: whether old versions stay; `stale`: publishes write what was published
    before. `faults`: (call, fault, whether it comes after the call was carried out), each once."""

    def __init__(self, way: str = "sum", size: int = 56, **options: Any) -> None:
        self.way, self.size = way, size
        self.clips = options.get("clips", True)
        self.keeps, self.stale = options.get("keeps", True), options.get("stale", False)
        self.faults: list[tuple[str, str, bool]] = options.get("faults", [])
        self.context = options.get("context")
        self.spoilt: dict[str, Any] = {}  # call -> what becomes of its answer
        self.saved: dict[str, Table] = {}
        self.trainers: list[Trainer] = []
        self.calls: list[str] = []
        self.keys: set[str] = set()

    def call(self, name: str, work: Any) -> Any:
        """What `work` gives, or the fault that waits for this call."""
        self.calls.append(name)
        spoil = self.spoilt.get(name)
        if spoil is not None:  # every answer to this call
            return spoil(work())
        fault = next((each for each in self.faults if each[0] == name), None)
        if fault is None:
            return work()
        self.faults.remove(fault)
        if fault[2]:
            work()
        raise FAULTS[fault[1]]()

    def sdk(self, where: str = "") -> Any:
        """Stands for the module `tinker`."""

        def service(*, api_key: str, **more: Any) -> Service:
            self.keys.add(api_key)
            return Service(self)

        space = SimpleNamespace(
            Datum=SimpleNamespace,
            ModelInput=SimpleNamespace(from_ints=lambda ids: list(ids)),
            TensorData=SimpleNamespace,
            SamplingParams=SimpleNamespace,
            AdamParams=SimpleNamespace,
        )
        return SimpleNamespace(ServiceClient=service, types=space)


class Future:
    """Carried out where it is asked for."""

    def __init__(self, server: Server, name: str, work: Any) -> None:
        self.server, self.name, self.work = server, name, work

    def result(self, timeout: float | None = None) -> Any:
        return self.server.call(self.name, self.work)


class Service:
    def __init__(self, server: Server) -> None:
        self.server = server

    def get_server_capabilities(self) -> Any:
        model = SimpleNamespace(model_name=BASE, max_context_length=self.server.context)
        return SimpleNamespace(supported_models=[model])

    def create_lora_training_client(self, **options: Any) -> Any:
        return Trainer(self.server, Table(self.server.size), options)

    def create_training_client_from_state_with_optimizer(self, path: str) -> Any:
        if path not in self.server.saved:
            raise Gone(path)
        return Trainer(self.server, copy.deepcopy(self.server.saved[path]), {})

    def create_sampling_client(self, base_model: str = "", model_path: str = "") -> Any:
        if model_path and model_path not in self.server.saved:
            raise Gone(model_path)
        table = self.server.saved[model_path] if model_path else Table(self.server.size)
        return Sampler(self.server, table)

    def create_rest_client(self) -> Any:
        def delete(path: str) -> Future:
            return Future(self.server, "delete", lambda: self.server.saved.pop(path))

        return SimpleNamespace(delete_checkpoint_from_tinker_path=delete)


class Trainer:
    def __init__(self, server: Server, table: Table, options: dict[str, Any]) -> None:
        self.server, self.table, self.options = server, table, options
        self.waiting: list[Any] = []
        self.number = len(server.trainers)
        server.trainers.append(self)

    def _logprobs(self, datum: Any) -> Any:
        ids, targets = datum.model_input, datum.loss_fn_inputs["target_tokens"].data
        scores = [
            self.table.logprobs(tuple(ids[: n + 1]))[target] for n, target in enumerate(targets)
        ]
        return np.array(scores, np.float32)

    def _output(self, data: Any) -> Any:
        return SimpleNamespace(
            loss_fn_outputs=[{"logprobs": self._logprobs(datum)} for datum in data]
        )

    def forward(self, data: Any, loss: str) -> Future:
        return Future(self.server, "forward", lambda: self._output(data))

    def forward_backward(self, data: Any, loss: str) -> Future:
        def work() -> Any:
            output = self._output(data)
            self.waiting += [
                (d, o["logprobs"]) for d, o in zip(data, output.loss_fn_outputs, strict=True)
            ]
            return output

        assert loss == "importance_sampling"
        return Future(self.server, "forward_backward", work)

    def optim_step(self, how: Any) -> Future:
        return Future(self.server, "optim_step", lambda: self._step(how))

    def _step(self, how: Any) -> Any:
        lengths = [len(datum.model_input) for datum, _ in self.waiting]
        gradient: dict[tuple[int, ...], Any] = {}
        for datum, scores in self.waiting:
            inputs = {name: value.data for name, value in datum.loss_fn_inputs.items()}
            by = divisor(self.server.way, len(datum.model_input), lengths)
            for n, target in enumerate(inputs["target_tokens"]):
                prefix = tuple(datum.model_input[: n + 1])
                ratio = np.exp(scores[n] - inputs["logprobs"][n])
                slope = np.exp(self.table.logprobs(prefix)) - np.eye(self.server.size)[target]
                slope = slope * ratio * inputs["advantages"][n] / by
                gradient[prefix] = gradient.get(prefix, 0.0) + slope
        self.waiting = []
        norm = self.table.step(gradient, how, self.server.clips)
        return SimpleNamespace(metrics={"fake/grad_norm": norm})

    def save_state(self, name: str) -> Future:
        return Future(self.server, "save_state", lambda: self._save("weights", name))

    def save_weights_for_sampler(self, name: str) -> Future:
        return Future(self.server, "publish", lambda: self._save("sampler_weights", name))

    def _save(self, kind: str, name: str) -> Any:
        path = f"tinker://run{self.number}/{kind}/{name}"
        table = self.table if not self.server.keeps else copy.deepcopy(self.table)
        if self.server.stale and kind == "sampler_weights" and self.table.count:
            table = Table(self.server.size)
        self.server.saved[path] = table
        return SimpleNamespace(path=path)


class Sampler:
    def __init__(self, server: Server, table: Table) -> None:
        self.server, self.table = server, table

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        return self.server.call("sample", lambda: self._sample(list(prompt), sampling_params))

    def _sample(self, ids: list[int], how: Any) -> Any:
        rng, count = random.Random(how.seed), len(ids)
        logprobs: list[float] = []
        finish = "length"
        for _ in range(how.max_tokens):
            scores = self.table.logprobs(tuple(ids))
            pick = rng.choices(range(len(scores)), np.exp(scores))[0]
            ids.append(pick)
            logprobs.append(float(scores[pick]))
            if pick in how.stop:
                finish = "stop"
                break
        sequence = SimpleNamespace(tokens=ids[count:], logprobs=logprobs, stop_reason=finish)
        return SimpleNamespace(sequences=[sequence])
