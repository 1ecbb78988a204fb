"""All weights to vLLM servers by vLLM's own weight transfer over NCCL (`route: nccl`): no disk that
both see. vLLM's trainer side broadcasts; here is the order of what the servers are asked for.

Every server is paused, takes part in one transfer, drops what it has cached, gets the name of the
weights, and goes on. The name is given last, so a server that stopped in the middle has the old
one and is found out (`FullWeights`). Each that answers goes on: none is left paused.

The group of a transfer is made anew where other servers are there than before, and after every
fault, since vLLM can use it no more.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gem_ma.engines.endpoint.faults import Fault
from gem_ma.engines.endpoint.remote import Body
from gem_ma.engines.models.loading import first_line
from gem_ma.engines.vllm.server import Server
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.system.extras import install

FLAGS = 'VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config \'{"backend": "nccl"}\''
NEEDS = (
    "route: nccl sends weights by vLLM's own trainer side, so this environment needs vLLM 0.32 or"
    " newer ({problem}): {install}; or route: full, by a folder that both see"
)
NO_PARTS = "sends its weights by a folder alone"
# until all servers have answered, at most: who waits in NCCL for one that has gone waits for ever
PATIENCE_S = 600.0
T = TypeVar("T")
Members = tuple[tuple[int, int], ...]  # (number, life) of each server of a group


def check_device(where: str, device: str) -> None:
    """Raises ConfigError where the learner's weights lie on no GPU."""
    import torch

    if not (device.startswith("cuda") and torch.cuda.is_available()):
        problem = "there is none" if device.startswith("cuda") else f"device is {device}"
        raise ConfigError(
            f"{where}: route: nccl sends weights from a CUDA device, and {problem}; set device:"
            " cuda on a machine with a GPU, or route: full"
        )


class Source:
    """The weights of a learner, as vLLM's trainer side asks for them. `kind`: its class for name,
    type and shape."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        self.kind = kind
        self.weights = dict[str, Any]()

    def metadata(self) -> list[Any]:
        return [
            self.kind(name, weight.dtype, tuple(weight.shape))
            for name, weight in self.weights.items()
        ]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name, weight in self.weights.items():
            yield name, weight.detach()


class Line:
    """The servers of a group, as vLLM's trainer side asks them: all side by side, in the thread
    that calls.

    `sizes`: GPUs of each server, in their order behind the trainer. Of one publish: `failure` gets
    the first fault, for whoever waits on the trainer side, which may never hear of it; `faults`: by
    the place of the server.
    """

    def __init__(self) -> None:
        self.servers: Sequence[Server] = ()
        self.sizes: list[int] = []
        self.closed = False  # its group was given up: a thread that was left behind asks nobody

    def begin(self, servers: Sequence[Server]) -> None:
        """A publish to these servers, on the loop that runs now."""
        self.servers = servers
        self.loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[Any] = self.loop.create_future()
        self.faults: dict[int, Exception] = {}

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        first = int(init_info["rank_offset"])
        offsets = [first + sum(self.sizes[:number]) for number in range(len(self.servers))]
        self._all(
            "/init_weight_transfer_engine",
            [{"init_info": {**init_info, "rank_offset": each}} for each in offsets],
        )

    def shutdown_weight_transfer_engine(self) -> None:
        self._all("/shutdown_weight_transfer_engine")

    def start_weight_update(self) -> None:
        self._all("/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._all("/update_weights", [{"update_info": update_info}] * len(self.servers))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._all("/finish_weight_update")  # the name comes later, see above

    def _all(self, path: str, bodies: Sequence[Body] | None = None) -> None:
        if self.closed:
            raise EngineError("this transfer was given up")
        asyncio.run_coroutine_threadsafe(self.every(path, bodies), self.loop).result()

    async def every(self, path: str, bodies: Sequence[Body] | None = None) -> None:
        """Asks all of them, each once: what takes part in a transfer cannot be asked again."""
        chosen = bodies or [{}] * len(self.servers)
        pairs = zip(self.servers, chosen, strict=True)
        await self._answers([one_answer(server, path, body) for server, body in pairs])

    async def measure(self) -> None:
        """Asks each how many GPUs it has."""
        self.sizes = await self._answers([server.weights.size() for server in self.servers])

    async def _answers(self, asked: Sequence[Awaitable[T]]) -> list[T]:
        return await asyncio.gather(*(self._answer(*each) for each in enumerate(asked)))

    async def _answer(self, number: int, asked: Awaitable[T]) -> T:
        try:
            return await asked
        except (EngineError, ConfigError) as error:
            self.faults[number] = error
            if not self.failure.done():
                self.failure.set_exception(error)
                self.failure.exception()  # it is seen, whether or not somebody waits for it
            raise


async def one_answer(server: Server, path: str, body: Body) -> Body:
    """What a server answers to one try. Raises EngineError, or ConfigError where it has no such
    route."""

    def stop(fault: Fault, sent: Body) -> bool:
        host = f"{server.where}: {server.remote.host}"
        if fault.status == 404:
            raise ConfigError(f"{host} takes no weights over NCCL; start it with {FLAGS}")
        raise EngineError(f"{host}: {path.partition('?')[0]} failed: {fault.detail}")

    root = server.base_url.removesuffix("/v1")
    return await server.remote.call(root + path, body, server.weights.tiny, adapt=stop)


class Transfer:
    """Sends all weights of one policy to the servers of each publish. Raises ConfigError where
    vLLM's trainer side cannot be had."""

    def __init__(self, where: str, device: str) -> None:
        self.where = where
        self.device = device
        check_device(where, device)
        try:
            from vllm.distributed.weight_transfer import ParamMeta, WeightTransferTrainerFactory
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
        except ImportError as error:
            needs = NEEDS.format(problem=first_line(error), install=install("vllm"))
            raise ConfigError(f"{where}: {needs}") from error
        self.factory = WeightTransferTrainerFactory
        self.opening = NCCLTrainerInitInfo
        self.source = Source(ParamMeta)
        self.line = Line()
        self.trainer: Any = None  # vLLM's trainer side, of the group of `members`
        self.members: Members = ()

    async def send(
        self, servers: Sequence[Server], members: Members, weights: Mapping[str, Any], name: str
    ) -> dict[int, Exception]:
        """Gives the weights this name at all of these servers; the faults of the servers by their
        place, {} where all hold the weights now. Each that answers goes on afterwards.

        `members`: which servers they are; one that was restarted is another. Raises EngineError
        where it failed and no server is at fault.
        """
        self.line.begin(servers)
        self.source.weights = dict(weights)
        try:
            # nothing may be sampled under it, and what is cached is of the weights of before
            await self.line.every("/pause?mode=abort")
            if self.trainer is None or members != self.members:
                await self._join(members)
            await self._in_thread(self.trainer.send_weights)
            await self.line.every("/reset_prefix_cache")
            await self.line.every("/update_weight_version", [{"new_version": name}] * len(servers))
        except (EngineError, ConfigError):
            # those of now: what fails later may fail because of them
            faults = dict(self.line.faults)
            self._leave()
            if not faults:
                raise
            return faults
        finally:
            await asyncio.gather(*map(_go_on, servers))
        return {}

    def _leave(self) -> None:
        """Gives the group up, which may wake the servers that wait in NCCL; nobody waits for it."""
        old = self.trainer
        self.trainer = None
        self.line.closed = True
        self.line = Line()
        if old is not None:
            self._begin(old.shutdown)

    async def _join(self, members: Members) -> None:
        servers = self.line.servers
        if self.members:
            self._leave()
            self.line.begin(servers)
            with suppress(EngineError, ConfigError):  # they may have been in none
                await self.line.every("/shutdown_weight_transfer_engine")
            self.line.begin(servers)
        await self.line.measure()
        host = _address_towards(servers[0])
        opening = self.opening(
            master_address=host,
            master_port=_free_port(host),
            world_size=1 + sum(self.line.sizes),
            rank=0,
        )
        self.trainer = await self._in_thread(
            lambda: self.factory.trainer_init(opening, client=self.line, source=self.source)
        )
        self.members = members

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """What vLLM's trainer side does, which blocks. Ends with the first fault of a server, too:
        NCCL waits for one that has gone, and nothing wakes it."""
        both = [asyncio.wrap_future(self._begin(work)), self.line.failure]
        ended, _ = await asyncio.wait(both, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not both[0].cancel():
            both[0].exception()  # it is seen, whichever of the two is raised
        if not ended:
            raise EngineError(
                f"{self.where}: vLLM's transfer of weights did not end in {PATIENCE_S:g} s"
            )
        try:
            return (both[1] if both[1] in ended else both[0]).result()
        except (EngineError, ConfigError):
            raise
        except Exception as error:  # whatever vLLM or NCCL raises
            raise EngineError(
                f"{self.where}: vLLM's transfer of weights failed: {first_line(error)}"
            ) from error

    def _begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Runs it in a thread, on the learner's device, after all that the learner computes."""
        done: Future[Any] = Future()

        def run() -> None:
            with suppress(InvalidStateError):  # nobody waits any more
                try:
                    with _device(self.device):  # a thread begins with the first one
                        done.set_result(work())
                except BaseException as error:  # raised again where it is waited for
                    done.set_exception(error)

        # a daemon: what waits in NCCL for ever must not hold the end of the process
        threading.Thread(target=run, name="vllm transfer", daemon=True).start()
        return done


@contextmanager
def _device(name: str) -> Iterator[None]:
    import torch

    if not name.startswith("cuda"):
        yield
        return
    with torch.cuda.device(name):
        torch.cuda.synchronize()
        yield


async def _go_on(server: Server) -> None:
    with suppress(EngineError, ConfigError):  # it is gone, and set aside for that
        await one_answer(server, "/resume", {})


def _address_towards(server: Server) -> str:
    """The address of this machine that the server sees: loopback for one that is here."""
    parts = urlsplit(server.base_url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((parts.hostname, parts.port or 80))  # nothing is sent
        return str(one.getsockname()[0])


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])
