"""The litellm engine: any of the providers that the library LiteLLM knows, `litellm/PROVIDER/NAME`.

The library finds the provider's address, writes the request in its form and the answer in OpenAI's.
Everything else is that of the openai engine: what is recorded, budgets, the cache of replies, and
what a failure means and when it is tried again. The library's retries, fallbacks, telemetry,
prints and its list of prices from the network are off.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from gem_ma.engines.api.openai import Dialect, OpenAI
from gem_ma.engines.endpoint.client import Limiter
from gem_ma.engines.endpoint.endpoint import NO_KEY, Budget, Endpoint, Price, Secret
from gem_ma.engines.endpoint.faults import Fault, of_status
from gem_ma.engines.endpoint.remote import Remote
from gem_ma.kernel.errors import ConfigError
from gem_ma.system.env_file import variable
from gem_ma.system.extras import install
from gem_ma.system.options import flat

# its errors by name -> the code of OpenAI's that says the same, for `of_status`
CODES = {
    "ContextWindowExceededError": "context_length_exceeded",
    "ContentPolicyViolationError": "content_policy_violation",
    "NotFoundError": "model_not_found",
}
KNOWN = ".litellm"  # ends the name of a host whose address the library knows; for messages
NOT_THERE = ("Timeout", "APIConnectionError")


class Way:
    """What stands for the connections to one provider with one key, on one event loop: a limit on
    requests at once, and one attempt as a function. See `client.Client`."""

    def __init__(self, base_url: str, key: Secret, concurrency: int) -> None:
        self.key = key
        self.limiter = Limiter(concurrency)
        self.answered = 0
        # an address that the config names; else the library knows the provider's
        self.address = {} if base_url.endswith(KNOWN) else {"api_base": base_url}

    async def post(
        self,
        path: str,
        body: dict[str, Any] | None,
        *,
        timeout_s: float,
        most_bytes: int,
        keep: bool = False,
    ) -> tuple[bytes, str]:
        """(body, content type) of an answer, in OpenAI's form; the library has connections of its
        own, whatever `keep` says. Raises Fault."""
        litellm = import_litellm("")
        key = {} if self.key.value == NO_KEY else {"api_key": self.key.value}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await litellm.acompletion(
                    **(body or {}),
                    **key,
                    **self.address,
                    timeout=timeout_s,
                    # ours are recorded, and wait as long as a config says
                    num_retries=0,
                    max_retries=0,
                )
        except TimeoutError:
            raise Fault("transport", f"no whole reply within {timeout_s:g} s") from None
        # the library raises what it cannot name as it comes from below; no cause is chained, since
        # its frames hold the key
        except Exception as error:
            fault = _fault(error)
            self.answered += fault.kind != "transport"
            raise fault from None
        self.answered += 1
        text = answer.model_dump_json().encode()
        if len(text) > most_bytes:
            raise Fault("bad_reply", f"a reply of more than {most_bytes} bytes", status=200)
        return text, "application/json"


def _fault(error: Exception) -> Fault:
    """What an error of the library means here."""
    name = type(error).__name__
    words = str(error)
    status = getattr(error, "status_code", None)
    # a server that cannot be reached has a status too, 500
    if name in NOT_THERE or "Connection error" in words or not isinstance(status, int):
        return Fault("transport", words or name)
    # its client refuses to send, in a 500 that would be tried again
    if "Missing credentials" in words:
        status = 401
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    said = {"message": words, "code": CODES.get(name, "")}
    return of_status(status, headers, json.dumps({"error": said}))


_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], Way]] = (
    WeakKeyDictionary()
)


class Through(Remote):
    """A policy's way to a provider through the library."""

    def import_client(self) -> None:
        """Raises ConfigError where the library is missing."""
        import_litellm(self.where)

    async def client(self) -> Any:
        """The way on the running loop, shared by all policies of the provider and key."""
        ways = _OPEN.setdefault(asyncio.get_running_loop(), {})
        place = (self.base_url, hashlib.sha256(self._key.value.encode()).hexdigest())
        way = ways.get(place)
        if way is None:
            way = ways[place] = Way(self.base_url, self._key, self.endpoint.concurrency)
        way.limiter.cap(self.endpoint.concurrency)
        return way


class LiteLLM(OpenAI):
    """`litellm/<provider>/<model>`, for example `litellm/anthropic/claude-haiku-4-5`.

    `endpoint`: see `Endpoint`; without `base_url` the library knows the address, and without
    `api_key_env` the key is the variable that it names for the provider. `dialect`: see `Dialect`;
    answers come whole and without token ids. `price`, `cache`, `budget`: as at `openai/`.

    Raises ConfigError for a provider that the library does not know, options that do not fit, a
    key that is not set, and where the litellm extra is missing.
    """

    way: ClassVar[type[Remote]] = Through

    # the library knows the address of each provider
    whereabouts = None  # type: ignore[assignment]

    @flat
    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        endpoint: Endpoint = Endpoint(),  # noqa: B008  (frozen)
        dialect: Dialect = Dialect(),  # noqa: B008
        price: dict[str, Any] | Price | None = None,
        cache: str | None = None,
        budget: Budget | None = None,
    ) -> None:
        where = f"policy {policy!r}"
        if dialect.stream or dialect.token_ids:
            raise ConfigError(f"{where}: stream and token_ids are for openai/ and vllm/ models")
        provider = _provider(name, where)
        if endpoint.base_url is None:
            endpoint = replace(endpoint, base_url=f"https://{provider}{KNOWN}")
        if not endpoint.api_key and not endpoint.api_key_env and not endpoint.offline:
            endpoint = replace(endpoint, api_key_env=_key_name(name, provider))
        options = {"price": price, "cache": cache, "budget": budget}
        super().__init__(name, policy=policy, endpoint=endpoint, dialect=dialect, **options)


def _provider(name: str, where: str) -> str:
    """The provider of a model's name. Raises ConfigError for one that the library knows not."""
    try:
        return str(import_litellm(where).get_llm_provider(name)[1])
    except ConfigError:
        raise
    except Exception:  # its error is a page of advice
        raise ConfigError(
            f"{where}: LiteLLM knows no provider of {name!r}; write litellm/PROVIDER/NAME, as in"
            " litellm/anthropic/claude-haiku-4-5"
        ) from None


def _key_name(name: str, provider: str) -> str | None:
    """The variable of a key; None where the provider wants none, or several (a cloud's account),
    which the library then reads itself."""
    missing = import_litellm("").validate_environment(model=name)["missing_keys"]
    if len(missing) == 1:
        # of this folder's .env file, or a message that names it
        return str(missing[0])
    usual = f"{provider.upper()}_API_KEY"
    return usual if variable(usual) else None


def import_litellm(where: str) -> Any:
    """The library, silent. Raises ConfigError that names the extra."""
    # before its first import: it would fetch a list of prices, and read .env files on its own
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    try:
        import litellm
    except ImportError as error:
        raise ConfigError(
            f"{where}: the litellm engine needs its library ({error.name or error}):"
            f" {install('litellm')}"
        ) from error
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    # it would put its own words between ours, and keys into them
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    return litellm
