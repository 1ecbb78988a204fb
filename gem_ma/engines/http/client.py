"""The client of one HTTP endpoint, shared by all policies on it: its limit on requests at once, and
one attempt as a function.

It knows the `openai` client library and bytes. The library's own retries are off and its lenient
reading of bodies is not used: what comes back is a body under a byte cap, or a `Fault`, in the
server's words: whoever reads on takes the key out of them (`hiding`).

A connection carries one request. Where a server or a proxy answers twice, the second answer would
be taken for that of the next request on the same connection, and nobody could tell: it may come at
any time, also after the next request was sent. The price is a handshake per request.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

from gem_ma.engines.http.body import ERROR_BYTES, unpacked
from gem_ma.engines.http.endpoint import is_openai
from gem_ma.engines.http.faults import Fault, of_status
from gem_ma.engines.http.hiding import Secret
from gem_ma.errors import ConfigError
from gem_ma.installing import install

CONNECT_S = 5.0
PARTIAL = 206


class Limiter:
    """At most `limit` at once, first come first served. Halves itself where most answers say
    "too many", grows back by one."""

    def __init__(self, limit: int) -> None:
        self.most = self.limit = limit
        self.running = self.seen = self.refused = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def cap(self, most: int) -> None:
        """Of several policies with limits of their own, the smallest holds."""
        self.most, self.limit = min(self.most, most), min(self.limit, most)

    async def __aenter__(self) -> None:
        # nobody overtakes those who wait
        if self.running < self.limit and not self._waiting:
            self.running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it has the place and cannot use it
                self._leave()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self.running -= 1
        while self._waiting and self.running < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled while it waited
                self.running += 1  # here, or a newcomer would take the place in between
                turn.set_result(None)

    def heard(self, refused: bool) -> None:
        """One answer; `refused`: it said "too many". A share of up to a half is taken as chance
        and changes nothing."""
        self.seen += 1
        self.refused += refused
        # judged once per round of `limit` answers: those that were under way together
        if self.seen >= self.limit:
            if 2 * self.refused > self.seen:
                self.limit = max(1, self.limit // 2)
            elif not self.refused:
                self.limit = min(self.most, self.limit + 1)
            self.seen = self.refused = 0


class Client:
    """The connections to one (base_url, key) on one event loop."""

    def __init__(self, base_url: str, key: Secret, concurrency: int) -> None:
        openai, httpx2 = import_client()
        self.base_url, self.key, self.limiter = base_url, key, Limiter(concurrency)
        self.answered = 0  # responses of any status, ever
        self._errors = (openai, httpx2)
        # No limit of its own: the limiter counts.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        # without the environment (below) httpx would not read these two either
        own_roots = "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ
        http = httpx2.AsyncClient(
            limits=limits,
            verify=ssl.create_default_context() if own_roots else True,
            trust_env=False,  # no proxy and no .netrc, which would send keys elsewhere
            follow_redirects=False,
            timeout=None,
            headers={"accept-encoding": "identity", "connection": "close"},
            event_hooks={"request": [_with_own_headers(key, base_url)], "response": [_cap_error]},
        )
        self.client = openai.AsyncOpenAI(
            api_key=key.value, base_url=base_url, max_retries=0, http_client=http
        )
        self._type = httpx2.Response
        self._timeout = httpx2.Timeout

    async def post(
        self, path: str, body: dict[str, Any] | None, *, timeout_s: float, most_bytes: int
    ) -> tuple[bytes, str]:
        """(body, content type) of a success; without a body it is a GET. Raises Fault; the
        deadline holds for the whole attempt, however slowly bytes drip.
        """
        openai, httpx2 = self._errors
        try:
            async with asyncio.timeout(timeout_s):
                options = {
                    # hands the response over unread
                    "headers": {"X-Stainless-Raw-Response": "stream"},
                    "timeout": self._timeout(
                        timeout_s, connect=min(CONNECT_S, timeout_s), pool=None
                    ),
                }
                if body is None:
                    response = await self.client.get(path, cast_to=self._type, options=options)
                else:
                    response = await self.client.post(
                        path, cast_to=self._type, body=body, options=options
                    )
                async with aclosing(response):
                    self.answered += 1
                    if response.status_code == PARTIAL:
                        raise Fault(
                            "bad_reply",
                            "a part of a reply, which was not asked for",
                            status=PARTIAL,
                        )
                    parts = [part async for part in unpacked(response, most_bytes, "refuse")]
                    return b"".join(parts), response.headers.get("content-type", "")
        # The order matters: the kinds of the library are nested. No cause is chained, since its
        # frames hold the request with the key.
        except openai.APIStatusError as error:
            self.answered += 1
            raise of_status(
                error.status_code, error.response.headers, error.response.text
            ) from None
        except (openai.APITimeoutError, TimeoutError):
            raise Fault("transport", f"no whole reply within {timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            raise Fault("transport", _cause(error)) from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise Fault("transport", f"{type(error).__name__}: {error}") from None
        except openai.OpenAIError as error:
            raise Fault("bad_reply", f"{type(error).__name__}: {error}") from None


def _with_own_headers(key: Secret, base_url: str) -> Callable[[Any], Awaitable[None]]:
    """The library adds headers that the environment names (OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS
    ...); only OpenAI itself may see those."""
    named = {
        line.partition(":")[0].strip().lower()
        for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()
    }
    foreign: set[str] = set()
    if not is_openai(base_url):
        # what no request can do without stays, whoever named it
        foreign = named | {"openai-organization", "openai-project"}
        foreign -= {"", "host", "content-type", "content-length"}

    async def hook(request: Any) -> None:
        for name in foreign:
            request.headers.pop(name, None)
        # last: a header of the environment may have replaced it
        request.headers["authorization"] = f"Bearer {key.value}"

    return hook


async def _cap_error(response: Any) -> None:
    """The library reads the bodies of errors whole; this puts the first bytes in their place,
    decoded already."""
    if response.status_code >= 300:
        body = b"".join([part async for part in unpacked(response, ERROR_BYTES, "cut")])
        # the rest of it is not waited for
        await response.stream.aclose()
        response.stream = import_client()[1].ByteStream(body)
        response.headers.pop("content-encoding", None)


def _cause(error: BaseException) -> str:
    """What broke the connection, in the words of the innermost exception that has some."""
    words = type(error).__name__
    inner: BaseException | None = error
    for _ in range(8):  # a chain of causes may be a ring
        inner = inner.__cause__ or inner.__context__ if inner is not None else None
        if inner is None:
            break
        words = f"{type(inner).__name__}: {inner}" if str(inner) else words
    return words


def import_client() -> tuple[Any, Any]:
    """(openai, httpx2). Raises ConfigError that names the extra."""
    try:
        import httpx2
        import openai
    except ImportError as error:
        raise ConfigError(
            f"the openai engine needs its client library ({error.name or error}): {install('api')}"
        ) from error
    for name in ("httpx2", "httpcore2"):  # these log whole addresses
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
    return openai, httpx2


# (address, digest of the key) -> client: a key itself is no part of a name that is kept
Clients = dict[tuple[str, str], Client]
_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, Clients] = WeakKeyDictionary()
_CLOSERS: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = (
    WeakKeyDictionary()
)


async def client_of(base_url: str, key: Secret, concurrency: int) -> Client:
    """The client of this address and key on the running loop; all who name it share its
    connections and its limit."""
    loop = asyncio.get_running_loop()
    clients = _OPEN.get(loop)
    if clients is None:
        clients = _OPEN[loop] = {}
        # A loop that ends closes its asynchronous generators: so the connections are closed on it,
        # whoever runs it.
        closer = _CLOSERS[loop] = _closing(loop, clients)
        await anext(closer)
    place = (base_url, hashlib.sha256(key.value.encode()).hexdigest())
    client = clients.get(place)
    if client is None:
        client = clients[place] = Client(base_url, key, concurrency)
    client.limiter.cap(concurrency)
    return client


async def _closing(loop: asyncio.AbstractEventLoop, clients: Clients) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _OPEN.pop(loop, None)
        _CLOSERS.pop(loop, None)
        for client in clients.values():
            await client.client.close()
