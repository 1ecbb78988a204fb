"""A vLLM behind its OpenAI-compatible server: token-id prompts to /completions, adapters to
/load_lora_adapter.

Faults and retries are those of `remote`. A server that was restarted has forgotten its adapters: a
request that names one loads it again, once. All weights of a policy come here by way of `replicas`
alone, which finds out a server that went back to its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from gem_ma.engines.endpoint.endpoint import Budget, Endpoint, Price
from gem_ma.engines.endpoint.faults import Fault
from gem_ma.engines.endpoint.remote import Body, Remote, Service
from gem_ma.engines.endpoint.reply import read_completion
from gem_ma.engines.vllm.backend import Adapter, Draw, Parameters, a_few_at_once
from gem_ma.kernel.errors import ConfigError, EndpointError, EngineError, ModelNotFound
from gem_ma.kernel.types import Reply, Sampling

FLAG = "start it with VLLM_SERVER_DEV_MODE=1, on loopback or behind a proxy: that mode has no walls"
OURS = "gem-ma."  # how a name of a publish begins


class Owner:
    """Names for the publishes of one policy, and the servers that it changes. `prefix`: of its
    names, which other processes of the same training share."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.made = 0
        self.prefix = f"{OURS}{uuid.uuid4().hex[:12]}."

    def next_name(self) -> str:
        """A name that was never given before, by any process."""
        self.made += 1
        return f"{self.prefix}{self.made}"

    def gave(self, name: str) -> bool:
        """Whether this policy gave the name."""
        return name.startswith(self.prefix)


# address -> who publishes there. Weak: a policy that is gone changes no server any more.
_OWNERS: WeakValueDictionary[str, Owner] = WeakValueDictionary()


def claim(address: str, owner: Owner) -> None:
    """From now on nobody else in this process may sample there; whoever claimed it last, may."""
    _OWNERS[address] = owner


def check_owner(address: str, owner: Owner | None, where: str) -> None:
    """Raises ConfigError where another policy of this process publishes all its weights there."""
    holder = _OWNERS.get(address)
    if holder is not None and holder is not owner:
        raise ConfigError(
            f"{where}: policy {holder.policy!r} publishes all its weights to {address}; give each"
            " policy a server of its own, or train adapters: lora: {rank: 8}"
        )


class FullWeights:
    """All weights of the server behind `remote`, by its development routes: it reads a model folder
    that both sides see, and carries a name for what it holds (`weight_version`). One that was
    restarted has the weights of its start again and answers with status 200, but lost the name.
    `tiny`: a small request of that server, which shows whether it is there."""

    def __init__(self, remote: Remote, tiny: Body) -> None:
        self.remote = remote
        self.tiny = tiny
        self.root = remote.base_url.removesuffix("/v1")
        self.where = f"{remote.where}: {remote.host}"

    async def name(self) -> str:
        """The name of what it holds now. Raises ConfigError where it does not say."""
        name = (await self._call("/weight_info", None)).get("weight_version")
        if not isinstance(name, str):
            raise ConfigError(f"{self.where} does not name its weights; {FLAG}")
        return name

    async def take_name(self, name: str) -> None:
        """Gives what it holds this name, whatever that is."""
        await self._call("/update_weight_version", {"new_version": name})

    async def size(self) -> int:
        """How many GPUs it has. Raises ConfigError where it does not say."""
        size = (await self._call("/get_world_size", None)).get("world_size")
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"{self.where} does not say how many GPUs it has; {FLAG}")
        return size

    async def load(self, folder: str, name: str) -> None:
        """Takes the weights of a model folder under this name. Raises EngineError."""
        # nothing may be sampled between the two, and what is cached is of the weights of before
        await self._call("/pause?mode=abort", {})
        try:
            await self._call(
                "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            )
            await self._call("/reset_prefix_cache", {})
            # last: a load that broke off has the old name, so it is found out
            await self._call("/update_weight_version", {"new_version": name})
        except EngineError as error:
            if isinstance(error, EndpointError):
                raise
            with suppress(EngineError):  # or it would answer nobody any more
                await self._call("/resume", {})
            raise EngineError(
                f"{self.where} did not take the weights in {folder}: {error}",
                retryable=error.retryable,
            ) from error
        await self._call("/resume", {})

    async def _call(self, path: str, body: Body | None) -> Body:
        try:
            return await self.remote.call(
                self.root + path, body, self.tiny, adapt=self.stop_at_once
            )
        except EndpointError as error:
            if "(404: Not Found)" in str(error):
                raise ConfigError(f"{self.where} takes no weights; {FLAG}") from error
            raise

    def stop_at_once(self, fault: Fault, sent: Body) -> bool:
        """A server that cannot take a folder says so with status 500, every time."""
        if fault.status == 500:
            raise self.remote.refused(fault)
        return False


PATH = "/completions"
CANARY = "Ship 12 red mugs to Zoë, please: {ok?}"
LORA_FLAGS = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora --max-lora-rank"


class Server:
    """A vLLM server. `served_model`: its name there; None = the one model that is served.

    `tokenizer` is that of the policy's folder: a server with another one is refused.
    `allow_http`: a key and all texts may travel unencrypted to another machine.
    """

    def __init__(
        self,
        where: str,
        endpoint: Endpoint,
        parameters: Parameters,
        tokenizer: Any,
        *,
        served_model: str | None = None,
        allow_http: bool = False,
        price: Price | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.where = where
        self.served_model = served_model
        self.tokenizer = tokenizer
        self.parameters = parameters
        service = Service(served_model or "", PATH, "correct served_model")
        self.remote = Remote(where, endpoint, service, price=price, budget=budget)
        self.base_url = self.remote.base_url
        self.price = price
        parts = urlsplit(self.base_url)
        if parts.scheme == "http" and not _is_here(parts.hostname or "") and not allow_http:
            raise ConfigError(
                f"{where}: {self.remote.host} is another machine and base_url no https; forward its"
                " port, or set allow_http: true"
            )
        self.context = 0
        self.owner: Owner | None = None  # who publishes all its weights here
        self.weights = FullWeights(self.remote, self._tiny())

    # -- before anything is sampled ---------------------------------------------------------------

    async def open(self) -> None:
        """Finds the model, and checks tokenizer, ids and log-probabilities on tiny requests.
        Raises ConfigError that names the flag."""
        listed = (await self.remote.call("/models", None, self._tiny())).get("data")
        if not isinstance(listed, list):
            raise ConfigError(
                f"{self.where}: {self.base_url}/models is not what a vLLM server answers; correct"
                " base_url"
            )
        models = [entry for entry in listed if isinstance(entry, dict)]
        bases = [entry for entry in models if entry.get("parent") is None]
        names = [str(entry.get("id")) for entry in bases]
        if self.served_model is None:
            if len(names) != 1:
                raise ConfigError(
                    f"{self.where}: {self.remote.host} serves {', '.join(names) or 'no model'};"
                    " name one with served_model"
                )
            self.served_model = self.remote.model = names[0]
        model = next((entry for entry in models if entry.get("id") == self.served_model), None)
        if model is None:
            raise ModelNotFound(
                f"{self.where}: {self.remote.host} has no model {self.served_model!r}; served_model"
                f" is one of {', '.join(names)}"
            )
        context = model.get("max_model_len")
        if not isinstance(context, int) or context < 2:
            raise ConfigError(
                f"{self.where}: {self.remote.host} names no max_model_len, so it is not a vLLM"
                " server; take openai/ for other servers"
            )
        await self._check_tokenizer()
        await self._check_sampling()
        self.context = context

    async def _check_tokenizer(self) -> None:
        here = list(self.tokenizer(CANARY, add_special_tokens=False)["input_ids"])
        body = {"model": self.served_model, "prompt": CANARY, "add_special_tokens": False}
        root = self.base_url.removesuffix("/v1")
        try:
            answer = await self.remote.call(root + "/tokenize", body, self._tiny())
        except EngineError:  # behind a proxy that lets the API through alone
            return
        if answer.get("tokens") not in (None, here):
            raise ConfigError(
                f"{self.where}: {self.remote.host} serves a model with another tokenizer than this"
                " policy's folder; name the folder it serves"
            )

    async def _check_sampling(self) -> None:
        """Allows one id only: its log-probability is 0 where masks are in it, as they are in
        what the learner computes."""
        only = next(iter(self.parameters.bias), 0)  # an id that nothing but this mask would give
        body = {**self._tiny(), "logit_bias": None, "allowed_token_ids": [only]}
        flag = "start the server with --logprobs-mode processed_logprobs"
        try:
            reply = await self._complete((0,), lambda: body, attempts=3)
        except EndpointError:
            raise
        except EngineError as error:
            if "token ids were asked for" in str(error):
                raise ConfigError(
                    f"{self.where}: {self.remote.host} gives no token ids with return_token_ids; it"
                    " must be vLLM 0.32 or newer"
                ) from error
            raise
        if reply.token_ids != (only,):
            raise ConfigError(
                f"{self.where}: {self.remote.host} sampled id {reply.token_ids[0]} where only"
                f" {only} was allowed; it must be vLLM 0.32 or newer"
            )
        if abs(reply.logprobs[0]) > 1e-3:
            raise ConfigError(
                f"{self.where}: {self.remote.host} gives log-probabilities before temperature and"
                f" masks; {flag}"
            )

    # -- requests ---------------------------------------------------------------------------------

    async def draw(self, wanted: Draw) -> Reply:
        """Samples once; an adapter that the server does not know is loaded."""
        try:
            return await self.ask(wanted)
        except ModelNotFound:
            if wanted.adapter is None:
                raise
        await self.load(wanted.adapter)  # it was restarted, or asked to forget
        return await self.ask(wanted)

    async def ask(self, wanted: Draw) -> Reply:
        """Samples once. Raises ModelNotFound where the server does not know the adapter."""
        check_owner(self.base_url, self.owner, self.where)
        body = self._body(wanted)
        return await self._complete(wanted.prompt, lambda: body)

    async def probe(self, wanted: Sequence[Draw]) -> list[Reply]:
        """The answers to the draws [B] of a parity check."""
        return await a_few_at_once(self.draw, wanted)

    async def _complete(
        self, prompt: tuple[int, ...], body: Any, attempts: int | None = None
    ) -> Reply:
        read = partial(read_completion, prompt=prompt)
        tiny = self._tiny()
        if attempts is not None:
            return await self.remote.tried(body, read, tiny, attempts=attempts)
        cost = len(prompt), int(body()["max_tokens"])
        return await self.remote.tried(body, read, tiny, cost=cost)

    def _body(self, wanted: Draw) -> Body:
        name = self.served_model if wanted.adapter is None else wanted.adapter.name
        return {
            "model": name,
            "prompt": list(wanted.prompt),
            "return_token_ids": True,
            "include_stop_str_in_output": True,
            **self.parameters.of(wanted),
        }

    def _tiny(self) -> Body:
        return self._body(Draw((0,), Sampling(), 0, 1))

    # -- weights ----------------------------------------------------------------------------------

    async def load(self, adapter: Adapter) -> None:
        """Raises ConfigError where the server takes no adapters, EngineError with its sentence
        where it refuses this one."""
        body = {"lora_name": adapter.name, "lora_path": adapter.folder}
        try:
            await self.remote.call(
                "/load_lora_adapter", body, self._tiny(), adapt=self.weights.stop_at_once
            )
        except EngineError as error:
            # the name is of one version, so it is this one
            if "already been loaded" in str(error):
                return
            if isinstance(error, EndpointError) and "(404: Not Found)" in str(error):
                raise ConfigError(
                    f"{self.where}: {self.remote.host} takes no adapters; {LORA_FLAGS}"
                ) from error
            raise EngineError(
                f"{self.where}: {self.remote.host} did not load the adapter {adapter.folder}:"
                f" {error}"
            ) from error

    async def unload(self, adapter: Adapter) -> None:
        try:
            await self.remote.call(
                "/unload_lora_adapter", {"lora_name": adapter.name}, self._tiny()
            )
        except ModelNotFound:
            return
        except EngineError as error:
            if "cannot be found" not in str(error):
                raise


def _is_here(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False
