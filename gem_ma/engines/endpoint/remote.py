"""A policy's way to an HTTP endpoint: one request, tried until a usable reply comes, and paid for
out of the budget.

It knows when a fault is tried again (`faults`), for how long, and which faults end a request or a
run. It knows no messages and no tokens: an engine brings the body, and how a body is read.
Truncated JSON and empty choices come with status 200, so reading raises the faults.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gem_ma.engines.endpoint.client import Client, client_of
from gem_ma.engines.endpoint.endpoint import NO_KEY, Budget, Endpoint, Price, check_priced, host_of
from gem_ma.engines.endpoint.faults import RETRIED, Fault, back_off, in_words
from gem_ma.engines.endpoint.reply import decode, is_empty, usage_of
from gem_ma.kernel.errors import EndpointError, EngineError, ModelNotFound
from gem_ma.kernel.types import Attempt, Reply, Usage

EMPTY_TRIES = 3  # after so many the empty text is the answer


@dataclass(slots=True)
class Tries:
    """What one request has been through so far."""

    most: int
    answered: int  # responses of the client when it began
    count: int = 0
    empty: int = 0  # replies without text or call
    spent_s: float = 0.0
    failed: list[Attempt] = field(default_factory=list)
    keep: bool = False  # it may go over a connection that is kept

    def strays(self, fault: Fault) -> bool:
        """Whether a kept connection gave no answer to this request. Then it is sent once more,
        over a connection of its own: what comes there is its answer."""
        if not (fault.stray and self.keep):
            return False
        # Servers close connections that lie idle, and the request met that. It may have been
        # taken all the same: a completion changes nothing at a server, what it may cost twice is
        # tokens, and the record says so.
        self.keep = False
        self.failed.append(fault.attempt())
        self.count -= 1
        return True

    def looks_empty(self, reply: Reply) -> bool:
        """Whether an empty reply is a fault of the server: the last one allowed is the answer."""
        if not is_empty(reply):
            return False
        self.empty += 1
        return self.empty < EMPTY_TRIES and self.count < self.most


FIRST_CONTACT_TRIES = 5  # where no server was ever there
LONG = 256 * 1024  # bytes of a body that is read in a thread: all plays share this one
# from so many faults of a kind in one request, or so long a wait, a person is told
TOLD_AFTER = 2
TOLD_S = 1.0
PROBE_S = 10.0  # to find out whether a server is there
ENDS = ("context_overflow", "content_filter")  # faults that are an answer: the reply has no text

Body = dict[str, Any]
Read = Callable[[Body], Reply]  # the JSON of a response -> reply without attempts; raises Fault


def _no_change(fault: Fault, sent: Body) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Service:
    """What an engine asks an endpoint for: a model, at a path below the address.

    `model_hint` says how to correct a model's name, `hint` what helps against a refusal (or "").
    `usual_key` names the variable of the key where the config names none.
    """

    model: str
    path: str
    model_hint: str
    usual_key: str = ""
    hint: Callable[[Fault], str] = lambda fault: ""


class Remote:
    """One policy's way to an endpoint. `where` begins every message.

    Raises ConfigError for options that do not fit, and for a key that is not set.
    """

    def __init__(
        self,
        where: str,
        endpoint: Endpoint,
        service: Service,
        *,
        price: Price | None = None,
        budget: Budget | None = None,
    ) -> None:
        endpoint = endpoint.checked(where, service.path)
        self.where = where
        self.model = service.model
        self.service = service
        self.base_url = str(endpoint.base_url)
        self.host = host_of(self.base_url)
        self.price = price
        self.budget = budget
        check_priced(where, price, budget)
        self.key_name = endpoint.key_name(service.usual_key)
        self._key = endpoint.key(where, service.usual_key)
        self.endpoint = replace(endpoint, api_key=None)  # the key lives in the Secret alone
        self.import_client()
        self._kinds: set[str] = set()  # kinds of faults that were said
        # The server has answered, on whichever loop: from then on an outage is waited for.
        self.met = False
        # Spreads retries; decides nothing that is recorded but how long they waited.
        self._rng = random.Random()

    def import_client(self) -> None:
        """Raises ConfigError where a library that sends is missing; our own needs none."""

    async def client(self) -> Client:
        """The client on the running loop."""
        return await client_of(self.base_url, self._key, self.endpoint.concurrency)

    # -- one request ------------------------------------------------------------------------------

    @asynccontextmanager
    async def _claim(self, cost: tuple[int, int] | None) -> AsyncIterator[list[Usage]]:
        """What one attempt may cost, claimed; gives the list for what its answer says that it did.
        Raises BudgetError."""
        used: list[Usage] = []
        if self.budget is None or cost is None:
            yield used
            return
        claim = await self.budget.claim(sum(cost), self.price, cost[0])
        try:
            yield used
        finally:  # also where it fails or is cancelled
            self.budget.settle(claim, used, self.price)

    async def tried(
        self,
        body: Callable[[], Body | None],
        read: Read,
        probe: Body,
        *,
        adapt: Callable[[Fault, Body], bool] = _no_change,
        attempts: int | None = None,
        path: str | None = None,
        decoding: Callable[[bytes, str], Body] = decode,
        cost: tuple[int, int] | None = None,
    ) -> Reply:
        """The reply. `cost`: tokens that are read and sampled at most, out of the budget and for
        each attempt; None = it costs nothing.

        `body` is asked for before every try; `adapt` tells whether it changed what will be sent,
        so that a refused option is left out. `probe`, a tiny body, shows whether the server is
        there. Raises EngineError where this request failed, EndpointError where all would,
        BudgetError where an attempt does not fit.
        """
        patience = self.endpoint
        most = patience.attempts if attempts is None else min(patience.attempts, attempts)
        client = await self.client()
        # what samples nothing may change the server, and is never sent twice for a connection
        tries = Tries(most, client.answered, keep=path is None)

        reading = partial(self._read, read, decoding)
        while True:
            tries.count += 1
            async with self._claim(cost) as used, client.limiter:
                began = time.monotonic()
                sent = body()
                # the clock starts inside: waiting for a place is nobody's fault
                left_s = min(patience.timeout_s, patience.wall_s - tries.spent_s)
                way = path or self.service.path
                got = await self._once(client, way, sent, left_s, reading, tries.keep)
                tries.spent_s += time.monotonic() - began
                used.append(got.usage if isinstance(got, Reply) else got.used)
            self.met = self.met or client.answered > 0
            client.limiter.heard(isinstance(got, Fault) and got.kind == "rate_limited")
            if isinstance(got, Reply) and tries.looks_empty(got):
                got = Fault("empty", "neither text nor a call", status=200)
            if isinstance(got, Reply):
                # the same object where nothing failed: a copy costs
                failed = tuple(tries.failed)
                return replace(got, attempts=failed) if failed else got
            if got.kind in ENDS:  # an answer of a kind: the play goes on with it
                self._tell_once(got)
                failed = (*tries.failed, got.attempt())
                return Reply(finish=got.kind, attempts=failed, usage=Usage(0, 0))
            if sent is not None and adapt(got, sent):
                # What was sent was wrong, not the server: this try does not count.
                tries.failed.append(Attempt("adapted", got.status, 0.0, got.detail))
                tries.count -= 1
                continue
            if tries.strays(got):
                continue
            if got.kind not in RETRIED:
                raise self.refused(got)
            await self._wait(client, tries, got, probe)

    def _read(
        self, read: Read, decoding: Callable[[bytes, str], Body], content: bytes, kind: str
    ) -> Reply:
        # before anything is cut from it, which would leave half a key
        answer = self._key.hide_in(decoding(content, kind))
        try:
            return read(answer)
        except Fault as fault:
            fault.used = usage_of(answer)
            raise

    def _tell_once(self, fault: Fault, did: str = "refused", then: str = "") -> None:
        # in the server's words, which no record of a play that ends here has
        if fault.kind in self._kinds:
            return
        self._kinds.add(fault.kind)
        words = f"{fault.status}: {fault.detail}" if fault.status else fault.detail
        logging.getLogger("gem_ma").warning(
            "%s: %s %s a request as %s (%s)%s",
            *(self.where, self.host, did, fault.kind, words, then),
        )

    async def _wait(self, client: Client, tries: Tries, fault: Fault, probe: Body) -> None:
        """Waits before the next try. Raises EngineError or EndpointError where there is none."""
        # only faults of this kind make the wait longer, see `back_off`
        alike = sum(attempt.kind == fault.kind for attempt in tries.failed)
        wait = back_off(1 + alike, fault, self._rng)
        # nobody has heard the server since this request began, not even another request
        unreachable = fault.kind == "transport" and client.answered == tries.answered
        given_up = (
            tries.count >= tries.most
            or tries.spent_s + wait >= self.endpoint.wall_s
            or (unreachable and not self.met and tries.count >= FIRST_CONTACT_TRIES)
        )
        tries.failed.append(fault.attempt(0.0 if given_up else wait))
        if given_up:
            # a request that makes a server hang must not end the run of all others
            gone = unreachable and not await self._is_there(client, probe)
            raise self._given_up(tries, fault, gone)
        # an outage may last for minutes, in which nothing else is heard of it
        if alike >= TOLD_AFTER or wait >= TOLD_S:
            again = f"; it is tried again, up to {tries.most} times"
            self._tell_once(fault, "failed", again)
        await asyncio.sleep(wait)
        tries.spent_s += wait

    async def _once(
        self,
        client: Client,
        path: str,
        sent: Body | None,
        timeout_s: float,
        read: Callable[[bytes, str], Reply],
        keep: bool,
    ) -> Reply | Fault:
        """One attempt, without the key in what the server says.

        An error is raised in here before its words are hidden, and outside only afterwards: so no
        traceback shows them as they came.
        """
        most = self.endpoint.most_bytes
        try:
            content, kind = await client.post(
                path, sent, timeout_s=timeout_s, most_bytes=most, keep=keep
            )
            # hiding and parsing of megabytes would hold up all plays
            if len(content) > LONG:
                return await asyncio.to_thread(read, content, kind)
            return read(content, kind)
        except Fault as fault:
            return fault.without(self._key.hide)

    async def call(
        self,
        path: str,
        body: Body | None,
        probe: Body,
        adapt: Callable[[Fault, Body], bool] = _no_change,
    ) -> Body:
        """The JSON that answers a request which samples nothing (a GET where `body` is None), tried
        and refused as any other.

        {} for an answer that is not a JSON object: whoever asks looks for fields, and the request
        was carried out.
        """
        answers: list[Body] = []

        def leniently(content: bytes, kind: str) -> Body:
            try:
                return decode(content, "")
            except Fault as fault:
                if fault.kind != "bad_reply":
                    raise
                return {}

        def keep(answer: Body) -> Reply:
            answers.append(answer)
            return Reply(finish="length")  # a stop without text would be taken for an empty answer

        await self.tried(lambda: body, keep, probe, path=path, adapt=adapt, decoding=leniently)
        return answers[-1]

    # -- failures ---------------------------------------------------------------------------------

    def refused(self, fault: Fault) -> EngineError:
        """The error behind a fault that is never tried again."""
        where = f"{self.where}: {self.host}"
        words = f"({fault.status}: {fault.detail})" if fault.status else f"({fault.detail})"
        if fault.kind == "auth":
            key = "the key" if self._key.value != NO_KEY else "a request without a key"
            if self.key_name:
                key = f"the key in {self.key_name}"
            return EndpointError(
                f"{where} refused {key} {words}; export a valid key, and name its variable with"
                " api_key_env"
            )
        if fault.kind == "quota":
            return EndpointError(
                f"{where}: the account has no quota left {words}; add credit, or use another key"
            )
        if fault.kind == "model":
            return ModelNotFound(
                f"{where} has no model {self.model!r} {words}; {self.service.model_hint},"
                f" {self.base_url}/models lists them"
            )
        if fault.kind == "address":
            what = self.service.path.strip("/").replace("/", " ")
            address = f"{self.base_url}{self.service.path}"
            return EndpointError(
                f"{where}: there are no {what} at {address} {words}; correct base_url, it usually"
                " ends in /v1"
            )
        hint = self.service.hint(fault)
        return EngineError(f"{where} refused the request {words}" + (f"; {hint}" if hint else ""))

    def _given_up(self, tries: Tries, fault: Fault, gone: bool) -> EngineError:
        what = (
            f"{self.where}: no usable reply from {self.host} in {len(tries.failed)} attempts and"
            f" {tries.spent_s:.0f} s ({in_words(tries.failed)}); last: {fault.detail}"
        )
        if (fault.retry_after or 0.0) >= 1.0:
            what += f"; it asks to wait {fault.retry_after:.0f} s"
        if gone:
            return EndpointError(
                f"{what}; the server cannot be reached: start it, or correct base_url"
                f" ({self.base_url})"
            )
        return EngineError(f"{what}; try again later, or raise attempts and wall_s", retryable=True)

    async def _is_there(self, client: Client, probe: Body) -> bool:
        """Whether the server answers a tiny request, be it with an error."""
        timeout_s = min(self.endpoint.timeout_s, PROBE_S)
        most = self.endpoint.most_bytes
        try:
            await client.post(self.service.path, probe, timeout_s=timeout_s, most_bytes=most)
        except Fault as fault:
            return fault.kind != "transport"
        return True
