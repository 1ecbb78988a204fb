"""Several vLLM servers as one: the same weights on each, conversations that stay where their
beginning is cached, and servers that die, hang or come back with other weights.

A sample is used only if the server held the weights of now when it gave it. An adapter has a name
of its version alone, so a server without it refuses. All weights have a name too, which is asked
for after the reply; see `FullWeights`.

A server that fails is set aside and its requests go to the others, where the same seed draws the
same tokens. It is tried again every few seconds beside the play, and taken back once it has the
weights and answers the last parity check as the others did. A learner checks one server against
its own weights, and the others are held to that one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from gem_ma.engines.base import stable_seed
from gem_ma.engines.vllm.backend import Adapter, Draw, apart
from gem_ma.engines.vllm.server import CANARY, OURS, Owner, Server, claim
from gem_ma.engines.vllm.transfer import Transfer
from gem_ma.kernel.errors import ConfigError, EndpointError, EngineError, ModelNotFound
from gem_ma.kernel.types import Attempt, Reply, Sampling

PAUSE_S = 2.0  # between two tries to take a server in again


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


# as JSON values, for another process that samples from the same servers
_WEIGHTS = TypeAdapter(Weights)


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


_log = logging.getLogger("gem_ma")


class Replicas:
    """Servers with the same model, as one backend. `wall_s`: how long a request waits where none of
    them is there; `tries`: how often it is passed on where it alone fails. `bound`: nats that they
    may be apart."""

    def __init__(
        self,
        where: str,
        policy: str,
        servers: Sequence[Server],
        *,
        wall_s: float,
        tries: int,
        bound: float,
    ) -> None:
        self.where = where
        self.wall_s = wall_s
        self.tries = tries
        self.context = 0
        self.replicas = [
            Replica(number, each, bound, lambda: self._now) for number, each in enumerate(servers)
        ]
        self.owner = Owner(policy)
        self._now = Weights()  # what all of them must hold
        # under a parity check: the one that is looked at, and those that disagree with it
        self._lead: Replica | None = None
        self._doubted: list[Replica] = []

    @property
    def here(self) -> list[Replica]:
        """Those that are sampled from now."""
        return [each for each in self.replicas if each.here]

    # -- opening ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Opens all servers; one that is not there is set aside."""
        opened = await asyncio.gather(
            *(each.server.open() for each in self.replicas), return_exceptions=True
        )
        for each, failed in zip(self.replicas, opened, strict=True):
            # flags or a tokenizer that are wrong at one of them are a mistake, no outage
            if isinstance(failed, BaseException) and not isinstance(failed, EngineError):
                raise failed
            if failed is None:
                each.welcome()
            else:
                _log.warning("%s; set aside", failed)
                each.error = failed
        if not self.here:
            raise self._nobody()
        self.context = min(each.server.context for each in self.here)
        for each in self.replicas:
            each.context = self.context
        # those that are published to are held to a learner
        if len(self.replicas) > 1 and self.replicas[0].server.owner is None:
            await self._check_alike()

    async def _check_alike(self) -> None:
        """Raises ConfigError where two of them answer otherwise: half of the plays would be of
        another model. Those that come later are held to these answers."""
        server = self.replicas[0].server
        ids = tuple(server.tokenizer(CANARY, add_special_tokens=False)["input_ids"]) or (0,)
        draws = [Draw(ids, Sampling(max_tokens=8), seed, 8) for seed in range(2)]
        asked = self.here
        answers = await asyncio.gather(*(self._probe(each, draws) for each in asked))
        heard = [pair for pair in zip(asked, answers, strict=True) if pair[1]]
        if not heard:
            return
        self._now = replace(self._now, draws=tuple(draws), replies=tuple(heard[0][1]))
        for each, replies in heard[1:]:
            try:
                each.compare(replies, self._now)
            except EngineError as error:
                raise ConfigError(f"{error}; start all of them with the same model") from error

    # -- requests ---------------------------------------------------------------------------------

    async def _check_apart(self) -> None:
        """Raises ConfigError where two addresses are one server: it would be told to wait by one
        publish and to go on by the other, with half of the weights."""
        if self._now.name or len(self.replicas) == 1:  # looked at when first published to
            return
        names = {self.owner.next_name(): each for each in self.here}
        for name, each in names.items():
            with suppress(EngineError):  # whoever publishes finds it out
                await each.server.weights.take_name(name)
        for each in names.values():
            with suppress(EngineError):
                namesake = names.get(await each.server.weights.name(), each)
                if namesake is not each:
                    hosts = f"{each.server.remote.host} and {namesake.server.remote.host}"
                    raise ConfigError(
                        f"{self.where}: base_url: {hosts} are one server; name each server once"
                    )

    async def draw(self, wanted: Draw) -> Reply:
        """Samples once, at the server of this conversation, or where that fails at another one.
        Raises EndpointError where none is there for as long as a request may wait."""
        end = time.monotonic() + self.wall_s
        passed = list[int]()
        moved = list[Attempt]()
        error: EngineError | None = None
        while True:
            # some may lose their weights again and again, and look well in between
            if error is not None and time.monotonic() > end:
                raise error if self.here else self._nobody()
            replica = await self._server_of(wanted.conversation, passed, end)
            life = replica.life
            now = self._now
            try:
                reply = await replica.server.ask(wanted)
            except EngineError as fault:
                error = fault
                self._judge(replica, life, error, wanted.adapter)
                if replica.here and replica.life == life:  # this request alone fails there
                    passed.append(replica.number)
                    # each server is asked once at least, however few tries are allowed
                    if len(passed) >= max(self.tries, len(self.here)):
                        raise
            else:
                if now is self._now and await replica.holds(life, now):
                    return replace(reply, attempts=(*moved, *reply.attempts)) if moved else reply
                error = replica.lost("has other weights now")
            moved.append(Attempt("moved", None, 0.0, str(replica.error or error)[:200]))

    def _judge(
        self, replica: Replica, life: int, error: EngineError, adapter: Adapter | None
    ) -> None:
        """Sets a server aside that failed for everybody. Raises where another would not help."""
        if isinstance(error, ModelNotFound) and adapter is not None:
            error = replica.lost(f"does not know the adapter {adapter.name}")
        elif not isinstance(error, EndpointError):
            if not error.retryable:
                raise error
            return
        # a single server was given all the patience there is
        elif len(self.replicas) == 1:
            raise error
        # it may have come back since this request was sent
        if replica.life == life:
            replica.set_aside(error)

    async def _server_of(self, conversation: str, passed: Sequence[int], end: float) -> Replica:
        """Of the servers that failed this request least often, the one of this conversation.
        Raises EndpointError where none is available by `end`."""
        for each in self.replicas:
            each.come()
        if not self.here:
            await self._some(end)
        least = min(passed.count(each.number) for each in self.here)
        fit = [each for each in self.here if passed.count(each.number) == least]
        # rendezvous hashing: a server that goes moves its own conversations and no others. By
        # number, since addresses differ between two runs that shall be equal
        return max(fit, key=lambda each: stable_seed(conversation, each.number))

    async def _some(self, end: float | None = None) -> None:
        """Waits until one is here; while one is, no other is admitted: between a publish and its
        check the right answer is unknown. Raises EndpointError where none has come by `end`."""
        end = time.monotonic() + self.wall_s if end is None else end
        while not self.here:
            tasks = [task for task in (each.come() for each in self.replicas) if task is not None]
            left = end - time.monotonic()
            if left <= 0:
                raise self._nobody()
            if tasks:
                await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            else:
                first = min(each.again_at for each in self.replicas) - time.monotonic()
                await asyncio.sleep(min(left, max(first, 0.01)))

    def _nobody(self) -> Exception:
        errors = [each.error for each in self.replicas if each.error is not None]
        if len(self.replicas) == 1 or any(isinstance(error, ConfigError) for error in errors):
            return errors[0]
        return EndpointError(
            f"{self.where}: none of {len(self.replicas)} servers can be sampled from; the first:"
            f" {errors[0]}"
        )

    # -- parity -----------------------------------------------------------------------------------

    async def probe(self, wanted: Sequence[Draw]) -> list[Reply]:
        """The answers of the first server that is here; those that answer otherwise are set aside,
        and what is taken in later must give the same. Where they are wrong, `spare` is called."""
        heard: list[tuple[Replica, list[Reply]]] = []
        while not heard:
            await self._some()
            asked = self.here
            answers = await asyncio.gather(*(self._probe(each, wanted) for each in asked))
            heard = [pair for pair in zip(asked, answers, strict=True) if pair[1]]
        self._lead, replies = heard[0]
        self._now = replace(self._now, draws=tuple(wanted), replies=tuple(replies))
        self._doubted = []
        for each, others in heard[1:]:
            try:
                each.compare(others, self._now)
            except EngineError as error:
                each.set_aside(error)
                self._doubted.append(each)
        return replies

    async def _probe(self, replica: Replica, wanted: Sequence[Draw]) -> list[Reply]:
        """The answers of one server; [] where it failed, or does not hold the weights."""
        life = replica.life
        now = self._now
        try:
            replies = await replica.server.probe(wanted)
        except EngineError as error:
            if len(self.replicas) == 1 or not _gone(error):
                raise
            replica.set_aside(error)
            return []
        return replies if await replica.holds(life, now) else []

    def spare(self) -> bool:
        """Sets the server aside whose answers were wrong, and takes those that did not agree with
        it. False where there are none."""
        if self._lead is None or not self._doubted:
            return False
        server = self._lead.server
        self._lead.set_aside(
            EngineError(f"{server.where}: {server.remote.host} has not the weights of the learner")
        )
        # whoever agreed with it is wrong as well
        for each in self.here:
            each.set_aside(self._lead.error or EngineError("wrong"))
        for each in self._doubted:
            each.gap = 0.0
            each.welcome()
        self._now = replace(self._now, draws=(), replies=())
        return True

    def numbers(self) -> dict[str, float]:
        """What is logged of a parity check: how many agree, and how far they are apart (nats)."""
        return {
            "replicas": float(len(self.here)),
            "replica_gap": max((each.gap for each in self.here), default=0.0),
        }

    # -- weights ----------------------------------------------------------------------------------

    async def load(self, adapter: Adapter) -> None:
        """Loads it everywhere; a server that is gone is set aside."""
        others = tuple(each for each in self._now.adapters if each.name != adapter.name)
        # before the first await: a server that is being taken in meanwhile must not miss it
        self._now = Weights(adapters=(*others, adapter))
        await self._everywhere(lambda each: each.server.load(adapter))

    async def unload(self, adapter: Adapter) -> None:
        """Forgets it everywhere."""
        now = self._now
        left = tuple(each for each in now.adapters if each.name != adapter.name)
        self._now = replace(now, adapters=left)
        await self._everywhere(lambda each: each.server.unload(adapter))

    def unshare(self) -> None:
        """All weights will be published here; no other policy may sample from these servers."""
        for each in self.replicas:
            each.server.owner = self.owner
            claim(each.server.base_url, self.owner)

    async def reload(self, folder: str) -> None:
        """Takes all weights from a model folder, everywhere."""
        await self._check_apart()
        now = self._now = Weights(folder=folder, name=self.owner.next_name())
        await self._everywhere(lambda each: each.publish(now))

    async def transfer(self, transfer: Transfer, weights: Mapping[str, Any]) -> None:
        """Sends all weights to every server that answers. One that fails is set aside, and the
        others take part in another transfer."""
        await self._check_apart()
        self._now = Weights(name=self.owner.next_name())
        left = [each for each in self.replicas if await each.answers()]
        while left:
            # one that is not here begins a new life with these weights, and may have been restarted
            members = tuple((each.number, each.life + (not each.here)) for each in left)
            servers = [each.server for each in left]
            faults = await transfer.send(servers, members, weights, self._now.name)
            for place, error in faults.items():
                left[place].set_aside(error)
            if not faults:
                break
            left = [each for place, each in enumerate(left) if place not in faults]
        if not left:
            raise self._nobody()
        for each in left:
            try:
                await each.confirm(self._now)
            except EngineError as error:  # it was restarted since
                each.set_aside(error)
            else:
                each.welcome()
        if not self.here:
            raise self._nobody()

    def carried(self) -> dict[str, Any]:
        """What another process needs to know of these servers, as JSON values."""
        return {
            "prefix": self.owner.prefix,
            "weights": _WEIGHTS.dump_python(self._now, mode="json"),
        }

    def carry(self, values: dict[str, Any]) -> None:
        """From now on the servers must hold what another process has published."""
        self.owner.prefix = values["prefix"]
        self._now = _WEIGHTS.validate_python(values["weights"])
        for each in self.replicas:
            each.server.owner = self.owner

    async def _everywhere(self, give: Callable[[Replica], Awaitable[None]]) -> None:
        """Gives something to all that are here. Raises where one refuses it."""
        asked = self.here
        results = await asyncio.gather(*map(give, asked), return_exceptions=True)
        for each, failed in zip(asked, results, strict=True):
            if isinstance(failed, EngineError) and _gone(failed):
                each.set_aside(failed)
            elif failed is not None:
                raise failed
        # a server that comes now is given the weights of now
        await self._some()


def _gone(error: EngineError) -> bool:
    """Whether another server might do what failed here."""
    return isinstance(error, EndpointError) or error.retryable
