"""One request and its answer over a connection of its own, on asyncio's sockets: h11 reads and
writes the protocol. It knows no JSON, no key and no fault.

A general client (httpx, and the `openai` library above it) costs two milliseconds of the processor
for a request; this one a quarter of that. What it leaves out is what must not happen here anyway:
proxies, redirects, cookies, pools, retries.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

HELD = 1 << 18  # bytes that wait to be read before the socket is left alone
HEAD = 100 * 1024  # bytes of a status line with its headers
SECOND_ADDRESS_S = 0.25  # of a name with several: when the next one is tried beside (RFC 8305)
SWITCHING = 101
PATH_LETTERS = "/%:@!$&'()*+,;=~-._"


class BrokenAnswer(Exception):
    """What came is not an answer of HTTP, or not a whole one."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests go, out of an address. Raises UnicodeError for a name that no host can
    have."""

    host: str
    port: int
    named: str  # of the header Host
    trust: ssl.SSLContext | None

    @classmethod
    def of(cls, base_url: str, trust: ssl.SSLContext) -> Place:
        """The place of an address; without TLS, `trust` is not used."""
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        secure = parts.scheme == "https"
        if not host.isascii():
            host = host.encode("idna").decode()
        usual = 443 if secure else 80
        port = parts.port or usual
        named = f"[{host}]" if ":" in host else host
        if port != usual:
            named += f":{port}"
        return cls(host, port, named, trust if secure else None)


def target_of(address: str) -> str:
    """What a request to this address asks for: its path and its query."""
    parts = urlsplit(address)
    query = f"?{quote(parts.query, safe=PATH_LETTERS + '?')}" if parts.query else ""
    return quote(parts.path, safe=PATH_LETTERS) + query


class Pipe(asyncio.Protocol):
    """The bytes that come, kept until they are read. What came before a connection broke is read
    first: a server may answer and reset in one go."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._pieces.append(data)
        self._size += len(data)
        # memory stays flat, however fast a server sends
        if self._size > HELD and self.transport is not None:
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`."""
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._ended = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises OSError for a connection that broke."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiter = self._loop.create_future()
            await self._waiter
        paused = self._size > HELD
        self._size = 0
        data = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
        self._pieces.clear()
        if paused and self.transport is not None:
            self.transport.resume_reading()
        return data


class Exchange:
    """An async context: a connection, over which one request goes."""

    def __init__(self, place: Place, connect_s: float) -> None:
        import h11

        self._h11 = h11
        self._place = place
        self._connect_s = connect_s
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD)
        self.status_code = 0
        self.headers = dict[str, str]()

    async def __aenter__(self) -> Exchange:
        place = self._place
        more = dict[str, Any]()
        if place.trust is not None:
            more = {"ssl": place.trust, "server_hostname": place.host}
        if not _is_number(place.host):
            more["happy_eyeballs_delay"] = SECOND_ADDRESS_S
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_s):
            _, self._pipe = await loop.create_connection(Pipe, place.host, place.port, **more)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # at once, and without a farewell of TLS that nobody would wait for
        if self._pipe.transport is not None:
            self._pipe.transport.abort()

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> None:
        """Sends the request, and reads up to the end of the answer's headers. Raises
        BrokenAnswer, OSError."""
        h11 = self._h11
        state = self._state
        lines = [("host", self._place.named), *headers.items()]
        if method == "POST":
            lines.append(("content-length", str(len(body))))
        head = state.send(h11.Request(method=method, target=target, headers=lines))
        state.send(h11.Data(data=body))
        state.send(h11.EndOfMessage())
        assert self._pipe.transport is not None
        self._pipe.transport.write(head + body)
        while True:
            event = await self._event()
            if isinstance(event, h11.Response) or (
                isinstance(event, h11.InformationalResponse) and event.status_code == SWITCHING
            ):
                break
        self.status_code = event.status_code
        for name, value in event.headers:
            key = name.decode("latin-1")
            words = value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {words}" if key in self.headers else words

    @property
    def stream(self) -> AsyncIterator[bytes]:
        """The pieces of the body as they came. Raises BrokenAnswer, OSError."""
        return self._body()

    async def _body(self) -> AsyncIterator[bytes]:
        while self.status_code != SWITCHING:
            event = await self._event()
            if isinstance(event, self._h11.EndOfMessage):
                return
            if isinstance(event, self._h11.Data):
                yield bytes(event.data)

    async def _event(self) -> Any:
        h11 = self._h11
        state = self._state
        try:
            while (event := state.next_event()) is h11.NEED_DATA:
                data = await self._pipe.read()
                # h11 would call it an end in order, of a connection that was idle
                if not data and state.their_state is h11.SEND_RESPONSE:
                    raise BrokenAnswer("the server left without an answer")
                state.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise BrokenAnswer(f"{type(error).__name__}: {error}") from None
        return event


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
