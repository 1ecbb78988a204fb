"""The client of one HTTP endpoint, shared by all policies on it: its limit on requests at once, and
one attempt as a function.

It knows headers and bytes; aiohttp speaks HTTP (`way`). What comes back is a body under a byte
cap, or a `Fault`, in the server's words: whoever reads on takes the key out of them (`hiding`).

A connection carries one request at a time, and a next one only where the server shows which request
an answer is of. Where a server or a proxy answers twice, the second answer would else be taken for
that of the next request, and nobody could tell: it may come at any time, also after the next
request was sent. So each request has a number of its own in `x-request-id`, and servers that repeat
it, in a header or as the answer's id, as vLLM does, keep their connections; an answer over one that
was kept and does not repeat the number is none. All others pay a handshake per request. Nothing
is left open when a loop ends, or used on another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator
from typing import Any
from weakref import WeakKeyDictionary

from gem_ma.engines.endpoint.endpoint import Secret, is_openai
from gem_ma.engines.endpoint.faults import Fault
from gem_ma.engines.endpoint.way import Way

OPENAI_HEADERS = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
_WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
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
        self._idle: deque[Way] = deque()
        self._ending: AsyncIterator[None] | None = None
        self._numbers = True  # answers say which request they are of, as far as is known
        self._single: Way | None = None
        self._under_way = 0

    async def post(
        self,
        path: str,
        body: dict[str, Any] | None,
        *,
        timeout_s: float,
        most_bytes: int,
        keep: bool = False,
    ) -> tuple[bytes, str]:
        """(body, content type) of a success; without a body it is a GET. Raises Fault; the
        deadline holds for the whole attempt, however slowly bytes drip. `keep`: it may go over a
        connection that is kept, and leave it for the next one.
        """
        method = "GET" if body is None else "POST"
        sent = None if body is None else _bytes(body)
        # a whole address is one of this server
        address = path if "://" in path else self.base_url + path
        way = await self._way(keep and self._numbers)
        before = way.answers
        again = False
        try:
            async with asyncio.timeout(timeout_s):
                content, kind, again = await way.ask(method, address, sent, most_bytes)
            return content, kind
        except TimeoutError:
            raise Fault("transport", f"no whole reply within {timeout_s:g} s") from None
        finally:
            self.answered += way.answers - before
            self._numbers = self._numbers and way.is_numbered
            await self._leave(way, again)

    async def _way(self, keep: bool) -> Way:
        """A kept connection over which nothing came since, a new one that may be kept, or what
        gives each request a connection of its own."""
        if not keep:
            # what opens connections is shared by the requests under way
            if self._single is None:
                self._single = Way(self._headers, self._trust, keep=False)
            self._under_way += 1
            return self._single
        while self._idle:
            way = self._idle.popleft()
            if way.is_quiet():
                return way
            await way.close()
        if self._ending is None:
            self._ending = self._closing()
            await anext(self._ending)
        return Way(self._headers, self._trust, keep=True)

    async def _leave(self, way: Way, again: bool) -> None:
        """A request is over; `again`: its connection may carry another one."""
        if way is self._single:
            self._under_way -= 1
            if self._under_way:
                return
            self._single = None
        if again and self._numbers:
            self._idle.append(way)
        else:
            await way.close()

    async def _closing(self) -> AsyncIterator[None]:
        """A generator that a loop which ends closes, with what it left open."""
        try:
            yield
        finally:
            self._ending = None
            while self._idle:
                await self._idle.popleft().close()


def _bytes(body: dict[str, Any]) -> bytes:
    return _WRITER.encode(body).encode("utf-8", "replace")


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
    place = (base_url, key.digest)
    client = clients.get(place)
    if client is None:
        client = clients[place] = Client(base_url, key, concurrency)
    client.limiter.cap(concurrency)
    return client
