"""A vLLM in this process: `AsyncLLM` on a loop and thread of its own, shared by all policies on one
folder with equal options. Its core runs in a child process, which ends with this one."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from gem_ma.engines.models.loading import first_line
from gem_ma.engines.vllm.backend import Adapter, Draw, Parameters, a_few_at_once
from gem_ma.kernel.errors import ConfigError, DataError, EndpointError, EngineError
from gem_ma.kernel.types import Reply, Usage
from gem_ma.system.extras import install

T = TypeVar("T")

CLOSE_S = 10.0
FINISHES = ("stop", "length")  # of an answer; aborted and failed requests bring part of one
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM makes room for
ADAPTERS = 4  # in one batch; options may say otherwise
# set here
FIXED = (
    "model",
    "tokenizer",
    "logprobs_mode",
    "generation_config",
    "enable_lora",
    "max_lora_rank",
    "skip_tokenizer_init",
)
NEEDS = (
    "the vllm engine without base_url needs vLLM in this environment (docs/vllm.md): {install}, or"
    " a server: base_url: http://127.0.0.1:8000/v1"
)


class Core:
    """One `AsyncLLM` and the thread that its loop runs in. Raises ConfigError or DataError where
    it does not start."""

    def __init__(self, path: str, options: Mapping[str, Any], rank: int, where: str) -> None:
        for name, value in (
            ("VLLM_NO_USAGE_STATS", "1"),
            ("VLLM_LOGGING_STREAM", "ext://sys.stderr"),
            ("VLLM_LOGGING_LEVEL", "WARNING"),
        ):
            os.environ.setdefault(name, value)
        try:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            needs = NEEDS.format(install=install("vllm"))
            raise ConfigError(f"{where}: {needs} ({first_line(error)})") from error
        lora = {"enable_lora": True, "max_lora_rank": rank, "max_loras": ADAPTERS} if rank else {}
        try:
            arguments = AsyncEngineArgs(
                model=path,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",
                **{**lora, **options},
            )
        except TypeError as error:
            raise ConfigError(f"{where}: engine: {first_line(error)}") from error
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="vllm", daemon=True).start()
        self.ids: dict[str, int] = {}
        self.numbers = itertools.count(1)

        async def start() -> Any:
            return AsyncLLM.from_engine_args(arguments)

        try:
            self.llm = asyncio.run_coroutine_threadsafe(start(), self.loop).result()
        except Exception as error:  # whatever a wrong option or a damaged folder makes it raise
            raise DataError(
                f"{where}: vLLM does not start on {path}: {first_line(error)}"
            ) from error
        atexit.register(self.close)

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs on the engine's loop, awaited on the caller's."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def close(self) -> None:
        """Ends the child process."""

        async def stop() -> None:
            self.llm.shutdown()

        with suppress(TimeoutError):  # it ends with this process
            asyncio.run_coroutine_threadsafe(stop(), self.loop).result(CLOSE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)


_OPEN: dict[tuple[str, str, int, int], Core] = {}
_OPENING = threading.Lock()


class Process:
    """A policy's way to the vLLM on `path` in this process. `options` go to `AsyncEngineArgs`;
    `rank`: of the adapters it must take, 0 = none."""

    def __init__(
        self, where: str, path: str, parameters: Parameters, options: Mapping[str, Any], rank: int
    ) -> None:
        self.where = where
        self.path = path
        self.parameters = parameters
        self.options = dict(options)
        self.rank = next((room for room in RANKS if room >= rank), rank) if rank else 0
        self.alone = 0
        # refused, for the library takes some of them: it would sample another distribution
        if fixed := sorted(set(self.options) & set(FIXED)):
            raise ConfigError(
                f"{where}: engine may not hold {fixed[0]!r}, which is set by this engine"
            )
        self.context = 0
        self._core: Core | None = None

    async def open(self) -> None:
        """Starts vLLM, or finds the one that another policy has started."""
        self._core = await asyncio.to_thread(self._opened)
        self.context = int(self._core.llm.model_config.max_model_len)

    def _opened(self) -> Core:
        key = (
            str(Path(self.path).resolve()),
            json.dumps(self.options, sort_keys=True, default=str),
            self.rank,
            self.alone,
        )
        with _OPENING:
            if key not in _OPEN:
                _OPEN[key] = Core(self.path, self.options, self.rank, self.where)
            return _OPEN[key]

    def unshare(self) -> None:
        """All weights will change, so they are shared with no other policy."""
        if not self.alone:
            self.alone = id(self)
            self.context = 0
            self._core = None

    @property
    def core(self) -> Core:
        """The running vLLM. Raises EngineError before `open`."""
        if self._core is None:
            raise EngineError(f"{self.where}: vLLM is not started yet")
        return self._core

    async def draw(self, wanted: Draw) -> Reply:
        """Samples once. Raises EndpointError where the core has died."""
        return await self.core.run(self._draw(self.core, wanted))

    async def probe(self, wanted: Sequence[Draw]) -> list[Reply]:
        """The answers to the draws [B] of a parity check."""
        return await a_few_at_once(self.draw, wanted)

    async def _draw(self, core: Core, wanted: Draw) -> Reply:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        fields = self.parameters.of(wanted)
        params = SamplingParams(
            **fields,
            detokenize=bool(fields["stop"]),
            include_stop_str_in_output=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = {"prompt_token_ids": list(wanted.prompt)}
        lora = None if wanted.adapter is None else self._request(core, wanted.adapter)
        try:
            async for answer in core.llm.generate(
                prompt, params, f"gem-ma-{next(core.numbers)}", lora_request=lora
            ):
                last = answer
        except EngineDeadError as error:
            raise EndpointError(
                f"{self.where}: vLLM has died ({first_line(error)}); its log stands above"
            ) from error
        except Exception as error:
            # its EngineGenerateError says nothing itself
            cause = error.__cause__ or error
            raise EngineError(
                f"{self.where}: vLLM refused the request: {first_line(cause)}"
            ) from error
        output = last.outputs[0]
        ids = tuple(map(int, output.token_ids))
        logprobs = tuple(
            float(place[token].logprob) for token, place in zip(ids, output.logprobs, strict=True)
        )
        if output.finish_reason not in FINISHES:
            raise EngineError(
                f"{self.where}: vLLM gave the request up ({output.finish_reason})", retryable=True
            )
        usage = Usage(len(wanted.prompt), len(ids), last.num_cached_tokens)
        return Reply(
            prompt_ids=wanted.prompt,
            token_ids=ids,
            logprobs=logprobs,
            finish=output.finish_reason,
            usage=usage,
        )

    def _request(self, core: Core, adapter: Adapter) -> Any:
        from vllm.lora.request import LoRARequest

        number = core.ids.setdefault(adapter.name, len(core.ids) + 1)
        return LoRARequest(adapter.name, number, adapter.folder)

    async def load(self, adapter: Adapter) -> None:
        try:
            await self.core.run(self.core.llm.add_lora(self._request(self.core, adapter)))
        except Exception as error:
            raise EngineError(
                f"{self.where}: vLLM did not load the adapter {adapter.folder}: {first_line(error)}"
            ) from error

    async def unload(self, adapter: Adapter) -> None:
        number = self.core.ids.get(adapter.name)
        if number is not None:
            await self.core.run(self.core.llm.remove_lora(number))

    async def reload(self, folder: str) -> None:
        """Full weights, in place; what was cached under the old ones is dropped."""
        llm = self.core.llm
        try:
            await self.core.run(
                llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
            )
            dropped = await self.core.run(llm.reset_prefix_cache())
        except Exception as error:
            raise EngineError(
                f"{self.where}: vLLM did not take the weights in {folder}: {first_line(error)}"
            ) from error
        if dropped is False:
            raise EngineError(
                f"{self.where}: vLLM keeps what it cached under the old weights, since requests are"
                " running; publish between plays"
            )
