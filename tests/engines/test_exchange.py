"""One request over one connection: whatever order bytes, resets and ends come in, the answer is
whole or a fault, and no header of the environment goes where it does not belong."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import warnings

import pytest

from gem_ma.engines.endpoint.client import Client, _headers
from gem_ma.engines.endpoint.endpoint import Secret
from gem_ma.engines.endpoint.faults import Fault

HELD = 1 << 18
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
WHOLE = OK + b"content-length: 2\r\n\r\n{}"


def answered(*pieces: bytes, reset: bool = False, unread: int = 0) -> tuple[bytes, str] | Fault:
    """What comes of a POST to a server that sends these pieces and leaves. `unread`: bytes of the
    request's body that it never reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if reset:
            linger = struct.pack("ii", 1, 0)  # the next close is a reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    async def work() -> tuple[bytes, str] | Fault:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = Client(f"http://127.0.0.1:{port}/v1", Secret("EMPTY"), 4)
        body = {"text": "x" * unread}
        try:
            return await client.post("/x", body, timeout_s=5.0, most_bytes=4 * HELD)
        except Fault as fault:
            return fault
        finally:
            server.close()

    return asyncio.run(work())


@pytest.mark.parametrize(
    "pieces",
    [
        (WHOLE,),
        tuple(bytes([byte]) for byte in WHOLE),
        (b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE),
        (OK + b"\r\n", b"{", b"}"),  # its end is that of the connection
        (OK + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
        (WHOLE + WHOLE,),  # a second one that nobody asked for
    ],
)
@pytest.mark.parametrize("reset", [False, True])
def test_a_whole_answer_is_read_however_it_comes(pieces: tuple[bytes, ...], reset: bool) -> None:
    # where a reset is the only end, whoever reads the JSON or the stream sees whether it is whole
    assert answered(*pieces, reset=reset) == (b"{}", "application/json")


def test_what_is_said_before_the_whole_request_was_read_is_heard() -> None:
    refused = b"HTTP/1.1 413 Too Large\r\ncontent-length: 9\r\n\r\ntoo large"
    for reset in (False, True):
        got = answered(refused, reset=reset, unread=16 * HELD)
        assert isinstance(got, Fault) and got.status == 413 and "too large" in got.detail


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"HTTP/1.1 200",),
        (b"SSH-2.0-server\r\n\r\n",),
        (OK + b"content-length: 9\r\n\r\n{}",),
        (OK + b"transfer-encoding: chunked\r\n\r\n5\r\n{}",),
        (OK + b"content-length: x\r\n\r\n{}",),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000 + b"\r\n",),
    ],
)
def test_half_an_answer_is_a_fault_of_the_way(pieces: tuple[bytes, ...]) -> None:
    for reset in (False, True):
        got = answered(*pieces, reset=reset)
        assert isinstance(got, Fault) and got.kind == "transport" and got.detail


def test_a_body_beyond_the_cap_is_refused_while_it_comes() -> None:
    got = answered(OK + b"content-length: 99999999\r\n\r\n", *[b" " * HELD] * 9)
    assert isinstance(got, Fault) and "longer than" in got.detail


def test_a_name_that_no_host_has_is_a_fault_of_the_way() -> None:
    for host in ("a..b", "x" * 80, "\xfc" * 80):
        client = Client(f"http://{host}/v1", Secret("EMPTY"), 1)
        with pytest.raises(Fault) as caught:
            asyncio.run(client.post("/x", {}, timeout_s=5.0, most_bytes=9))
        assert caught.value.kind == "transport"


def test_headers_of_the_environment_go_to_openai_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-One: 1\nAuthorization: other\nHost: elsewhere")
    theirs = _headers(Secret("key"), "https://api.openai.com/v1")
    assert theirs["openai-organization"] == "org" and theirs["x-one"] == "1"
    assert theirs["authorization"] == "Bearer key" and "host" not in theirs
    others = _headers(Secret("key"), "http://127.0.0.1:1/v1")
    assert others["authorization"] == "Bearer key"
    assert not {"openai-organization", "x-one"} & others.keys()


def test_a_client_leaves_nothing_open_on_any_loop() -> None:
    async def work(port: int, client: Client | None = None) -> Client:
        arrived = asyncio.Event()
        left = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set()
            with contextlib.suppress(ConnectionError):
                await reader.read()
                writer.close()
                await writer.wait_closed()
            left.set()

        server = await asyncio.start_server(hang, "127.0.0.1", port)
        port = server.sockets[0].getsockname()[1]
        client = client or Client(f"http://127.0.0.1:{port}", Secret("EMPTY"), 4)
        asked = asyncio.create_task(client.post("/x", {}, timeout_s=5.0, most_bytes=9))
        await arrived.wait()
        asked.cancel()
        await asyncio.wait({asked})
        await left.wait()  # the connection ends with the request
        server.close()
        await server.wait_closed()
        return client

    gc.collect()  # what other tests left
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        client = asyncio.run(work(0))
        asyncio.run(work(int(client.base_url.rpartition(":")[2]), client))
        gc.collect()
    assert [str(one.message) for one in told] == []
