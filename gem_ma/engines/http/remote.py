"""A policy's way to an HTTP endpoint: one request, tried until a usable reply comes, and paid for
out of the budget.

It knows when a fault is tried again (`http_faults`), for how long, and which faults end a
request or a run. It knows no messages and no tokens: an engine brings the body, and how a body
is read. Truncated JSON and empty choices come with status 200, so reading raises the faults.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from gem_ma.engines.http.budget import Budget, Price
from gem_ma.engines.http.endpoint import NO_KEY, Endpoint, endpoint, import_client
from gem_ma.engines.http.faults import RETRIED, Fault, back_off, in_words
from gem_ma.engines.http.hiding import LEAST, Secret
from gem_ma.engines.http.reply import decode, is_empty
from gem_ma.errors import ConfigError, EndpointError, EngineError, ModelNotFound
from gem_ma.secret_names import NO_SECRET
from gem_ma.types import Attempt, Reply, Usage

MOST_BYTES = 32 * 1024 * 1024  # of a reply's body
EMPTY_TRIES = 3  # after so many the empty text is the answer
FIRST_CONTACT_TRIES = 5  # where no server was ever there
LONG = 256 * 1024  # bytes of a body that is read in a thread: all plays share this one
PROBE_S = 10.0  # to find out whether a server is there

_WARNED: set[str] = set()  # addresses with a short key

Body = dict[str, Any]
Read = Callable[[Body], Reply]  # the JSON of a response -> reply without attempts; raises Fault


def _no_change(fault: Fault, sent: Body) -> bool:
    return False


class Remote:
    """One policy's way to `base_url`. `where` begins every message; `usual_key` names the variable
    of the key where the config names none.

    `timeout_s` cuts one attempt, `attempts` and `wall_s` one request. `concurrency`: requests at
    once, shared by all policies of the endpoint. `model_hint` says how to correct a model's
    name, `hint` what helps against a refusal (or ""). `offline`: no key is read. Raises
    ConfigError for options that do not fit, a key that is not set, and where the api extra is
    missing.
    """

    def __init__(
        self,
        where: str,
        *,
        model: str,
        base_url: str,
        path: str,
        model_hint: str,
        api_key_env: str | None = None,
        api_key: str | None = None,
        usual_key: str = "",
        timeout_s: float = 120.0,
        attempts: int = 12,
        wall_s: float = 300.0,
        concurrency: int = 32,
        most_bytes: int = MOST_BYTES,
        price: dict[str, Any] | None = None,
        budget: Budget | None = None,
        offline: bool = False,
        hint: Callable[[Fault], str] = lambda fault: "",
    ) -> None:
        self.hint = hint
        self.where, self.model, self.path, self.model_hint = where, model, path, model_hint
        self.base_url = _address(base_url, where, path)
        self.host = urlsplit(self.base_url).netloc
        for name, value in (
            ("timeout_s", timeout_s),
            ("wall_s", wall_s),
            ("attempts", attempts),
            ("concurrency", concurrency),
            ("most_bytes", most_bytes),
        ):
            if not 0 < value < float("inf"):
                raise ConfigError(f"{where}: {name} must be above 0; got {value}")
        self.timeout_s, self.attempts, self.wall_s, self.concurrency = (
            float(timeout_s),
            int(attempts),
            float(wall_s),
            int(concurrency),
        )
        self.most_bytes, self.price, self.budget = most_bytes, Price.of(price, where), budget
        if budget is not None and budget.most_usd is not None and self.price is None:
            raise ConfigError(
                f"{where}: limits.usd cannot be kept without its price; add price: {{input: ...,"
                " output: ...} (USD per million tokens)"
            )
        self.key_name = api_key_env or ("" if api_key else usual_key)
        self._key = Secret(NO_KEY if offline else self._find_key(api_key))
        import_client()
        # the server has answered, on whichever loop: from then on an outage is waited for
        self.met = False
        # spreads retries; decides nothing that is recorded but how long they waited
        self._rng = random.Random()

    def _find_key(self, given: str | None) -> str:
        if given and self.key_name:
            raise ConfigError(f"{self.where}: api_key and api_key_env both name a key; keep one")
        if self.key_name and not os.environ.get(self.key_name):
            raise ConfigError(
                f"{self.where}: the environment variable {self.key_name} is not set; export the"
                " key, or name another with api_key_env"
            )
        key = (os.environ[self.key_name] if self.key_name else given or NO_KEY).strip()
        if not key.isascii() or not key.isprintable() or " " in key or not key:
            raise ConfigError(
                f"{self.where}: the key in {self.key_name or 'api_key'} holds white space or"
                " letters that no key has; export it anew"
            )
        if len(key) < LEAST and key not in NO_SECRET and self.base_url not in _WARNED:
            _WARNED.add(self.base_url)
            short = (
                f"the key in {self.key_name or 'api_key'} has less than {LEAST} characters and may"
                " be a word"
            )
            logging.getLogger("gem_ma").warning(
                "%s: %s, so it is not hidden where the server repeats it", self.where, short
            )
        return key

    async def endpoint(self) -> Endpoint:
        """The endpoint on the running loop."""
        return await endpoint(self.base_url, self._key, self.concurrency)

    # -- one request ------------------------------------------------------------------------------

    async def paid(
        self,
        prompt: int,
        most: int,
        body: Callable[[], Body],
        read: Read,
        probe: Body,
        adapt: Any = _no_change,
    ) -> Reply:
        """A reply out of the budget: `prompt` tokens are read and up to `most` sampled; see
        `tried`. Raises BudgetError where they do not fit."""
        if self.budget is None:
            return (await self.tried(body, read, probe, adapt=adapt))[0]
        claim = await self.budget.claim(prompt + most, self.price, prompt)
        reply, wasted = None, Usage(0, 0)
        try:
            reply, wasted = await self.tried(body, read, probe, adapt=adapt)
            return reply
        finally:
            self.budget.settle(claim, reply, wasted, self.price)

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
    ) -> tuple[Reply, Usage]:
        """(the reply, what attempts without a usable one did cost).

        `body` is asked for before every try; `adapt` tells whether it changed what will be sent,
        so that a refused option is left out. `probe` is a tiny body that shows whether the
        server is there at all. Raises EngineError where this request failed, EndpointError where
        all would.
        """
        most = self.attempts if attempts is None else min(self.attempts, attempts)
        at = await self.endpoint()
        failed: list[Attempt] = []
        wasted, spent_s, tries, empty, answered = Usage(0, 0), 0.0, 0, 0, at.answered
        while True:
            tries += 1
            async with at.limiter:
                began, sent = time.monotonic(), body()
                got = await self._once(
                    at,
                    path or self.path,
                    sent,
                    min(self.timeout_s, self.wall_s - spent_s),
                    lambda content, kind: read(self._key.hide_in(decoding(content, kind))),
                )
                reply, fault = (Reply(), got) if isinstance(got, Fault) else (got, None)
                spent_s += time.monotonic() - began
            self.met = self.met or at.answered > 0
            at.limiter.heard(fault is not None and fault.kind == "rate_limited")
            if fault is None and is_empty(reply):
                empty += 1
                if empty < EMPTY_TRIES and tries < most:
                    fault = Fault("empty", "neither text nor a call", status=200)
                    wasted = _sum(wasted, reply.usage)
            if fault is None:
                return replace(reply, attempts=tuple(failed)), wasted
            if fault.kind in ("context_overflow", "content_filter"):
                return (
                    Reply(
                        finish=fault.kind, attempts=(*failed, fault.attempt()), usage=Usage(0, 0)
                    ),
                    wasted,
                )
            if sent is not None and adapt(fault, sent):
                failed.append(Attempt("adapted", fault.status, 0.0, fault.detail))
                tries -= 1
                continue
            if fault.kind not in RETRIED:
                raise self.refused(fault)
            wait = back_off(1 + sum(one.kind == fault.kind for one in failed), fault, self._rng)
            unreachable = fault.kind == "transport" and at.answered == answered
            given_up = (
                tries >= most
                or spent_s + wait >= self.wall_s
                or (unreachable and not self.met and tries >= FIRST_CONTACT_TRIES)
            )
            failed.append(fault.attempt(0.0 if given_up else wait))
            if given_up:
                # a request that makes a server hang must not end the run of all others
                gone = unreachable and not await self._is_there(at, probe)
                raise self._given_up(failed, fault, spent_s, gone)
            await asyncio.sleep(wait)
            spent_s += wait

    async def _once(
        self,
        at: Endpoint,
        path: str,
        sent: Body | None,
        timeout_s: float,
        read: Callable[[bytes, str], Reply],
    ) -> Reply | Fault:
        """One attempt, without the key in what the server says. Its words as they came live in
        no frame that an error shows."""

        def reading(content: bytes, kind: str) -> Reply:
            return self._key.hide_reply(read(content, kind))

        try:
            content, kind = await at.post(
                path, sent, timeout_s=timeout_s, most_bytes=self.most_bytes
            )
            if len(content) > LONG:
                return await asyncio.to_thread(reading, content, kind)
            return reading(content, kind)
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

        {} for an answer that is no JSON object: whoever asks looks for fields, and the request
        was carried out.
        """
        found: list[Body] = []

        def leniently(content: bytes, kind: str) -> Body:
            try:
                return decode(content, "")
            except Fault as fault:
                if fault.kind != "bad_reply":
                    raise
                return {}

        def keep(answer: Body) -> Reply:
            found.append(answer)
            return Reply(finish="length")  # a stop without text would be taken for an empty answer

        await self.tried(lambda: body, keep, probe, path=path, adapt=adapt, decoding=leniently)
        return found[-1]

    # -- failures ---------------------------------------------------------------------------------

    def refused(self, fault: Fault) -> EngineError:
        """The error behind a fault that is never tried again."""
        where, said = (
            f"{self.where}: {self.host}",
            (f"({fault.status}: {fault.detail})" if fault.status else f"({fault.detail})"),
        )
        if fault.kind == "auth":
            key = (
                f"the key in {self.key_name}"
                if self.key_name
                else "the key"
                if self._key.value != NO_KEY
                else "a request without a key"
            )
            return EndpointError(
                f"{where} refused {key} {said}; export a valid key, and name its variable with"
                " api_key_env"
            )
        if fault.kind == "quota":
            return EndpointError(
                f"{where}: the account has no quota left {said}; add credit, or use another key"
            )
        if fault.kind == "model":
            return ModelNotFound(
                f"{where} has no model {self.model!r} {said}; {self.model_hint},"
                f" {self.base_url}/models lists them"
            )
        if fault.kind == "address":
            what = self.path.strip("/").replace("/", " ")
            return EndpointError(
                f"{where}: there are no {what} at {self.base_url}{self.path} {said}; correct"
                " base_url, it usually ends in /v1"
            )
        hint = self.hint(fault)
        return EngineError(f"{where} refused the request {said}" + (f"; {hint}" if hint else ""))

    def _given_up(
        self, failed: list[Attempt], fault: Fault, spent_s: float, unreachable: bool
    ) -> EngineError:
        what = (
            f"{self.where}: no usable reply from {self.host} in {len(failed)} attempts and"
            f" {spent_s:.0f} s ({in_words(failed)}); last: {fault.detail}"
        )
        if unreachable:
            return EndpointError(
                f"{what}; the server cannot be reached: start it, or correct base_url"
                f" ({self.base_url})"
            )
        return EngineError(f"{what}; try again later, or raise attempts and wall_s", retryable=True)

    async def _is_there(self, at: Endpoint, probe: Body) -> bool:
        """Whether the server answers a tiny request, be it with an error."""
        try:
            await at.post(
                self.path, probe, timeout_s=min(self.timeout_s, PROBE_S), most_bytes=self.most_bytes
            )
        except Fault as fault:
            return fault.kind != "transport"
        return True


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        (one.prompt_tokens or 0) + (other.prompt_tokens or 0),
        (one.completion_tokens or 0) + (other.completion_tokens or 0),
    )


def _address(base_url: str, where: str, path: str) -> str:
    """The address without a slash at its end. Raises ConfigError for what is none, or would show
    a key."""
    try:
        parts = urlsplit(base_url)
        fits = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        fits = False
    if not fits:
        # not repeated: it may hold a key
        raise ConfigError(f"{where}: base_url is an address such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{where}: base_url may hold no user, password or query, which would be logged; name"
            " the key with api_key_env"
        )
    return base_url.rstrip("/").removesuffix(path)
