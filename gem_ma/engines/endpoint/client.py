"""The client of one HTTP endpoint, shared by all policies on it: its limit on requests at once, and
one attempt as a function.

It knows headers and bytes; aiohttp speaks HTTP. What comes back is a body under a byte cap, or a
`Fault`, in the server's words: whoever reads on takes the key out of them (`hiding`).

A connection carries one request. Where a server or a proxy answers twice, the second answer would
be taken for that of the next request on the same connection, and nobody could tell: it may come at
any time, also after the next request was sent. The price is a handshake per request. What requests
share is closed with the last of those under way: nothing is left open, or used on another loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from gem_ma.engines.endpoint.endpoint import is_openai
from gem_ma.engines.endpoint.faults import Fault, of_status
from gem_ma.engines.endpoint.hiding import Secret

CONNECT_S = 5.0
PARTIAL = 206
ERROR_BYTES = 64 * 1024  # of an error's body that are read
PACKED_BYTES = 2 * 1024 * 1024  # of a body that came compressed, decoded
OPENAI_HEADERS = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
# headers that frame a request; no environment variable may set them
FRAMING = ("host", "connection", "content-type", "content-length", "transfer-encoding")


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
    """What goes to one (base_url, key) on one event loop."""

    def __init__(self, base_url: str, key: Secret, concurrency: int) -> None:
        self.base_url = base_url
        self.key = key
        self.limiter = Limiter(concurrency)
        self.answered = 0  # responses of any status, ever
        self._trust = _trust() if base_url.startswith("https:") else True
        self._headers = _headers(key, base_url)
        self._session: Any = None
        self._under_way = 0

    async def post(
        self, path: str, body: dict[str, Any] | None, *, timeout_s: float, most_bytes: int
    ) -> tuple[bytes, str]:
        """(body, content type) of a success; without a body it is a GET. Raises Fault; the
        deadline holds for the whole attempt, however slowly bytes drip.
        """
        import aiohttp  # a fifth of a second, for those alone who ask a server

        method = "GET" if body is None else "POST"
        # plain bytes of more than a megabyte would raise a warning
        sent = None if body is None else io.BytesIO(_bytes(body))
        # a whole address is one of this server
        address = path if "://" in path else self.base_url + path
        # No cause is chained, since its frames hold the request with the key.
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._shared() as session,
                session.request(method, address, data=sent, allow_redirects=False) as response,
            ):
                self.answered += 1
                return await _whole(response, most_bytes)
        except TimeoutError:
            raise Fault("transport", f"no whole reply within {timeout_s:g} s") from None
        except aiohttp.ClientResponseError as error:
            # what follows a colon is a piece of the answer, cut anywhere
            raise Fault("transport", error.message.partition(":")[0]) from None
        # ValueError: a name that no host can have
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # of a connection, what failed below: the library's own text shows objects of its own
            cause = getattr(error, "os_error", getattr(error, "certificate_error", error))
            raise Fault("transport", f"{type(cause).__name__}: {cause}") from None

    @asynccontextmanager
    async def _shared(self) -> AsyncIterator[Any]:
        """The session of all requests under way; the last of them closes it."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=0, ssl=self._trust),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S),
            )
        session = self._session
        self._under_way += 1
        try:
            yield session
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._session = None
                await session.close()


async def _whole(response: Any, most_bytes: int) -> tuple[bytes, str]:
    """(body, content type) of a success, decoded. Raises Fault, and what aiohttp raises for a body
    that broke off."""
    import aiohttp

    status = response.status
    headers = response.headers
    if status == PARTIAL:
        raise Fault("bad_reply", "a part of a reply, which was not asked for", status=PARTIAL)
    succeeded = 200 <= status < 300
    most = most_bytes if succeeded else ERROR_BYTES
    if "content-encoding" in headers:
        # A few kilobytes on the wire may stand for gigabytes: aiohttp decodes a piece at a time,
        # and no more is asked for than is wanted.
        most = min(most, PACKED_BYTES)
    body = bytearray()
    try:
        async for part in response.content.iter_any():
            body += part
            if len(body) > most:
                break
    except aiohttp.ClientPayloadError:
        # an error's body may be cut and broken: its beginning says enough
        if succeeded:
            raise
    if not succeeded:
        raise of_status(status, headers, body[:most].decode("utf-8", "replace"))
    if len(body) > most:
        raise Fault("bad_reply", f"the body is longer than {most} bytes", status=status)
    return bytes(body), headers.get("content-type", "")


def _bytes(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _trust() -> ssl.SSLContext:
    """Whose certificates are taken: of SSL_CERT_FILE or SSL_CERT_DIR, else of certifi where it is
    installed, else of the system."""
    # reading the roots costs more than a hundred requests: once a client, and never without TLS
    if "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ:
        return ssl.create_default_context()
    try:
        import certifi
    except ImportError:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())


def _headers(key: Secret, base_url: str) -> dict[str, str]:
    """What every request says. Only OpenAI itself may see what OPENAI_ORG_ID, OPENAI_PROJECT_ID
    and OPENAI_CUSTOM_HEADERS name."""
    named: dict[str, str] = {}
    if is_openai(base_url):
        for header, variable in OPENAI_HEADERS.items():
            if os.environ.get(variable):
                named[header] = os.environ[variable]
        for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip().lower() not in FRAMING:
                named[name.strip().lower()] = value.strip()
    if key.value:
        named["authorization"] = f"Bearer {key.value}"
    # last: a header of the environment may not replace them
    return named | {
        "accept": "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "gem_ma",
    }


# (address, digest of the key) -> client: a key itself is not part of a name that is kept
Clients = dict[tuple[str, str], Client]
_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, Clients] = WeakKeyDictionary()


async def client_of(base_url: str, key: Secret, concurrency: int) -> Client:
    """The client of this address and key on the running loop; all who name it share its
    connections and its limit."""
    loop = asyncio.get_running_loop()
    clients = _OPEN.setdefault(loop, {})
    place = (base_url, hashlib.sha256(key.value.encode()).hexdigest())
    client = clients.get(place)
    if client is None:
        client = clients[place] = Client(base_url, key, concurrency)
    client.limiter.cap(concurrency)
    return client
