"""The server: HTTP/1.1 on this machine alone unless asked, a thread for each connection.

It takes requests apart and refuses what no honest client sends: another Host, a browser's page, a
body that is too large, a connection too many. What is asked for is `gem_ma.serving.routes`.
"""

from __future__ import annotations

import hmac
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from select import POLLIN, poll
from socket import AF_INET6, MSG_PEEK, SHUT_RDWR, SHUT_WR
from socketserver import TCPServer, ThreadingMixIn
from types import MappingProxyType, TracebackType
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.serving.desk import Desk
from gem_ma.serving.refused import Refused
from gem_ma.serving.requests import parsed
from gem_ma.serving.routes import Routes

MOST_BYTES = 8 * 1024 * 1024  # of a body
MOST_CONNECTIONS = 512
# of a body that is refused unread
MOST_DROPPED = 64 * 1024 * 1024
DROP_S = 5.0
ROOM_S = 2.0  # until a connection that was closed has left its place
IDLE_S = 75.0  # of a connection without a request, and of a request that stops in the middle


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
            self._server = _Server((host, port), self)
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; --port 0 takes a free"
                " one"
            ) from error
        self.port = int(self._server.server_address[1])
        self.routes = Routes(desk, self.address)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="gem_ma door", daemon=True
        )

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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def allows(self, headers: Message) -> None:
        """Raises Refused for a request that did not come from a program that knows us."""
        # a page of a foreign site may make a browser ask here, and says so
        if headers.get("Origin") is not None:
            raise Refused("a page in a browser takes no seat (Origin)", status=403)
        if self.key is not None:
            sent = headers.get("Authorization") or ""
            if not hmac.compare_digest(sent.encode(), f"Bearer {self.key}".encode()):
                raise Refused(
                    "the key is wrong; send it as the API key", status=401, code="invalid_api_key"
                )
        elif (headers.get("Host") or "").lower() not in self._hosts():
            raise Refused(f"Host: ask {self.address}", status=403)

    def _hosts(self) -> set[str]:
        # exactly: another name that leads here is that of a site which rebinds its address
        return {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]", self.host)}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(ThreadingMixIn, TCPServer):  # the library's HTTPServer asks DNS for its own name
    allow_reuse_address = daemon_threads = True
    block_on_close = False  # a client that keeps its connection open holds nobody up
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], door: Door) -> None:
        self.door = door
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.idle: OrderedDict[_Handler, None] = OrderedDict()  # without a whole request
        if ":" in address[0]:
            self.address_family = AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        # whoever says nothing makes room for whoever comes
        if not self._places.acquire(blocking=False) and not (
            self._end_idle() and self._places.acquire(timeout=ROOM_S)
        ):
            # answered unread: to read it would take one more thread
            with suppress(OSError):
                request.sendall(
                    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def _end_idle(self) -> bool:
        """Closes the connection that has waited longest without a whole request, if there is
        one."""
        while self.idle:
            with suppress(KeyError, OSError):  # it may have begun to speak, or have gone
                handler, _ = self.idle.popitem(last=False)
                handler.connection.shutdown(SHUT_RDWR)
                return True
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news; what it meant for a play is on record."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = IDLE_S
    # else the kernel holds the body back until the head is acknowledged: 40 ms a request
    disable_nagle_algorithm = True
    server_version = "gem_ma"
    sys_version = ""

    def handle_one_request(self) -> None:
        self.server.idle[self] = None
        try:
            super().handle_one_request()
        finally:
            self.server.idle.pop(self, None)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the progress line is the run's."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the parser of the standard library refuses, in our form."""
        self._refuse(Refused(message or f"status {code}", status=code), close=True)

    def _serve(self) -> None:
        try:
            self._check()
            body = parsed(self._body())
            self.server.idle.pop(self, None)
            answer = self.server.door.routes.answer(
                self.command, self.path, body, gone=self._is_gone
            )
        except Refused as refused:
            self._refuse(refused)
            if self._unread:
                self._drop()
            return
        except (OSError, TimeoutError):  # the client is gone
            self.close_connection = True
            return
        if isinstance(answer, dict):
            self._send(200, answer)
        else:
            self._stream(answer)

    def _check(self) -> None:
        """Raises Refused before the body is read: what follows on the connection is not known
        then, so it is closed."""
        self.close_connection, going_on, self._unread = True, self.close_connection, True
        self.server.door.allows(self.headers)
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") is not None:
            raise Refused("send the body in one piece, with Content-Length", status=411)
        if not (length.isascii() and length.isdecimal() and len(length) < 12):
            raise Refused("Content-Length is no number")
        if int(length) > MOST_BYTES:
            raise Refused(f"the body has {length} bytes; {MOST_BYTES} at most", status=413)
        self.close_connection = going_on
        self._unread = False

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        if len(body) < length:
            raise OSError("the client is gone")
        return body

    def _drop(self) -> None:
        """Reads what a refused request still sends. Most clients read once they have sent all, and
        would know of a closed connection alone."""
        length = self.headers.get("Content-Length", "0")
        left = MOST_DROPPED
        if self.headers.get("Transfer-Encoding") is None:
            left = min(left, int(length)) if re.fullmatch("[0-9]{1,11}", length) else 0
        deadline = time.monotonic() + DROP_S
        with suppress(OSError):
            self.connection.shutdown(SHUT_WR)
            while left > 0 and time.monotonic() < deadline:
                self.connection.settimeout(DROP_S)
                part = self.rfile.read1(min(left, 1 << 16))
                if not part:
                    return
                left -= len(part)

    def _is_gone(self) -> bool:
        """Whether the client has closed its side: nobody waits for the answer."""
        look = poll()
        look.register(self.connection, POLLIN)
        try:
            # asked first: with a time-out set, `recv` would wait for that long
            return bool(look.poll(0)) and self.connection.recv(1, MSG_PEEK) == b""
        except OSError:
            return True

    def _refuse(self, refused: Refused, close: bool = False) -> None:
        self.close_connection = self.close_connection or close
        more = {"Retry-After": "1"} if refused.status == 503 else {}
        self._send(refused.status, refused.body, more)

    def _send(
        self, status: int, value: Any, more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        text = json.dumps(value).encode("ascii")
        kind = {"Content-Type": "application/json", "Content-Length": str(len(text))}
        self._head(status, {**kind, **more})
        self._write([text])

    def _stream(self, events: Iterable[bytes]) -> None:
        # its end is the end of the connection, which every client understands
        self.close_connection = True
        self._head(200, {"Content-Type": "text/event-stream"})
        self._write(events)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        with suppress(OSError):
            self.end_headers()

    def _write(self, pieces: Iterable[bytes]) -> None:
        try:
            for piece in pieces:
                self.wfile.write(piece)
        except OSError:
            self.close_connection = True
