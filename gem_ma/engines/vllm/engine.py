"""The `vllm` engine: token ids in, token ids and log-probabilities out, at a vLLM server or in this
process.

It renders chat itself, so prompts grow by appending, as everywhere. Log-probabilities are those of
the distribution that was sampled from: masked ids out, divided by the temperature.

It is also a sampler that a learner publishes to. The learner trains the weights of a `transformers`
engine on the same folder, and publishes them in one of three ways:

- `adapter` (with `lora:`): a folder per version, loaded under a name that was never used before, so
  nothing cached can be stale.
- `full`: all weights, as a model folder; with a tied output head once `try_head` has tried it.
- `nccl`: the same by vLLM's own weight transfer, see `transfer`.

A wrong model behind a right name answers with status 200. So every publish is followed by a
parity check on `probes`, prompts of several cache blocks that were asked before.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from gem_ma.engines.endpoint.endpoint import EACH, Budget, Endpoint, Price, single
from gem_ma.engines.models.adapter_folder import write_adapter
from gem_ma.engines.models.chat import Chat, ChatOptions
from gem_ma.engines.models.loading import read_json, tokenizer_of
from gem_ma.engines.models.model_folder import origin_of
from gem_ma.engines.models.served import Served, check_published, said
from gem_ma.engines.models.settings import check_parity, lora_settings
from gem_ma.engines.models.vocabulary import Vocabulary, end_ids_of, head_rows
from gem_ma.engines.vllm.backend import (
    HOTTEST,
    Adapter,
    Draw,
    Parameters,
    Sampled,
    blocking,
    probe_prompts,
    recorded,
)
from gem_ma.engines.vllm.process import Process
from gem_ma.engines.vllm.replicas import Replicas
from gem_ma.engines.vllm.server import Server
from gem_ma.engines.vllm.transfer import NO_PARTS, Transfer
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Reply, Request, Sampling, Usage
from gem_ma.registry import load
from gem_ma.system.options import flat

Lora = dict[str, Any] | str | None  # settings of a new adapter, the folder of one, or none
ROUTES = ("adapter", "full", "nccl")
WHOLE = ("full", "nccl")  # those of all weights


@dataclass(frozen=True, slots=True)
class Serving:
    """What vLLM serves. `served_model`: the model's name at the server, None = the only one.
    `allow_http`: a key and all texts may travel unencrypted to another machine. `engine`:
    `AsyncEngineArgs` of a vLLM that is started in this process. `dtype`: what vLLM computes in,
    and the learner."""

    served_model: str | None = None
    allow_http: bool = False
    engine: dict[str, Any] | None = None
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Publishing:
    """How the weights of a learner come to vLLM. `lora` trains an adapter, or is the folder of one.
    `route`: see the module; by default as `lora` says. `adapters`: a folder that this process and
    the server both see, by default a temporary one. `parity`: nats that vLLM and the learner may
    differ in, in the mean over tokens; by default measured. `device`: of the learner."""

    lora: Lora = None
    route: str | None = None
    adapters: str | None = None
    parity: float | None = None
    device: str = "cpu"


def check(serving: Serving, publishing: Publishing, where: str) -> None:
    """Raises ConfigError for a value out of its choice or range."""
    if serving.dtype not in BOUNDS:
        raise ConfigError(f"{where}: dtype is one of {', '.join(BOUNDS)}; got {serving.dtype!r}")
    check_parity(publishing.parity, where)
    route = publishing.route
    if route is not None and route not in ROUTES:
        raise ConfigError(f"{where}: route is one of {', '.join(ROUTES)}; got {route!r}")


def route_of(publishing: Publishing, lora: Lora, where: str, here: bool) -> str:
    """How weights are published. Raises ConfigError where that does not fit the adapter, or a
    vLLM in this process (`here`)."""
    route = publishing.route or ("full" if lora is None else "adapter")
    if (route in WHOLE) == (lora is not None):
        remedy = (
            "needs lora: {rank: 8}" if lora is None else "publishes all weights; leave lora out"
        )
        raise ConfigError(f"{where}: route {route} {remedy}")
    if route == "nccl" and here:
        raise ConfigError(
            f"{where}: route: nccl sends weights to a server; set base_url, or route: full"
        )
    return route


def base_and_lora(name: str, lora: Lora, policy: str) -> tuple[str, Lora]:
    """(folder of the base model, adapter) behind the name of a model, which may be an adapter on
    one. Raises ConfigError."""
    origin = origin_of(name, lora, policy)
    # Settings stay as they are written: the learner's engine reads them again.
    adapter = lora if origin.adapter is None else str(origin.adapter)
    return str(origin.folder), adapter


def rank_and_alpha(lora: dict[str, Any] | str, policy: str) -> tuple[int, float]:
    """Of an adapter that will be made, or of one that lies in a folder."""
    if isinstance(lora, str):
        config = read_json(lora, "adapter_config.json", f"policies.{policy}.lora")
        return int(config.get("r", 0)), float(config.get("lora_alpha", 0))
    settings = lora_settings(lora, policy)
    return settings.rank, settings.alpha


# nats that two servers may be apart on the same draws (`backend.apart`): some ten times what their
# kernels round by, and far below what other weights do
BOUNDS = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}
HERE = "in this process"  # stands where an address would
HELLO = (Message("hello"),)  # what a ping says
DOWN = ".lora_A.weight"
PARTS = (
    "a learner in parts cannot try whether vLLM keeps the old output head of a model with tied"
    " embeddings"
)


def try_head(learner: Any) -> None:
    """Raises ConfigError where a vLLM does not read out with the embeddings that it is given.

    In a model with tied embeddings one matrix embeds and reads out. A build that keeps a packed
    copy of the head (the CPU build does) takes new weights without a word and goes on with the old
    head. So other embeddings are published, parity is checked, and those of the learner are
    published again. Nothing of the learner is changed.
    """
    sampler = learner.sampler
    model = learner.engine.model
    shared = model.get_input_embeddings().weight
    name = next(name for name, weight in learner.parameters.items() if weight is shared)
    own = {each: weight.data for each, weight in learner.parameters.items()}
    # each token gets the embedding of its neighbour: under the old head every answer is another
    with learner.holding({**own, name: own[name].roll(1, 0)}):
        sampler.take(learner.parameters)
        try:
            learner.check()
        except EngineError as error:
            failed: EngineError | None = error
        else:
            failed = None
    if failed is not None:
        with suppress(EngineError):  # a server goes on with what it had; what matters is said below
            sampler.take(learner.parameters)
        raise ConfigError(
            f"{sampler.where}: this vLLM keeps the old output head of a model with tied embeddings,"
            f" as was tried; add lora: {{rank: 8}} ({failed})"
        ) from failed
    sampler.take(learner.parameters)
    sampler.unpublished = False


def lora_note(weights: Mapping[str, Any], alpha: float, base: str) -> dict[str, Any]:
    """What an adapter's folder says of these weights, in peft's format. Raises EngineError."""
    down = {name: weight for name, weight in weights.items() if name.endswith(DOWN)}
    ranks = {int(weight.shape[0]) for weight in down.values()}
    if len(ranks) != 1 or not all(".lora_A." in name or ".lora_B." in name for name in weights):
        raise EngineError(
            f"these weights are not a LoRA of one rank: {', '.join(sorted(weights)[:3])} ..."
        )
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": ranks.pop(),
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.removesuffix(DOWN).rsplit(".", 1)[-1] for name in down}),
        "base_model_name_or_path": base,
        "inference_mode": True,
    }


def write_weights(folder: Path, weights: Mapping[str, Any], model: str) -> None:
    """Writes these weights as the model folder `folder`, with the other files of the folder
    `model`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    for file in Path(model).iterdir():
        if file.is_file() and "safetensors" not in file.name:
            shutil.copy(file, folder / file.name)
    save_file(
        {name: weight.detach().cpu().contiguous() for name, weight in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def plain_name(policy: str) -> str:
    """The policy's name with letters that every path and URL takes."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", policy) or "policy"


class VLLM(Served):
    """`vllm/PATH`: a model folder, sampled by vLLM.

    `name`: the folder that vLLM serves (or its name on the hub), of which only config and tokenizer
    are read without a learner; or the folder of an adapter on it. `endpoint`: the server, or
    several with the same model; without a `base_url` vLLM runs in this process. A config names the
    fields of the objects: `base_url: ...`, `lora: {rank: 8}`.

    Raises ConfigError for options that do not fit, DataError for a folder that is missing or
    damaged.
    """

    exports = "transformers"  # what learns here is written as any local model

    @flat
    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        endpoint: Endpoint = Endpoint(concurrency=64),  # noqa: B008  (frozen)
        serving: Serving = Serving(),
        publishing: Publishing = Publishing(),
        chat: ChatOptions = ChatOptions(),  # noqa: B008  (frozen)
        price: dict[str, Any] | Price | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.policy = policy
        self.version = 0
        self.unpublished = False
        self.name = serving.served_model or name
        self.where = f"policy {policy!r}"
        check(serving, publishing, self.where)
        self.path, self.lora = base_and_lora(name, publishing.lora, policy)
        self.route = route_of(publishing, self.lora, self.where, endpoint.base_url is None)
        self.rank, self.alpha = (0, 0.0) if self.lora is None else rank_and_alpha(self.lora, policy)
        self.dtype = serving.dtype
        self.device = publishing.device
        self.parity = publishing.parity
        self.chat_options = chat
        self._read_folder("vllm" if endpoint.base_url is None else "train")
        self.base_url = endpoint.base_url or HERE
        self.budget = budget
        self.price = Price.of(price, self.where)
        self.backend = self._backend(endpoint, serving)
        self.folder = Path(publishing.adapters) if publishing.adapters is not None else None
        # Names of adapters are used once: a server may remember those of a run before.
        self._tag = uuid.uuid4().hex[:8]
        self._published = 0
        given = f"{plain_name(policy)}.{self._tag}.given"
        self._configured = (  # what the config names
            Adapter(given, str(Path(self.lora).resolve())) if isinstance(self.lora, str) else None
        )
        self._now = self._configured  # the adapter of this version
        self._before: Adapter | None = None  # kept a while: requests may still run on it
        self._last: Path | None = None  # the folder of all weights that servers read
        self._opening = threading.Lock()

    def _read_folder(self, extra: str) -> None:
        self.config = read_json(self.path, "config.json", self.where)
        self.tokenizer = tokenizer_of(self.path, self.where, extra)
        ends = end_ids_of(self.path, self.tokenizer, self.where)
        where = f"{self.where} ({self.path})"
        self.chat = Chat(self.tokenizer, ends, self.chat_options, where)
        self.vocabulary = Vocabulary.of(self.chat, head_rows(self.config, self.path, self.where))

    def _backend(self, endpoint: Endpoint, serving: Serving) -> Process | Server | Replicas:
        parameters = Parameters(sorted(self.vocabulary.banned), self.vocabulary.ends)
        if endpoint.base_url is None:
            if serving.served_model is not None:
                raise ConfigError(
                    f"{self.where}: served_model is the name of a model at a server, and there is"
                    " no base_url"
                )
            options = {"dtype": serving.dtype, **(serving.engine or {})}
            return Process(self.where, self.path, parameters, options, self.rank)
        if serving.engine:
            raise ConfigError(
                f"{self.where}: engine starts vLLM in this process; with base_url, give these"
                " options to the server"
            )
        servers = [
            Server(
                self.where,
                each,
                parameters,
                self.tokenizer,
                served_model=serving.served_model,
                allow_http=serving.allow_http,
                price=self.price,
                budget=self.budget,
            )
            for each in single(endpoint, self.where)
        ]
        self.base_url = ", ".join(one.base_url for one in servers)
        self._patience = endpoint
        return servers[0] if len(servers) == 1 else self._replicas(servers)

    def _replicas(self, servers: Sequence[Server]) -> Replicas:
        # a request is tried as often as at a single server, over all of them
        tries = math.ceil(self._patience.attempts / EACH) if len(servers) > 1 else 1
        return Replicas(
            self.where,
            self.policy,
            servers,
            wall_s=self._patience.wall_s,
            tries=tries,
            bound=self.parity or BOUNDS[self.dtype],
        )

    async def _open(self) -> None:
        if not self.backend.context:
            # Askers may run on several loops: a lock that blocks would stop all of a loop.
            while not self._opening.acquire(blocking=False):
                await asyncio.sleep(0.01)
            try:
                if not self.backend.context:
                    await self.backend.open()
                    if self._configured is not None:
                        await self.backend.load(self._configured)
            finally:
                self._opening.release()

    # -- requests ---------------------------------------------------------------------------------

    async def sample(self, request: Request) -> Reply:
        """One answer. Raises EngineError where this request failed, EndpointError where all would,
        ConfigError for a server that samples otherwise."""
        await self._open()
        check_published(self)
        # The version now: a publish may come while this request is sampled.
        prompt = self.chat.prompt(request)
        version = self.version
        wanted = self._wanted(prompt, request.sampling, request.seed, request.conversation)
        return said(self, request, await self._draw(wanted), version, request.sampling.stop)

    def _wanted(
        self, prompt: tuple[int, ...], how: Sampling, seed: int, conversation: str = ""
    ) -> Draw:
        if not 0 <= how.temperature <= HOTTEST:
            raise ConfigError(
                f"{self.where}: vLLM samples at temperature 0 to {HOTTEST:g}; got"
                f" {how.temperature:g}"
            )
        room = min(how.max_tokens, self.backend.context - len(prompt))
        return Draw(prompt, how, seed, room, self._now, conversation)

    async def _draw(self, wanted: Draw) -> Reply:
        if wanted.room < 1:
            return Reply(prompt_ids=wanted.prompt, finish="context_overflow", usage=Usage(0, 0))
        drawn = await self.backend.draw(wanted)
        self.vocabulary.check(drawn.token_ids, f"{self.where}: {self.base_url}")
        return recorded(wanted, drawn)

    async def ping(self) -> Reply:
        """See `Reachable`: asks for one token."""
        await self._open()
        return await self._draw(
            self._wanted(self.chat.render("x", HELLO), Sampling(max_tokens=1), 0)
        )

    # -- as the sampler of a learner --------------------------------------------------------------

    def learner(self, sampling: Sampling, *, apart: bool = False) -> Any:
        """See `Trains`. The learner's weights lie in this process, apart from what is sampled."""
        learner = load("learners", "torch")(self.trained(), sampling, sampler=self)
        self.begin(learner.parameters)
        if self._tied:
            try_head(learner)
        learner.check()  # what is served is what will be trained
        return learner

    def divided(self, sampling: Sampling, team: Any) -> Any:
        """See `Divides`. The first process alone publishes, and alone plays."""
        if self._tied or self.route == "nccl":
            problem = PARTS if self._tied else f"a learner in parts {NO_PARTS}"
            raise ConfigError(f"{self.where}: {problem}; add lora: {{rank: 8}}, or route: full")
        learner = load("learners", "sharded")(self.trained(), sampling, team, server=self)
        if self.route not in WHOLE or self.base_url != HERE:  # see `begin`
            learner.sampler.take(learner.parameters)
        learner.check()
        return learner

    def trained(self) -> Any:
        """The transformers engine whose weights a learner of this policy trains. Raises
        ConfigError where they could not be published."""
        if self.route == "nccl":
            self._transfer = Transfer(self.where, self.device)
        if self.route in WHOLE:
            # watched even where it is the only one: after a restart it has the weights of its start
            self._whole.unshare()
        return self._trained

    @property
    def _whole(self) -> Process | Replicas:
        """What all weights are published to; a single server is looked after as several are."""
        if isinstance(self.backend, Server):
            self.backend = self._replicas([self.backend])
        return self.backend

    @property
    def _tied(self) -> bool:
        """Whether a matrix is published that also reads out."""
        return self.route in WHOLE and bool(self.config.get("tie_word_embeddings"))

    @cached_property
    def _trained(self) -> Any:
        lora: dict[str, Any] = {} if self.lora is None else {"lora": self.lora}
        # by name: an engine imports no other
        return load("engines", "transformers")(
            self.path,
            policy=self.policy,
            dtype=self.dtype,
            device=self.device,
            template=self.chat_options.template,
            keep_thinking=self.chat_options.keep_thinking,
            tool_format=self.chat_options.tool_format,
            **lora,
        )

    @cached_property
    def probes(self) -> tuple[tuple[int, ...], ...]:
        """Prompts of parity checks, always the same: longer than three cache blocks, so that
        what is stale in a cache is met."""
        blocking(self._open)
        return probe_prompts(self.vocabulary, self.backend.context)

    def sample_ids(
        self,
        prompts: Sequence[tuple[int, ...]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
    ) -> list[Sampled]:
        """Samples after each prompt [B of ids], published or not; blocks."""

        async def every() -> list[Reply]:
            await self._open()
            draws = list(map(self._wanted, prompts, samplings, seeds))
            return list(map(recorded, draws, await self.backend.probe(draws)))

        return [
            Sampled(list(reply.token_ids), list(reply.logprobs), reply.finish)
            for reply in blocking(every)
        ]

    def spare(self) -> bool:
        """See `Spares`."""
        return isinstance(self.backend, Replicas) and self.backend.spare()

    def numbers(self) -> dict[str, float]:
        """See `Spares`."""
        return self.backend.numbers() if isinstance(self.backend, Replicas) else {}

    def carried(self) -> bytes:
        """See `Carries`: where the weights lie, and under which names."""
        several = self.backend.carried() if isinstance(self.backend, Replicas) else None
        adapter = None if self._now is None else asdict(self._now)
        values = {"version": self.version, "adapter": adapter, "servers": several}
        return json.dumps(values).encode()

    def carry(self, data: bytes) -> None:
        """See `Carries`. The weights themselves are at the servers, or in a folder that all see."""
        values = json.loads(data)
        self.version = values["version"]
        self._now = None if values["adapter"] is None else Adapter(**values["adapter"])
        if values["servers"] is not None:
            cast("Replicas", self._whole).carry(values["servers"])

    def begin(self, weights: Mapping[str, Any]) -> None:
        """Puts the first adapter, so that a server that takes none is found out at once."""
        if self.route not in WHOLE or self.base_url != HERE:
            self.take(weights)

    def take(self, weights: Mapping[str, Any]) -> None:
        """Puts these weights where the sampling happens; the learner then checks parity."""
        self._published += 1
        if self.route == "nccl":
            several = cast("Replicas", self.backend)
            blocking(lambda: self._change(lambda: several.transfer(self._transfer, weights)))
            return
        if self.route == "full":
            folder = self._folder(f"{plain_name(self.policy)}.{self._tag}.weights{self._published}")
            write_weights(folder, weights, self.path)
            blocking(lambda: self._change(lambda: self._whole.reload(str(folder))))
            # A full model a publish would fill the disk. A server that comes back reads the last.
            last = self._last
            self._last = None if self.base_url == HERE else folder
            for read in (last, folder if self._last is None else None):
                if read is not None:
                    shutil.rmtree(read, ignore_errors=True)
            return
        if self.lora is None:
            raise EngineError(f"{self.where}: there is no adapter to publish")
        name = f"{plain_name(self.policy)}.{self._tag}.v{self._published}"
        new = Adapter(name, str(self._folder(name)))
        write_adapter(Path(new.folder), lora_note(weights, self.alpha, self.path), weights)
        blocking(lambda: self._change(lambda: self.backend.load(new)))
        old = self._before
        self._before = self._now
        self._now = new
        if old is not None:
            blocking(lambda: self.backend.unload(old))
            shutil.rmtree(old.folder, ignore_errors=True)

    async def _change(self, change: Callable[[], Awaitable[None]]) -> None:
        await self._open()
        await change()

    def _folder(self, name: str) -> Path:
        if self.folder is None:  # held, since it is removed with the object
            self._temporary = tempfile.TemporaryDirectory(prefix="gem-ma-adapters-")
            self.folder = Path(self._temporary.name)
        return (self.folder / name).resolve()

    def fingerprint(self) -> str:
        """SHA-256 of the weights that a learner trains; without one, a name for what is served."""
        if "_trained" in self.__dict__ or self._configured is not None:
            return str(self._trained.fingerprint())
        return f"served:{self.path}"

    def save(self, path: str | Path) -> None:
        """Writes the learner's weights as a folder that any loader of the format reads."""
        self._trained.save(path)
