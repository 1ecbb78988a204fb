"""How requests go to a server: bytes out, a whole body or a `Fault` back, and whether the
connection may carry another request.

A connection that may be kept is a session of aiohttp with room for one connection, so that what is
learned of it is nobody else's: whether bytes came that nobody had asked for, and whether an answer
repeats the number of its request.
"""

from __future__ import annotations

import io
import itertools
import select
import ssl
import uuid
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from gem_ma.engines.endpoint.faults import Fault, of_status

CONNECT_S = 5.0
# that a connection lies idle: servers close theirs after 5 s, the most hurried we know of
KEPT_S = 2.0
OK = 200
PARTIAL = 206
ERROR_BYTES = 64 * 1024  # of an error's body that are read
PACKED_BYTES = 2 * 1024 * 1024  # of a body that came compressed, decoded
PLAIN = 1024 * 1024  # bytes of a request that aiohttp takes as they are, without a warning
NUMBER = "x-request-id"
STRAY = "what came over a kept connection does not say that it answers this request"
_RUN = uuid.uuid4().hex[:20]
_NUMBERS = itertools.count()


@cache
def _http() -> tuple[Any, Any]:
    """(aiohttp, a class of its requests that tell their way which connection they go over)."""
    import aiohttp  # a fifth of a second, for those alone who ask a server

    class Told(aiohttp.ClientRequest):
        def __init__(self, way: Way, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self._way = way

        async def send(self, conn: Any) -> Any:
            self._way._goes_over(conn.protocol)
            return await super().send(conn)

    return aiohttp, Told


class Way:
    """`keep`: over one connection, one request at a time; else each request has one of its own,
    and any number may be under way."""

    def __init__(
        self, headers: Mapping[str, str], trust: ssl.SSLContext | bool, *, keep: bool
    ) -> None:
        kept: dict[str, Any] = {"limit": 1, "keepalive_timeout": KEPT_S}
        one: dict[str, Any] = {"limit": 0, "force_close": True}
        self._keep = keep
        aiohttp, request = _http()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, **(kept if keep else one)),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S),
            request_class=partial(request, self),
        )
        self.answers = 0  # responses of any status
        self.is_numbered = True  # no answer came yet without the number of its request
        self._protocol: Any = None
        self._poll: Any = None
        self._reused = False
        # pieces of bytes that came, and how many there were when the last answer was whole
        self._heard = self._settled = 0

    def _goes_over(self, protocol: Any) -> None:
        if not self._keep:
            return
        self._reused = protocol is self._protocol
        if self._reused:
            return
        self._protocol = protocol
        self._heard = self._settled = 0
        self._poll = select.poll()
        self._poll.register(protocol.transport.get_extra_info("socket"), select.POLLIN)
        received = protocol.data_received

        def hear(data: bytes) -> None:
            self._heard += 1
            received(data)

        protocol.data_received = hear

    def is_quiet(self) -> bool:
        """Whether the connection stands and nothing came since the last answer, its end
        included; what the loop has not read yet counts."""
        return (
            self._protocol is not None
            and self._protocol.is_connected()
            and self._heard == self._settled
            and not self._poll.poll(0)
        )

    async def ask(
        self, method: str, address: str, sent: bytes | None, most_bytes: int
    ) -> tuple[bytes, str, bool]:
        """(body, content type, whether the connection may carry another request). Raises
        Fault."""
        aiohttp = _http()[0]
        self._reused = False
        data = sent if sent is None or len(sent) <= PLAIN else io.BytesIO(sent)
        number = f"{_RUN}{next(_NUMBERS):012x}" if self._keep else ""
        own = {NUMBER: number} if number else None
        # No cause is chained, since its frames hold the request with the key.
        try:
            async with self._session.request(
                method, address, data=data, headers=own, allow_redirects=False
            ) as response:
                self.answers += 1
                headers = response.headers
                kind = headers.get("content-type", "")
                body = await _whole(response, most_bytes)
                if not self._keep:
                    return body, kind, False
                named = headers.get(NUMBER) == number or number.encode() in body
                self.is_numbered = named
        except Fault as fault:
            # an error seldom repeats a number
            if self._reused and headers.get(NUMBER) != number:
                raise Fault("transport", f"{STRAY}; it is {fault}", stray=True) from None
            raise
        except aiohttp.ClientResponseError as error:
            # what follows a colon is a piece of the answer, cut anywhere
            raise Fault("transport", error.message.partition(":")[0], stray=self._reused) from None
        # ValueError: a name that no host can have
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # of a connection, what failed below: the library's own text shows objects of its own
            cause = getattr(error, "os_error", getattr(error, "certificate_error", error))
            stray = self._reused and self._heard == self._settled
            raise Fault("transport", f"{type(cause).__name__}: {cause}", stray=stray) from None
        if self._reused and not named:
            raise Fault("transport", STRAY, stray=True)
        # where the bytes of an answer went unnoticed, those of a second one would too
        noticed = self._heard != self._settled
        self._settled = self._heard
        # what comes later is looked for before the next request
        again = named and noticed and response.status == OK and self._protocol.is_connected()
        return body, kind, again

    async def close(self) -> None:
        """Ends the connection; of a request under way nothing more comes."""
        await self._session.close()


async def _whole(response: Any, most_bytes: int) -> bytes:
    """The body of a success, decoded. Raises Fault, and what aiohttp raises for a body that broke
    off."""
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
    except _http()[0].ClientPayloadError:
        # an error's body may be cut and broken: its beginning says enough
        if succeeded:
            raise
    if not succeeded:
        raise of_status(status, headers, body[:most].decode("utf-8", "replace"))
    if len(body) > most:
        raise Fault("bad_reply", f"the body is longer than {most} bytes", status=status)
    return bytes(body)
