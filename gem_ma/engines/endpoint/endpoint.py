"""An HTTP endpoint as a config names it: where it is, its key, how patiently it is asked, and what
it costs. Values and their check; nothing is opened here, and no client library is known.

A server may repeat the key that it was sent: in an answer, an error, a header, a redirect, split
over the pieces of a stream. So it is taken out of decoded strings, before anything is cut from
them: of an answer, of a fault, of a listing. What is looked for is the key itself, and what JSON,
addresses and base64 make of it. Keys of `LEAST` characters or more only: a shorter one may be a
word of the answer (`ollama`, `lm-studio`), and an answer is never changed for the sake of a word.

An unknown price is unknown, never 0: costs are None then, and a budget in USD refuses a policy
without a price. All policies share one budget.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from gem_ma.kernel.errors import BudgetError, ConfigError
from gem_ma.kernel.types import Usage
from gem_ma.system.env_file import NAME as ENV_FILE
from gem_ma.system.env_file import NO_SECRET, is_written, variable

LEAST = 16  # characters of a key that is hidden
HIDDEN = "***"
_ESCAPE = re.compile(r"[\\%]")


class Secret:
    """A key that shows itself to nobody but `value`."""

    __slots__ = ("_codes", "_pattern", "digest", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self.digest = hashlib.sha256(value.encode()).hexdigest()
        hidden = len(value) >= LEAST
        pattern = "".join(map(_written, value))
        self._pattern = re.compile(pattern, re.IGNORECASE) if hidden else None
        self._codes = _codes(value) if hidden else []

    def __repr__(self) -> str:
        return "Secret(***)"

    def hide(self, text: str) -> str:
        """The text without the key, in either case: headers come in lower case.

        >>> Secret("sk/0123456789abcdef").hide(r'"sk\\/0123456789abcdef", sk%2F0123456789ABCDEF')
        '"***", ***'
        """
        if self._pattern is None:
            return text
        # most texts hold neither, and the pattern is slow
        if self.value.lower() in text.lower() or _ESCAPE.search(text) is not None:
            text = self._pattern.sub(HIDDEN, text)
        for code in self._codes:
            text = text.replace(code, HIDDEN)
        return text

    def hide_in(self, value: Any) -> Any:
        """A JSON value without the key in any of its strings; keys of objects too."""
        if self._pattern is None:  # nothing is hidden, and a reply has hundreds of values
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(name): self.hide_in(inner) for name, inner in value.items()}
        return [self.hide_in(inner) for inner in value] if isinstance(value, list) else value


def _written(char: str) -> str:
    """What finds a character of a key: as itself, or escaped for JSON or an address, several times
    over. How often is bounded: without a bound, runs cost their square."""
    code = f"{ord(char):02x}"
    itself = re.escape(char)
    # possessive, so that runs of backslashes are tried once and not sixteen times
    run = r"\\{1,16}" + "+" * (char != "\\")
    return f"(?:{itself}|{run}(?:{itself}|u00{code})|%(?:25){{0,4}}{code})"


def _codes(value: str) -> list[str]:
    """What base64, in both of its alphabets, makes of the key wherever in a longer text it
    stands."""
    raw = value.encode("utf-8", "replace")
    made: list[str] = []
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # its ends depend on what stands beside
        inner = coded[-(-before * 4 // 3) : len(coded) - (1 if (before + len(raw)) % 3 else 0)]
        made += [inner, inner.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(made))


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


MILLION = 1_000_000
PRICE_KEYS = ("input", "output", "cached_input", "as_of")
BYTES_PER_TOKEN = 3.0  # of a guess that is rather too high


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens. `cached_input` None = as `input`; `as_of` says when somebody
    looked it up."""

    input: float
    output: float
    cached_input: float | None = None
    as_of: str = ""

    @classmethod
    def of(cls, written: Mapping[str, Any] | Price | None, where: str) -> Price | None:
        """A price out of a config's `price: {input, output, cached_input, as_of}`; None where
        there is none. Raises ConfigError."""
        if written is None or isinstance(written, Price):
            return written
        unknown = [key for key in written if key not in PRICE_KEYS]
        missing = [key for key in ("input", "output") if key not in written]
        if unknown or missing:
            what = f"unknown key {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
            raise ConfigError(
                f"{where}: price: {what}; it is {{input, output}} in USD per million tokens,"
                " cached_input and as_of if you like"
            )
        for key in ("input", "output", "cached_input"):
            value = written.get(key)
            if not _is_price(value) and not (value is None and key == "cached_input"):
                raise ConfigError(
                    f"{where}: price.{key} is USD per million tokens, 0 or more; got {value!r}"
                )
        cached = written.get("cached_input")
        return cls(
            float(written["input"]),
            float(written["output"]),
            None if cached is None else float(cached),
            str(written.get("as_of", "")),
        )

    def of_usage(self, usage: Usage) -> float | None:
        """USD of one reply; None where the server did not say how many tokens there were."""
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        # servers count cached tokens among those of the prompt; one may say more than there are
        cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
        read = (usage.prompt_tokens - cached) * self.input + cached * (
            self.input if self.cached_input is None else self.cached_input
        )
        return (read + usage.completion_tokens * self.output) / MILLION


def _is_price(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)  # `input: yes`
    return number and math.isfinite(value) and value >= 0


def guess_tokens(text: str) -> int:
    """A guess at the tokens of a prompt before a server counts them, rather too high than too
    low."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


@dataclass(slots=True)
class Claim:
    """What a running request may cost at most."""

    tokens: int
    usd: float


class Budget:
    """What one command may spend on models behind an endpoint, all policies together; None = no
    limit.

    A request claims what it may cost before it is sent and settles for what it did cost. A claim
    that does not fit waits for the running ones to settle; where none is running, it is refused,
    and so is every later one.
    """

    def __init__(self, *, tokens: int | None = None, usd: float | None = None) -> None:
        self.most_tokens = tokens
        self.most_usd = usd
        # spent
        self.tokens = 0
        self.usd = 0.0
        self.reached = ""  # in words, once a claim was refused
        self._claims: list[Claim] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def claim(self, tokens: int, price: Price | None, prompt: int) -> Claim:
        """Reserves `tokens`, `prompt` of them read. Raises BudgetError where they do not fit,
        and ConfigError for USD without a price."""
        if self.most_usd is not None and price is None:
            raise ConfigError(
                "limits.usd cannot be kept where a price is unknown; give the policy a price:"
                " {input, output} per million tokens"
            )
        usd = 0.0
        if price is not None:
            usd = (prompt * price.input + (tokens - prompt) * price.output) / MILLION
        claim = Claim(tokens, usd)
        # asked again after every wait: others may have claimed what was set free
        while not self._fits(claim):
            if self.reached or not self._claims:
                self.reached = self.reached or self._in_words(claim)
                raise BudgetError(self.reached)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._claims.append(claim)
        return claim

    def settle(self, claim: Claim, used: Iterable[Usage], price: Price | None) -> None:
        """Puts what a request did cost in the place of its claim: `used` is of each reply that
        came, the empty ones included. Where a server did not say, the claim stands, for each."""
        self._claims.remove(claim)
        for usage in used:
            if usage.prompt_tokens is None or usage.completion_tokens is None:
                self.tokens += claim.tokens
            else:
                self.tokens += usage.prompt_tokens + usage.completion_tokens
            # what a server does not count is taken for what it may have cost, never for nothing
            usd = price.of_usage(usage) if price is not None else 0.0
            self.usd += claim.usd if usd is None else usd
        waiting = self._waiting
        self._waiting = []
        for turn in waiting:
            # a budget outlives the loop of one rollout
            if not turn.done() and not turn.get_loop().is_closed():
                turn.set_result(None)

    def spend(self, tokens: int) -> None:
        """Takes tokens at once, of work that nobody waits for. Raises BudgetError, with nothing
        taken, where they do not fit."""
        claim = Claim(tokens, 0.0)
        if not self._fits(claim):
            self.reached = self.reached or self._in_words(claim)
            raise BudgetError(self.reached)
        self.tokens += tokens

    def _fits(self, claim: Claim) -> bool:
        if self.reached:
            return False
        tokens = sum(running.tokens for running in self._claims)
        usd = sum(running.usd for running in self._claims)
        if self.most_tokens is not None and self.tokens + tokens + claim.tokens > self.most_tokens:
            return False
        return self.most_usd is None or self.usd + usd + claim.usd <= self.most_usd

    def _in_words(self, claim: Claim) -> str:
        spent = []
        if self.most_tokens is not None:
            spent.append(f"limits.tokens is {self.most_tokens}, {self.tokens} are spent")
        if self.most_usd is not None:
            spent.append(f"limits.usd is {self.most_usd:g}, {self.usd:.4f} are spent")
        most = f"{claim.tokens} tokens" + (
            f", ${claim.usd:.4f}" if self.most_usd is not None else ""
        )
        return (
            f"the budget is reached: {' and '.join(spent)}; the next request may cost up to {most}"
        )


def check_priced(where: str, price: Price | None, budget: Budget | None) -> None:
    """Raises ConfigError for a limit in USD on a policy without a price."""
    if budget is not None and budget.most_usd is not None and price is None:
        raise ConfigError(
            f"{where}: limits.usd cannot be kept without its price; add price: {{input: ...,"
            " output: ...} (USD per million tokens)"
        )
