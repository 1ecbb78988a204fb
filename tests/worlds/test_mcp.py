"""Tools of a real server of the Model Context Protocol, started here and over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gem_ma import Action, Game, ToolCall, make
from gem_ma.kernel.errors import ConfigError
from gem_ma.tools.belt import WithTools
from tests.leash import leashed

pytestmark = [pytest.mark.worlds, pytest.mark.skipif(not find_spec("mcp"), reason="needs mcp")]
SERVER = str(Path(__file__).with_name("mcp_server.py"))


def start(**options: Any) -> Game:
    from gem_ma.tools.mcp import Mcp

    return Game(WithTools(make("guess_number"), {"player": [Mcp(uses=9, **options)]}))


def ask(game: Game, name: str, **arguments: Any) -> str:
    game.send({"player": Action("", (ToolCall("1", name, arguments),))})
    return game.view("player")[-1].text


def test_a_server_of_the_play_own_keeps_its_state_and_forks_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    game = start(command=[sys.executable, SERVER], timeout_s=5)
    tools = {tool.name: tool for tool in game.pending["player"].tools}
    assert set(tools) == {"add", "fail", "sleep", "end", "key"}
    assert tools["add"].parameters["properties"]["number"]["type"] == "integer"
    assert [ask(game, "add", number=number) for number in (1, 2)] == ["1", "3"]
    fork = game.fork()
    assert ask(game, "add", number=4) == ask(fork, "add", number=4) == "7"
    assert ask(game, "fail").startswith("Error")
    assert ask(game, "key") == "none"
    assert "Error" in ask(game, "end")
    assert ask(game, "add", number=1) == "8"
    game.close()
    fork.close()


def test_a_call_without_an_end_is_left() -> None:
    game = start(command=[sys.executable, SERVER], timeout_s=2)
    ask(game, "add", number=5)
    assert "no answer within 2 s" in ask(game, "sleep")
    assert ask(game, "add", number=1) == "6"
    game.close()


def served(port: int) -> subprocess.Popen[bytes]:
    process = leashed([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.1)
    raise AssertionError("the server does not start")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def address(port: int) -> Iterator[str]:
    process = served(port)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def test_a_server_over_http_is_shared_and_no_call_is_repeated(address: str) -> None:
    game = start(url=address)
    assert ask(game, "add", number=1) == "1"
    fork = game.fork()
    assert ask(fork, "add", number=1) == "2"
    assert ask(game, "add", number=1) == "3"
    game.close()
    fork.close()


def test_a_server_that_was_started_anew_is_met_anew(port: int) -> None:
    for begin in (True, False):
        process = served(port)
        try:
            if begin:
                game = start(url=f"http://127.0.0.1:{port}/mcp")
                assert [ask(game, "add", number=1) for _ in range(2)] == ["1", "2"]
            else:
                assert ask(game, "add", number=1) == "1"  # its state is its own affair
        finally:
            process.terminate()
            process.wait()
    assert ask(game, "add", number=1).startswith("Error: ")
    game.close()


class Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401)
        self.end_headers()

    def log_message(self, *words: Any) -> None: ...


class Forgetful(BaseHTTPRequestHandler):
    """Of an older protocol; a session ends with its first call."""

    sessions, over = 0, ""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, kind, session = message["method"], type(self), self.headers["mcp-session-id"]
        told: dict[str, Any] = {"error": {"code": -32601, "message": "unknown"}}
        if method == "initialize":
            kind.sessions += 1
            about = {"serverInfo": {"name": "old", "version": "1"}, "capabilities": {"tools": {}}}
            version = message["params"]["protocolVersion"]
            told = {"result": {"protocolVersion": version, **about}}
        elif method == "tools/list":
            told = {"result": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}}
        elif method == "tools/call":
            told = {"result": {"content": [{"type": "text", "text": session}]}}
        forgotten = method == "tools/call" and session == kind.over
        if method == "tools/call":
            kind.over = session
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **told}).encode()
        self.send_response(404 if forgotten else 200 if "id" in message else 202)
        self.send_header("content-type", "application/json")
        self.send_header("mcp-session-id", session or f"session {kind.sessions}")
        self.end_headers()
        self.wfile.write(b"" if forgotten or "id" not in message else body)

    def log_message(self, *words: Any) -> None: ...


def test_a_session_that_the_server_forgot_is_begun_anew() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as http:
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, daemon=True).start()
        game = start(url=f"http://127.0.0.1:{http.server_port}/mcp")
        assert [ask(game, "who") for _ in range(3)] == ["session 2", "session 3", "session 4"]
        game.close()
        http.shutdown()


def test_a_server_that_wants_a_key_is_named_with_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # not for this machine
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        with pytest.raises(ConfigError, match=r"answered 401; is its key named by api_key_env\?"):
            start(url=f"http://127.0.0.1:{http.server_port}/mcp")
        http.shutdown()


@pytest.mark.parametrize(
    "options", [{"command": ["/no/such/program"]}, {"url": "http://127.0.0.1:9/mcp"}]
)
def test_a_server_that_is_not_there_is_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="gives no list of tools") as caught:
        start(**options)
    # the SDK raises groups of errors, whose own words say nothing
    assert "sub-exception" not in str(caught.value) and "\n" not in str(caught.value)
