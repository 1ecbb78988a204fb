"""An HTTP endpoint as a config names it: where it is, its key, and how patiently it is asked.

Values and their check; nothing is opened here, and no client library is known.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from gem_ma.engines.endpoint.hiding import LEAST, Secret
from gem_ma.kernel.errors import ConfigError
from gem_ma.system.env_file import NAME as ENV_FILE
from gem_ma.system.env_file import NO_SECRET, is_written, variable

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
# variables that name another address for OpenAI's API; the second is what older clients read
ADDRESSES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
EACH = 3  # times that one of several servers is tried before another one is asked
MOST_BYTES = 32 * 1024 * 1024  # of a reply's body
NO_KEY = "EMPTY"  # what servers without a key are sent

_WARNED: set[str] = set()  # addresses with a short key, and those of the environment


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, a key, and the patience with it.

    `base_url`: up to and with `/v1`; several are for engines that know what to do with them.
    `api_key_env`: the NAME of the variable that holds the key; `api_key`: the key itself, as
    `${env:NAME}` brings it. `timeout_s` cuts one attempt, `attempts` and `wall_s` one request.
    `concurrency`: requests at once, shared by all policies of the endpoint. `most_bytes`: of a
    reply's body. `offline`: no key is read and nothing is sent.
    """

    base_url: str | list[str] | None = None
    api_key_env: str | None = None
    api_key: str | None = field(default=None, repr=False)  # a traceback may show this object
    timeout_s: float = 120.0
    attempts: int = 12
    wall_s: float = 300.0
    concurrency: int = 32
    most_bytes: int = MOST_BYTES
    offline: bool = False

    def checked(self, where: str, path: str) -> Endpoint:
        """The same with the address in its plain form: without a slash or `path` at its end.
        Raises ConfigError for a number that is not above 0, and for an address that is none."""
        address = _address(self.base_url, where).removesuffix(path)
        for name in ("timeout_s", "wall_s", "attempts", "concurrency", "most_bytes"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{where}: {name} must be above 0; got {value}")
        return replace(
            self,
            base_url=address,
            timeout_s=float(self.timeout_s),
            attempts=int(self.attempts),
            wall_s=float(self.wall_s),
            concurrency=int(self.concurrency),
        )

    def key_name(self, usual: str = "") -> str:
        """The variable that holds the key, "" for none; `usual` where the config names no key."""
        return self.api_key_env or ("" if self.api_key else usual)

    def key(self, where: str, usual: str = "") -> Secret:
        """The key, or what stands for none. Raises ConfigError where it is not set, named twice,
        or holds letters that no key has."""
        name = self.key_name(usual)
        if self.offline:  # a check of a config on a machine that has no key
            return Secret(NO_KEY)
        if self.api_key and name:
            raise ConfigError(f"{where}: api_key and api_key_env both name a key; keep one")
        if name and not variable(name):
            elsewhere = (
                "; a server of your own is named by base_url, or --base-url" if usual else ""
            )
            raise ConfigError(
                f"{where}: the environment variable {name} is not set; export the key, write it"
                f" into {ENV_FILE} here, or name another with api_key_env{elsewhere}"
            )
        # a line end of `$(cat file)` would make an invalid header, whose error shows the key
        key = (variable(name) if name else self.api_key or NO_KEY).strip()
        holder = f"the key in {name or 'api_key'}"
        if not key.isascii() or not key.isprintable() or " " in key or not key:
            raise ConfigError(
                f"{where}: {holder} holds white space or letters that no key has; export it anew"
            )
        # once per address: every policy and every worker opens the same endpoint
        if len(key) < LEAST and key not in NO_SECRET and str(self.base_url) not in _WARNED:
            _WARNED.add(str(self.base_url))
            short = f"{holder} has less than {LEAST} characters and may be a word"
            logging.getLogger("gem_ma").warning(
                "%s: %s, so it is not hidden where the server repeats it", where, short
            )
        return Secret(key)


def whereabouts(options: Mapping[str, Any]) -> dict[str, str]:
    """Where OpenAI's API is by the environment: `base_url`, and `api_key_env` where there is a key
    for it; {} where the environment says nothing, or the options name an address.

    Raises ConfigError rather than send a key to a host that it was not given for.
    """
    name = next((name for name in ADDRESSES if variable(name)), "")
    if not name or options.get("base_url") is not None:
        return {}
    address = _address(variable(name), name)
    if address == OPENAI_URL:
        return {}
    if options.get("api_key") or options.get("api_key_env") not in (None, OPENAI_KEY):
        raise ConfigError(
            f"{name} is set, and the key of this policy may be for another server; name base_url"
            " beside the key"
        )
    if is_written(name) and os.environ.get(OPENAI_KEY):
        raise ConfigError(
            f"{name} stands in {ENV_FILE} and {OPENAI_KEY} in the environment, so the key may be"
            f" for another server; write both into {ENV_FILE}, or export both"
        )
    key = {"api_key_env": OPENAI_KEY} if variable(OPENAI_KEY) else {}
    return {"base_url": address, **key}


def tell_place(where: str, base_url: str) -> None:
    """Says once where requests go, where nothing but the environment says so."""
    name = next((name for name in ADDRESSES if variable(name)), "")
    if not name or variable(name).rstrip("/") != base_url or f"{name} {base_url}" in _WARNED:
        return
    _WARNED.add(f"{name} {base_url}")
    logging.getLogger("gem_ma").warning("%s: its model is at %s (%s)", where, base_url, name)


def together(*checks: Callable[[], object]) -> None:
    """Makes all checks. Raises one ConfigError with the lines of all that fail."""
    lines: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            lines.append(str(error))
    if lines:
        raise ConfigError("\n".join(lines))


def single(endpoint: Endpoint, where: str) -> list[Endpoint]:
    """The endpoints of all addresses. Raises ConfigError for a list that is empty, or names one
    twice."""
    named = endpoint.base_url
    addresses = list(named) if isinstance(named, (list, tuple)) else [named]
    # one server under two spellings would be published to twice, and count for two
    if not addresses or len({_server(each, where) for each in addresses}) < len(addresses):
        raise ConfigError(f"{where}: base_url lists different addresses, at least one of them")
    # then the next one is asked: a request starts over at another server, not after a long wait
    attempts = endpoint.attempts if len(addresses) == 1 else min(endpoint.attempts, EACH)
    return [replace(endpoint, base_url=each, attempts=attempts) for each in addresses]


def host_of(base_url: str) -> str:
    """Host and port of an address, for messages."""
    return urlsplit(base_url).netloc


def is_openai(base_url: str) -> bool:
    """True at OpenAI itself, and at its models on Azure."""
    host = urlsplit(base_url).hostname or ""
    return host == "api.openai.com" or host.endswith((".openai.com", ".openai.azure.com"))


def _server(base_url: object, where: str) -> tuple[str, str, int, str]:
    """What is the same for all spellings of an address."""
    parts = urlsplit(_address(base_url, where))
    host = (parts.hostname or "").rstrip(".")  # in lower case already
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, "127.0.0.1" if host == "localhost" else host, port, parts.path


def _address(base_url: object, where: str) -> str:
    """The address without a slash at its end. Raises ConfigError for what is none, or would show
    a key."""
    if isinstance(base_url, (list, tuple)):
        raise ConfigError(
            f"{where}: base_url is one address here; several with the same weights are for"
            " model: vllm/..."
        )
    try:
        # reading `port` raises for one that is not a number
        parts = urlsplit(base_url if isinstance(base_url, str) else "")
        fits = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        fits = False
    if not fits or not isinstance(base_url, str):
        # not repeated: it may hold a key
        raise ConfigError(f"{where}: base_url is an address such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{where}: base_url may hold no user, password or query, which would be logged; name"
            " the key with api_key_env"
        )
    return base_url.rstrip("/")
