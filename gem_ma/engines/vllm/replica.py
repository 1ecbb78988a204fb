"""One vLLM server of several with the same weights: whether it is sampled from, and how it is taken
in. Which one a request goes to: `gem_ma.engines.vllm.replicas`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gem_ma.engines.vllm.backend import Adapter, Draw, apart
from gem_ma.engines.vllm.full_weights import OURS
from gem_ma.engines.vllm.server import Server
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Reply, Sampling
from gem_ma.record.codec import REPLY

PAUSE_S = 2.0  # between two tries to take a server in again

_log = logging.getLogger("gem_ma")


@dataclass(frozen=True, slots=True)
class Weights:
    """What every server must hold: adapters, or a model folder under a name ("" = its own). And
    what a server that holds it answers: `replies` to `draws`, () as long as nobody has checked."""

    adapters: tuple[Adapter, ...] = ()
    folder: str = ""
    name: str = ""
    draws: tuple[Draw, ...] = ()
    replies: tuple[Reply, ...] = ()

    def same(self, other: Weights) -> bool:
        """Whether a server that holds one holds the other too."""
        return (self.adapters, self.name) == (other.adapters, other.name)

    def written(self) -> dict[str, Any]:
        """Itself as JSON values, for another process that samples from the same servers."""
        return {
            "adapters": [asdict(adapter) for adapter in self.adapters],
            "folder": self.folder,
            "name": self.name,
            "draws": [asdict(draw) for draw in self.draws],
            "replies": [REPLY.write(reply) for reply in self.replies],
        }

    @classmethod
    def read(cls, values: dict[str, Any]) -> Weights:
        """The inverse of `written`."""
        return cls(
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


class Replica:
    """A server, and what is known of it. `bound`: nats that it may be apart from the others;
    `wanted` tells which weights it must hold now."""

    def __init__(
        self, number: int, server: Server, bound: float, wanted: Callable[[], Weights]
    ) -> None:
        self.number = number
        self.server = server
        self.bound = bound
        self.wanted = wanted
        self.context = 0  # tokens that it must have room for
        self.here = False  # sampled from now
        # Goes up whenever it is taken in: a reply that was asked for in an earlier life may be of
        # other weights, whatever the server says now.
        self.life = 0
        self.error: Exception | None = None  # why it is not here
        self.gap = 0.0  # nats to the others, at its last comparison
        self.again_at = 0.0
        # the try to take it in that is under way, with the loop that it runs on
        self._coming: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def set_aside(self, error: Exception) -> None:
        """Nothing is sampled here any more, until it is taken in again."""
        if self.here:
            _log.warning("%s; set aside", error)
        self.here = False
        self.error = error

    async def answers(self) -> bool:
        """Whether it is here, or could be."""
        if not self.here:
            try:
                await self.server.open()
            except EngineError as error:
                self.set_aside(error)
                return False
        return True

    async def holds(self, life: int, weights: Weights) -> bool:
        """Whether what it has answered since this life began is of these weights, asked before a
        reply is used; sets it aside where not. Raises ConfigError where somebody else publishes
        there too."""
        # the name of an adapter is of one version, and a server without it refuses the request
        if self.here and self.life == life and weights.name:
            try:
                name = await self.server.weights.name()
            except EngineError as error:
                self.set_aside(error)
            else:
                if name != weights.name and self.life == life:
                    self._check_alone(name)
                    self.set_aside(self.lost(f"holds weights {name!r}, not {weights.name!r}"))
        return self.here and self.life == life

    def _check_alone(self, name: str) -> None:
        owner = self.server.owner
        if name.startswith(OURS) and owner is not None and not owner.gave(name):
            raise ConfigError(
                f"{self.server.where}: another training publishes its weights to"
                f" {self.server.remote.host} too; give each a server of its own"
            )

    def lost(self, what: str) -> EngineError:
        """The error of a server that has lost what was published to it, and may be given it."""
        where = f"{self.server.where}: {self.server.remote.host}"
        return EngineError(f"{where} {what}: was it restarted?", retryable=True)

    # -- taking it in -----------------------------------------------------------------------------

    def come(self) -> asyncio.Task[None] | None:
        """The try to take it in, begun where none is under way; None where it is too early."""
        loop = asyncio.get_running_loop()
        if self._coming is not None and self._coming[0] is loop and not self._coming[1].done():
            return self._coming[1]
        if self.here or time.monotonic() < self.again_at:
            return None
        task = asyncio.create_task(self._come())
        self._coming = (loop, task)
        return task

    async def _come(self) -> None:
        now = self.wanted()
        try:
            await self.take(now)
        except Exception as error:  # whatever it is: others go on, and it is tried again
            self.set_aside(error)
        else:
            # a publish that came meanwhile passed it over, since it was not here
            if self.wanted().same(now):
                self.welcome()
        finally:
            self.again_at = time.monotonic() + PAUSE_S

    async def take(self, now: Weights) -> None:
        """Opens the server, gives it the weights and compares its answers with those of the others.
        Raises EngineError or ConfigError."""
        server = self.server
        await server.open()
        if server.context < self.context:
            raise ConfigError(
                f"{server.where}: {server.remote.host} has room for {server.context} tokens, the"
                f" others for {self.context}; start it with the same --max-model-len"
            )
        for adapter in now.adapters:
            await server.load(adapter)
        if now.name:
            await self.publish(now)
        if now.draws:
            self.compare(await server.probe(now.draws), now)

    async def publish(self, now: Weights) -> None:
        """Loads the folder, and sees that the server took it. Raises EngineError where there is
        none: what was sent over NCCL is not sent again before the next publish."""
        if not now.folder:
            raise self.lost("gets weights with the next publish")
        await self.server.weights.load(now.folder, now.name)
        await self.confirm(now)

    async def confirm(self, now: Weights) -> None:
        """Raises EngineError where the server does not hold these weights."""
        name = await self.server.weights.name()
        if name != now.name:
            raise self.lost(f"holds weights {name!r} after {now.name!r} were sent")

    def compare(self, replies: Sequence[Reply], now: Weights) -> None:
        """Raises EngineError where the answers to the draws of a parity check are not those of the
        others."""
        self.gap = apart(now.replies, replies)
        # so that anything that is not a number is refused too
        if not self.gap <= self.bound:
            raise EngineError(
                f"{self.server.where}: {self.server.remote.host} is {self.gap:.3g} nats off the"
                f" other servers with the same weights; allowed is {self.bound:.3g}"
            )

    def welcome(self) -> None:
        """From now on it is sampled from."""
        if self.here:
            return
        if self.life:
            where = f"{self.server.where}: {self.server.remote.host}"
            _log.warning(
                "%s has the weights, %.2g nats off the others; taken back", where, self.gap
            )
        self.here = True
        self.error = None
        self.life += 1
