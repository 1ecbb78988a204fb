"""The server: starlette's requests on uvicorn, on this machine alone unless asked.

It refuses what no honest client sends: another Host, a browser's page, a body that is too large, a
connection too many. What is asked for is `gem_ma.serving.routes`, which waits in threads.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from gem_ma.kernel.errors import ConfigError
from gem_ma.serving.desk import Desk
from gem_ma.serving.requests import Refused, parsed
from gem_ma.serving.routes import Routes
from gem_ma.system.loopback import is_loopback, is_ours, listen, names_of

MOST_BYTES = 8 * 1024 * 1024  # of a body
MOST_CONNECTIONS = 512
# of a body that is refused unread
MOST_DROPPED = 64 * 1024 * 1024
DROP_S = 5.0
IDLE_S = 75.0  # of a connection without a request, and of a request that stops in the middle
METHODS = ("GET", "POST", "DELETE")
NO_STORE = {"cache-control": "no-store"}


class Door:
    """Serves a desk at `http://HOST:PORT` while it is entered. Port 0 is a free one.

    `key`: what every request must bring as its API key; without one only this machine is listened
    to. Raises ConfigError for another host without a key, and for a port that is taken.
    """

    def __init__(
        self, desk: Desk, *, host: str = "127.0.0.1", port: int = 0, key: str | None = None
    ) -> None:
        self.desk = desk
        self.host = host
        self.key = key
        if not is_loopback(host) and not key:
            raise ConfigError(
                f"--host {host}: others could take the seat; set a key in a variable and name it:"
                " --key-env NAME"
            )
        try:
            self._socket = listen(host, port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; --port 0 takes a free"
                " one"
            ) from error
        self.port = int(self._socket.getsockname()[1])
        self.routes = Routes(desk, self.address)
        config = uvicorn.Config(
            self._serve,
            http=_Connection,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # the progress line is the run's
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(IDLE_S),
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="gem_ma door", daemon=True
        )
        # a request waits in a thread of its own for a seat, a turn or a reply
        self._threads = ThreadPoolExecutor(MOST_CONNECTIONS, "gem_ma seat")

    @property
    def address(self) -> str:
        """Where clients begin."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __enter__(self) -> Door:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType
    ) -> None:
        self.desk.close()
        # whoever asks now is told that all is over; those who were asked last read their answer
        self.routes.drain()
        self._server.should_exit = True
        self._thread.join()
        self._threads.shutdown(wait=False)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            self._check(request)
        except Refused as refused:
            await _refuse_unread(refused, request, send)
            return
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        caller = _Caller(request)
        watch = asyncio.ensure_future(caller.watch())
        try:
            response = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._answer, request, body, caller.is_gone
            )
        finally:
            # the thread looks at it where the server ends first
            caller.has_left = True
            watch.cancel()
        await response(scope, receive, send)

    def _check(self, request: Request) -> None:
        """Raises Refused for a request that did not come from a program that knows us, and for a
        body that is not read."""
        headers = request.headers
        if request.method not in METHODS:
            raise Refused(f"{request.method} is not served; {', '.join(METHODS)} are", status=501)
        # a page of a foreign site may make a browser ask here, and says so
        if headers.get("origin") is not None:
            raise Refused("a page in a browser takes no seat (Origin)", status=403)
        if self.key is not None:
            sent = headers.get("authorization", "")
            if not hmac.compare_digest(sent.encode(), f"Bearer {self.key}".encode()):
                raise Refused(
                    "the key is wrong; send it as the API key", status=401, code="invalid_api_key"
                )
        elif not is_ours(headers, names_of(self.port, "[::1]", self.host)):
            raise Refused(f"Host: ask {self.address}", status=403)
        if headers.get("transfer-encoding") is not None:
            raise Refused("send the body in one piece, with Content-Length", status=411)
        length = headers.get("content-length", "0")  # digits: the parser refuses others
        if int(length) > MOST_BYTES:
            raise Refused(f"the body has {length} bytes; {MOST_BYTES} at most", status=413)

    def _answer(self, request: Request, body: bytes, gone: Callable[[], bool]) -> Response:
        try:
            answer = self.routes.answer(request.method, request.url.path, parsed(body), gone=gone)
        except Refused as refused:
            more = {"retry-after": "1"} if refused.status == 503 else {}
            return _json(refused.status, refused.body, more)
        if isinstance(answer, dict):
            return _json(200, answer)
        # the reply is whole, so its events are
        return Response(b"".join(answer), headers={**NO_STORE, "content-type": "text/event-stream"})


class _Caller:
    """The client of a request: whether it still waits for the answer."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.has_left = False

    async def watch(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        self.has_left = True

    def is_gone(self) -> bool:
        return self.has_left


class _Connection(H11Protocol):
    """A connection that says nothing makes room for one that does."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.heard = time.monotonic()
        self._look = self.loop.call_later(IDLE_S, self._end_silence)
        if len(self.connections) <= MOST_CONNECTIONS:
            return
        others: list[Any] = [each for each in self.connections if each is not self]
        silent = [each for each in others if each.is_waiting]
        if silent:
            min(silent, key=lambda each: each.heard).transport.abort()
        else:
            self._end(503, Refused("too many connections; ask again", status=503))

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        super().data_received(data)

    @property
    def is_waiting(self) -> bool:
        """Whether it has not sent a whole request, or none since its last answer."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def send_400_response(self, msg: str) -> None:
        """What the parser refuses, in our form."""
        if self.cycle is not None and not self.cycle.response_complete:
            # in the middle of a body in chunks: it is refused for that already
            self.cycle.more_body = False
            self.cycle.message_event.set()
            return
        self._end(400, Refused(msg))

    def _end_silence(self) -> None:
        silence = time.monotonic() - self.heard if self.is_waiting else 0.0
        if silence >= IDLE_S:
            self.transport.close()
        else:
            self._look = self.loop.call_later(IDLE_S - silence, self._end_silence)

    def _end(self, status: int, refused: Refused) -> None:
        text = json.dumps(refused.body).encode("ascii")
        head = (
            f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + text)
        self.transport.close()


def _json(status: int, value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(
        json.dumps(value).encode("ascii"),
        status,
        {**NO_STORE, **(headers or {})},
        "application/json",
    )


async def _refuse_unread(refused: Refused, request: Request, send: Send) -> None:
    """Answers, and reads what the request still sends. Most clients read once they have sent all,
    and would know of a closed connection alone."""
    whole = _json(refused.status, refused.body, {"connection": "close"})
    await send(
        {"type": "http.response.start", "status": whole.status_code, "headers": whole.raw_headers}
    )
    await send({"type": "http.response.body", "body": whole.body, "more_body": True})
    left = MOST_DROPPED
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DROP_S):
            async for part in request.stream():
                left -= len(part)
                if left < 0:
                    break
    await send({"type": "http.response.body"})
