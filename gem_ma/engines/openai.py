"""The openai engine: any server that speaks OpenAI's chat completions, asked through the `openai` client library.

The library sends; what a failure means and when a request is tried again is decided here (`http_faults`), since truncated JSON and empty
choices come with status 200. Every failed attempt is in `Reply.attempts`. A request gives up after `attempts` tries or `wall_s` seconds of
its own (waiting for a place at the endpoint does not count), whichever comes first; it fails alone. What no request can survive (a wrong key,
no server) raises EndpointError and ends the run.

Sampling fields are all sent. `top_k` 0 (off) is left out at OpenAI itself, which does not know the field, and wherever a server refuses it.
The answer's ids and log-probabilities are there only where a server gives them, so nothing is ever trained on it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import time
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import urlsplit

from gem_ma.engines.endpoint import NO_KEY, Endpoint, Secret, endpoint, import_client, is_openai
from gem_ma.engines.http_faults import RETRIED, Fault, back_off, in_words
from gem_ma.engines.http_messages import chat
from gem_ma.engines.http_reply import decode, is_empty, read
from gem_ma.engines.reply_cache import ReplyCache
from gem_ma.engines.spending import Budget, Price, guess_tokens
from gem_ma.errors import ConfigError, EndpointError, EngineError, ModelNotFound
from gem_ma.types import Attempt, Message, Reply, Request, Sampling, Usage

OPENAI_URL = "https://api.openai.com/v1"
PATH = "/chat/completions"
MOST_BYTES = 32 * 1024 * 1024  # of a reply's body
EMPTY_TRIES = 3  # after so many the empty text is the answer
FIRST_CONTACT_TRIES = 5  # where no server was ever there
PROBE_S = 10.0  # to find out whether a server is there
TINY = Request("user", (Message("Say ok."),), sampling=Sampling(max_tokens=16))
SEED_BITS = 0x7FFFFFFF  # servers differ in the width of a seed; 31 bits fit all


class OpenAI:
    """`openai/<model>` at an OpenAI-compatible endpoint.

    `base_url`: up to and with `/v1`. `api_key_env`: the NAME of the variable that holds the key (at OpenAI itself OPENAI_API_KEY, elsewhere
    none); `api_key: ${env:NAME}` says the same. `timeout_s` cuts one attempt, `attempts` and `wall_s` one request. `concurrency`: requests at
    once, shared by all policies of the endpoint. `tools: text` writes tools into the prompt and reads calls from text, for servers without
    them. `token_ids` asks for ids and log-probabilities (vLLM). `extra_body` goes into the request as it is. `price: {input, output}` is USD
    per million tokens. `cache`: a folder of replies by (request, seed).

    `budget` and `offline` (no key is read, nothing is sent) come from the caller, not from a config.

    Raises ConfigError for options that do not fit, a key that is not set, and where the api extra is missing.
    """

    kind, trainable = "openai", False

    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        base_url: str = OPENAI_URL,
        api_key_env: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        attempts: int = 12,
        wall_s: float = 300.0,
        concurrency: int = 32,
        stream: bool = False,
        tools: Literal["native", "text"] = "native",
        token_ids: bool = False,
        extra_body: dict[str, Any] | None = None,
        most_bytes: int = MOST_BYTES,
        price: dict[str, Any] | None = None,
        cache: str | None = None,
        budget: Budget | None = None,
        offline: bool = False,
    ) -> None:
        self.name, self.policy, self.where = name, policy, f"policy {policy!r}"
        if not name:
            raise ConfigError(f"{self.where}: the model has no name; write openai/<name of the model at the server>")
        self.base_url = _address(base_url, self.where)
        self.host = urlsplit(self.base_url).netloc
        for key, value in (
            ("timeout_s", timeout_s),
            ("wall_s", wall_s),
            ("attempts", attempts),
            ("concurrency", concurrency),
            ("most_bytes", most_bytes),
        ):
            if not 0 < value < float("inf"):
                raise ConfigError(f"{self.where}: {key} must be above 0; got {value}")
        if tools not in ("native", "text"):
            raise ConfigError(f"{self.where}: tools is native or text; got {tools!r}")
        clash = sorted({"messages", "model", "stream", "n"} & set(extra_body or ()))
        if clash:
            raise ConfigError(f"{self.where}: extra_body may not hold {clash[0]!r}, which the engine sets itself")
        self.timeout_s, self.attempts, self.wall_s, self.concurrency = float(timeout_s), int(attempts), float(wall_s), int(concurrency)
        self.stream, self.tools, self.token_ids, self.extra_body, self.most_bytes = stream, tools, token_ids, dict(extra_body or {}), most_bytes
        self.price, self.budget = Price.of(price, self.where), budget
        if budget is not None and budget.most_usd is not None and self.price is None:
            raise ConfigError(
                f"{self.where}: limits.usd cannot be kept without its price; add price: {{input: ..., output: ...}} (USD per million tokens)"
            )
        self.cache = ReplyCache(cache) if cache else None
        self.key_name = api_key_env or ("OPENAI_API_KEY" if self.base_url == OPENAI_URL and api_key is None else "")
        self._key = Secret(NO_KEY if offline else self._find_key(api_key))
        import_client()
        self._renamed: dict[str, str] = {"max_tokens": "max_completion_tokens"} if is_openai(self.base_url) else {}
        self._left_out: set[str] = {"top_k"} if is_openai(self.base_url) else set()
        self._guess = 1.0  # tokens that a prompt has per token that was guessed, at most so far
        self._rng = random.Random()  # spreads retries; decides nothing that is recorded but how long they waited

    def _find_key(self, given: str | None) -> str:
        if given and self.key_name:
            raise ConfigError(f"{self.where}: api_key and api_key_env both name a key; keep one")
        if self.key_name and not os.environ.get(self.key_name):
            raise ConfigError(f"{self.where}: the environment variable {self.key_name} is not set; export the key, or name another with api_key_env")
        key = (os.environ[self.key_name] if self.key_name else given or NO_KEY).strip()
        if not key.isascii() or not key.isprintable() or " " in key or not key:
            raise ConfigError(f"{self.where}: the key in {self.key_name or 'api_key'} holds white space or letters that no key has; export it anew")
        return key

    # -- one request --------------------------------------------------------------------------------------------------------

    async def sample(self, request: Request) -> Reply:
        """One answer. Raises EngineError where this request failed, EndpointError where all would, BudgetError where `limits:` are reached."""
        body = self.body(request)
        key = self.cache.key({"base_url": self.base_url, **body}, request.seed) if self.cache is not None else ""
        policy = request.policy or self.policy
        if self.cache is not None and (kept := self.cache.get(key)) is not None:
            return replace(kept, policy=policy)
        reply = replace(await self._paid(request, body), policy=policy)
        if self.cache is not None and reply.finish != "context_overflow":
            self.cache.put(key, reply)
        return reply

    def body(self, request: Request) -> dict[str, Any]:
        """The request's JSON, before anything that a server refuses is left out."""
        how = request.sampling
        native = self.tools == "native"
        body: dict[str, Any] = {"model": self.name, "messages": chat(request.agent, request.messages, request.tools, native=native)}
        body |= {
            "temperature": how.temperature,
            "top_p": how.top_p,
            "top_k": how.top_k,
            "max_tokens": how.max_tokens,
            "seed": request.seed & SEED_BITS,
        }
        if how.stop:
            body["stop"] = list(how.stop)
        if request.tools and native:
            body["tools"] = [tool.schema for tool in request.tools]
        if self.token_ids:
            body |= {"logprobs": True, "return_token_ids": True}
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | self.extra_body

    async def _paid(self, request: Request, body: dict[str, Any]) -> Reply:
        if self.budget is None:
            return (await self._tried(request, body, self.attempts))[0]
        guessed = guess_tokens(json.dumps([body["messages"], body.get("tools")], ensure_ascii=False))
        prompt = math.ceil(guessed * self._guess)
        claim = await self.budget.claim(prompt + request.sampling.max_tokens, self.price, prompt)
        reply, wasted = None, Usage(0, 0)
        try:
            reply, wasted = await self._tried(request, body, self.attempts)
            self._guess = max(self._guess, (reply.usage.prompt_tokens or 0) / guessed)
            return reply
        finally:
            self.budget.settle(claim, reply, wasted, self.price)

    async def _tried(self, request: Request, body: dict[str, Any], attempts: int) -> tuple[Reply, Usage]:
        """(the reply, what attempts without a usable one did cost)."""
        at = await endpoint(self.base_url, self._key, self.concurrency)
        in_text = self.tools == "text" and bool(request.tools)
        failed: list[Attempt] = []
        wasted, spent_s, tries, empty, answered = Usage(0, 0), 0.0, 0, 0, at.answered
        while True:
            tries += 1
            async with at.limiter:
                began, sent = time.monotonic(), self._adapted(body)
                try:
                    content, kind = await at.post(PATH, sent, timeout_s=min(self.timeout_s, self.wall_s - spent_s), most_bytes=self.most_bytes)
                    reply = read(decode(content, kind), tools_in_text=in_text, ids_wanted=self.token_ids)
                    fault = None
                except Fault as caught:
                    fault = caught
                spent_s += time.monotonic() - began
            at.limiter.heard(fault is not None and fault.kind == "rate_limited")
            if fault is None and is_empty(reply):
                empty += 1
                if empty < EMPTY_TRIES and tries < attempts:
                    fault = Fault("empty", "neither text nor a call", status=200)
                    wasted = _sum(wasted, reply.usage)
            if fault is None:
                return replace(reply, attempts=tuple(failed)), wasted
            if fault.kind in ("context_overflow", "content_filter"):
                return Reply(finish=fault.kind, attempts=(*failed, fault.attempt()), usage=Usage(0, 0)), wasted
            if self._adapt(fault, sent):
                failed.append(Attempt("adapted", fault.status, 0.0, fault.detail))
                tries -= 1
                continue
            if fault.kind not in RETRIED:
                raise self._refused(fault)
            wait = back_off(1 + sum(one.kind == fault.kind for one in failed), fault, self._rng)
            unreachable = fault.kind == "transport" and at.answered == answered
            given_up = tries >= attempts or spent_s + wait >= self.wall_s or (unreachable and not at.answered and tries >= FIRST_CONTACT_TRIES)
            failed.append(fault.attempt(0.0 if given_up else wait))
            if given_up:
                gone = unreachable and not await self._is_there(at)  # a request that makes a server hang must not end the run of all others
                raise self._given_up(failed, fault, spent_s, gone)
            await asyncio.sleep(wait)
            spent_s += wait

    # -- what servers differ in ---------------------------------------------------------------------------------------------

    def _adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        return {self._renamed.get(key, key): value for key, value in body.items() if key not in self._left_out or key in self.extra_body}

    def _adapt(self, fault: Fault, sent: dict[str, Any]) -> bool:
        """True where the server refused an option that has an equal: what was meant stays the same. Remembered for all later requests."""
        if fault.kind != "request":
            return False
        if "max_completion_tokens" in fault.detail and "max_tokens" in sent:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return True
        for option in ("top_k", "seed", "stream_options"):
            equal = option != "top_k" or sent.get(option) == 0  # a top_k that cuts cannot be left out in silence
            if option in sent and equal and option not in self.extra_body and re.search(rf"\b{option}\b", fault.detail):
                self._left_out.add(option)
                return True
        return False

    # -- failures -----------------------------------------------------------------------------------------------------------

    def _refused(self, fault: Fault) -> EngineError:
        where, said = f"{self.where}: {self.host}", f"({fault.status}: {fault.detail})" if fault.status else f"({fault.detail})"
        if fault.kind == "auth":
            key = f"the key in {self.key_name}" if self.key_name else "the key" if self._key.value != NO_KEY else "a request without a key"
            return EndpointError(f"{where} refused {key} {said}; export a valid key, and name its variable with api_key_env")
        if fault.kind == "quota":
            return EndpointError(f"{where}: the account has no quota left {said}; add credit, or use another key")
        if fault.kind == "model":
            return ModelNotFound(f"{where} has no model {self.name!r} {said}; correct the name after openai/, {self.base_url}/models lists them")
        if fault.kind == "address":
            return EndpointError(f"{where}: there are no chat completions at {self.base_url}{PATH} {said}; correct base_url, it usually ends in /v1")
        hint = "; a server that knows no tools takes tools: text" if self.tools == "native" and "tool" in fault.detail.casefold() else ""
        return EngineError(f"{where} refused the request {said}{hint}")

    def _given_up(self, failed: list[Attempt], fault: Fault, spent_s: float, unreachable: bool) -> EngineError:
        what = (
            f"{self.where}: no usable reply from {self.host} in {len(failed)} attempts and {spent_s:.0f} s ({in_words(failed)}); last: {fault.detail}"
        )
        if unreachable:
            return EndpointError(f"{what}; the server cannot be reached: start it, or correct base_url ({self.base_url})")
        return EngineError(f"{what}; try again later, or raise attempts and wall_s", retryable=True)

    # -- before a run -------------------------------------------------------------------------------------------------------

    async def ping(self) -> Reply:
        """One tiny request, tried few times: shows that address, key and model are right. Raises EngineError."""
        return (await self._tried(TINY, self.body(TINY), min(self.attempts, 3)))[0]

    async def _is_there(self, at: Endpoint) -> bool:
        """Whether the server answers a tiny request, be it with an error."""
        try:
            await at.post(PATH, self._adapted(self.body(TINY)), timeout_s=min(self.timeout_s, PROBE_S), most_bytes=self.most_bytes)
        except Fault as fault:
            return fault.kind != "transport"
        return True


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage((one.prompt_tokens or 0) + (other.prompt_tokens or 0), (one.completion_tokens or 0) + (other.completion_tokens or 0))


def _address(base_url: str, where: str) -> str:
    """The address without a slash at its end. Raises ConfigError for what is none, or would show a key."""
    try:
        parts = urlsplit(base_url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"{where}: base_url is an address such as http://127.0.0.1:8000/v1")  # not repeated: it may hold a key
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(f"{where}: base_url may hold no user, password or query, which would be logged; name the key with api_key_env")
    return base_url.rstrip("/").removesuffix(PATH)
