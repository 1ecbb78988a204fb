"""A way to a server on which requests are lost: it hands on what it gets, and answers some of it with
a fault, before or after the server has done the work."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PASSED = ("content-type", "accept", "authorization", "x-api-key")


class FaultyWay:
    """`url` leads to the server on `port`. `faults`: (end of a path, status or 0 for a connection
    that is closed, whether the server gets the request first), each used once."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.faults: list[tuple[str, int, bool]] = []
        self.used: list[tuple[str, int, bool]] = []
        self.lock = threading.Lock()
        way = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                way.handle(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *words: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        with self.lock:
            fault = next((f for f in self.faults if request.path.endswith(f[0])), None)
            if fault is not None:
                self.faults.remove(fault)
                self.used.append(fault)
        status, headers, answer = 500, {"content-type": "application/json"}, b'{"detail": "lost"}'
        if fault is None or fault[2]:
            status, headers, answer = self._ask(request, body)
        if fault is not None and fault[1] == 0:
            request.close_connection = True
            request.connection.close()
            return
        request.send_response(status if fault is None else fault[1])
        for name, value in headers.items():
            if name.lower() == "content-type":
                request.send_header(name, value)
        request.send_header("content-length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    def _ask(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict, bytes]:
        there = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        headers = {name: value for name, value in request.headers.items() if name.lower() in PASSED}
        there.request(request.command, request.path, body, headers)
        answer = there.getresponse()
        read = answer.status, dict(answer.getheaders()), answer.read()
        there.close()
        return read

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
