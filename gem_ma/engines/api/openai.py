"""The openai engine: any server that speaks OpenAI's chat completions.

`exchange` sends; what a failure means and when a request is tried again is decided above it
(`faults`, `remote`), since truncated JSON and empty choices come with status 200. Every failed
attempt is in `Reply.attempts`. A request gives up after `attempts` tries or `wall_s` seconds of its
own (waiting for a place at the endpoint does not count), whichever comes first; it fails alone.
What no request can survive (a wrong key, no server) raises EndpointError and ends the run.

Of the sampling, what the config says is sent, and `max_tokens`. Where ids and log-probabilities are
asked for, all of it is, since whoever reads them must know what they are of. `top_k` 0 (off) is
left out at OpenAI itself, which does not know the field. An option that a server refuses is left
out where that means the same. No policy of this engine learns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from gem_ma.engines.api.messages import chat
from gem_ma.engines.api.reply_cache import ReplyCache
from gem_ma.engines.api.thoughts import Thoughts
from gem_ma.engines.endpoint.endpoint import (
    OPENAI_KEY,
    OPENAI_URL,
    Budget,
    Endpoint,
    Price,
    check_priced,
    guess_tokens,
    is_openai,
    tell_place,
    together,
    whereabouts,
)
from gem_ma.engines.endpoint.faults import Fault
from gem_ma.engines.endpoint.remote import Read, Remote, Service
from gem_ma.engines.endpoint.reply import read
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Message, Reply, Request, Sampling, Unsaid, Usage
from gem_ma.system.options import flat

PATH = "/chat/completions"
TINY = Request("user", (Message("Say ok."),), sampling=Sampling(max_tokens=16))
SEED_BITS = 0x7FFFFFFF  # servers differ in the width of a seed; 31 bits fit all
SAMPLED = ("temperature", "top_p", "top_k")
NEUTRAL = {"temperature": 1, "top_p": 1, "top_k": 0}  # what leaving it out means as well
RESERVED = frozenset({"messages", "model", "stream", "n"})  # of a body, set by the engine alone


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server understands beside the plain request, and what it is asked for.

    `tools: text` writes tools into the prompt and reads calls from text, for servers without them.
    `token_ids` asks for ids and log-probabilities (vLLM). `extra_body` goes into the request as it
    is. `send_reasoning`: the field under which the model's reasoning is sent back with its own
    messages, None = it is not. `reasoning_effort` (low, medium, high ...) and
    `chat_template_kwargs` (vLLM, SGLang) are sent as they are, None = they are not.
    """

    stream: bool = False
    tools: Literal["native", "text"] = "native"
    token_ids: bool = False
    extra_body: dict[str, Any] | None = None
    send_reasoning: Literal["reasoning_content", "reasoning"] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def check(self, where: str) -> None:
        """Raises ConfigError for a value that is none of the choice."""
        if self.tools not in ("native", "text"):
            raise ConfigError(f"{where}: tools is native or text; got {self.tools!r}")
        if self.send_reasoning not in (None, "reasoning_content", "reasoning"):
            raise ConfigError(
                f"{where}: send_reasoning is reasoning_content, reasoning or null; got"
                f" {self.send_reasoning!r}"
            )
        clash = sorted(RESERVED & set(self.extra_body or ()))
        if clash:
            raise ConfigError(
                f"{where}: extra_body may not hold {clash[0]!r}, which the engine sets itself"
            )


class OpenAI:
    """`openai/<model>` at an OpenAI-compatible endpoint.

    `endpoint`: where it is, see `Endpoint`; without `base_url` where OPENAI_BASE_URL says, else at
    OpenAI itself. There the key is in OPENAI_API_KEY, elsewhere there is none. `dialect`: see
    `Dialect`. `price: {input, output}` is USD per million tokens. `cache`: a folder of replies by
    (request, seed). A config names the fields of both objects: `base_url: ...`, `tools: text`.

    `budget` and `offline` (no key is read, nothing is sent) come from the caller, not from a
    config.

    Raises ConfigError for options that do not fit, and for a key that is not set.
    """

    # what a config does not name is the server's own
    config_defaults: Mapping[str, Any] = dict.fromkeys(SAMPLED)
    seeded = False
    # A play in which every reply was empty has failed: broken servers answer so, models do not.
    silence_fails = True
    way: ClassVar[type[Remote]] = Remote

    @flat
    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        endpoint: Endpoint = Endpoint(),  # noqa: B008  (frozen)
        dialect: Dialect = Dialect(),
        price: dict[str, Any] | Price | None = None,
        cache: str | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.name = name
        self.policy = policy
        self.where = f"policy {policy!r}"
        if endpoint.base_url is None:
            named: dict[str, Any] = {"base_url": OPENAI_URL}
            endpoint = replace(endpoint, **(named | self.whereabouts(asdict(endpoint))))
        usual_key = OPENAI_KEY if endpoint.base_url == OPENAI_URL else ""
        # all at once: who runs the command again after each would need many tries
        together(
            self._check_name,
            lambda: dialect.check(self.where),
            lambda: check_priced(self.where, Price.of(price, self.where), budget),
            lambda: endpoint.checked(self.where, PATH),
            lambda: endpoint.key(self.where, usual_key),
        )
        hint = "correct the name after openai/"
        self.price = Price.of(price, self.where)
        self.budget = budget
        self.remote = self.way(
            self.where,
            endpoint,
            Service(name, PATH, hint, usual_key, self._hint),
            price=self.price,
            budget=budget,
        )
        self.base_url = self.remote.base_url
        tell_place(self.where, self.base_url)
        self.dialect = dialect
        self.extra_body = dict(dialect.extra_body or {})
        self.thoughts = Thoughts()
        self.cache = ReplyCache(cache) if cache else None
        # What this server refused, in every later request: see `_adapt`. OpenAI's own servers take
        # no `max_tokens` for models that think, and know no `top_k`.
        at_openai = is_openai(self.base_url)
        self._renamed = {"max_tokens": "max_completion_tokens"} if at_openai else {}
        self._left_out = {"top_k"} if at_openai else set()
        self._guess = 1.0  # tokens that a prompt has per token that was guessed, at most so far

    @staticmethod
    def whereabouts(options: Mapping[str, Any]) -> dict[str, str]:
        """See `Findable`."""
        return whereabouts(options)

    def _check_name(self) -> None:
        if not self.name:
            raise ConfigError(
                f"{self.where}: the model has no name; write openai/<name of the model at the"
                " server>"
            )

    # -- one request ------------------------------------------------------------------------------

    async def sample(self, request: Request) -> Reply:
        """One answer. Raises EngineError where this request failed, EndpointError where all
        would, BudgetError where `limits:` are reached."""
        body = self.body(request)
        policy = request.policy or self.policy
        key = ""
        bought = None
        if self.cache is not None:
            key = self.cache.key({"base_url": self.base_url, **body}, request.seed)
            bought = self.cache.get(key)
        reply = replace(bought or await self._paid(request, body), policy=policy)
        if (
            self.cache is not None
            and bought is None
            # silence may be a fault of the server, and an overflow ends when its context grows:
            # neither shall be the answer for ever
            and reply.finish != "context_overflow"
            and not reply.silent
        ):
            self.cache.put(key, reply)
        self.recall(request, reply)
        return reply

    def recall(self, request: Request, reply: Reply) -> None:
        """A reply, just sampled or out of a record: what was thought for it goes along with the
        next requests of its conversation."""
        if self.dialect.send_reasoning is not None:
            self.thoughts.keep(request, reply)

    def forget(self) -> None:
        """See `Remembers`: nothing is computed ahead here."""

    def drawn(self) -> dict[str, int]:
        """See `Configured`: no weights are drawn here."""
        return {}

    def usd(self, prompt: int, completion: int) -> float | None:
        """See `Priced`."""
        return None if self.price is None else self.price.of_usage(Usage(prompt, completion))

    def body(self, request: Request) -> dict[str, Any]:
        """The request's JSON, before anything that a server refuses is left out."""
        how = request.sampling
        native = self.dialect.tools == "native"
        name = self.dialect.send_reasoning
        thoughts: dict[int, dict[str, str]] = {}
        if name is not None:
            thoughts = {place: {name: text} for place, text in self.thoughts.of(request).items()}
        messages = chat(
            request.agent, request.messages, request.tools, native=native, beside=thoughts
        )
        body: dict[str, Any] = {"model": self.name, "messages": messages}
        drawn = {name: getattr(how, name) for name in SAMPLED}
        body |= {
            name: value
            for name, value in drawn.items()
            if value is not None and (self.dialect.token_ids or not isinstance(value, Unsaid))
        }
        body |= {"max_tokens": how.max_tokens, "seed": request.seed & SEED_BITS}
        body |= {
            name: value
            for name in ("reasoning_effort", "chat_template_kwargs")
            if (value := getattr(self.dialect, name)) is not None
        }
        if how.stop:
            body["stop"] = list(how.stop)
        if request.tools and native:
            body["tools"] = [tool.schema for tool in request.tools]
        if self.dialect.token_ids:
            body |= {"logprobs": True, "return_token_ids": True}
        if self.dialect.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | self.extra_body  # last: what a user writes holds

    @cached_property
    def _tiny(self) -> dict[str, Any]:
        """What shows whether the server is there."""
        return self.body(TINY)

    async def _paid(self, request: Request, body: dict[str, Any]) -> Reply:
        guessed = 1
        if self.budget is not None:
            read_there = [body["messages"], body.get("tools")]
            guessed = guess_tokens(json.dumps(read_there, ensure_ascii=False))
        how = self._read(bool(request.tools))
        # `extra_body` may name either
        most = (
            body.get("max_completion_tokens") or body["max_tokens"] or request.sampling.max_tokens
        )
        # a function for the body: what a server refused is left out from the next try on
        reply = await self.remote.tried(
            lambda: self._adapted(body),
            how,
            self._adapted(self._tiny),
            adapt=self._adapt,
            cost=(math.ceil(guessed * self._guess), most),
        )
        # the worst ratio so far: a claim that is too small would spend more than the limit
        if self.budget is not None:
            self._guess = max(self._guess, (reply.usage.prompt_tokens or 0) / guessed)
        return reply

    def _read(self, tools: bool) -> Read:
        in_text = self.dialect.tools == "text" and tools
        return lambda body: read(body, tools_in_text=in_text, ids_wanted=self.dialect.token_ids)

    # -- what servers differ in -------------------------------------------------------------------

    def _adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        if not self._renamed and not self._left_out:
            return body
        return {
            self._renamed.get(key, key): value
            for key, value in body.items()
            if key not in self._left_out or key in self.extra_body
        }

    def _adapt(self, fault: Fault, sent: dict[str, Any]) -> bool:
        """True where the server refused an option that has an equal: what was meant stays the
        same. Remembered for all later requests."""
        if fault.kind != "request":
            return False
        if "max_completion_tokens" in fault.detail and "max_tokens" in sent:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return True
        for option in ("top_k", "top_p", "temperature", "seed", "stream_options"):
            # what cuts or sharpens cannot be left out in silence
            equal = sent.get(option) == NEUTRAL.get(option, sent.get(option))
            if (
                option in sent
                and equal
                and option not in self.extra_body
                and re.search(rf"\b{option}\b", fault.sentence)
            ):
                self._left_out.add(option)
                return True
        return False

    def _hint(self, fault: Fault) -> str:
        for option in (*SAMPLED, "reasoning_effort", "chat_template_kwargs"):
            if re.search(rf"\b{option}\b", fault.sentence):
                return f"{option}: null leaves it out"
        if self.dialect.tools == "native" and "tool" in fault.detail.casefold():
            return "a server that knows no tools takes tools: text"
        return ""

    async def ping(self) -> Reply:
        """One tiny request, tried few times: shows that address, key and model are right. Raises
        EngineError."""
        return await self.remote.tried(
            lambda: self._adapted(self._tiny),
            self._read(False),
            self._adapted(self._tiny),
            adapt=self._adapt,
            attempts=3,
        )
