"""Connections that carry more than one request: who keeps them, and that whatever a server does on
one ends in the right answer or in a fault, never in the answer to another request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.endpoint.client import Client
from gem_ma.engines.endpoint.endpoint import Secret
from gem_ma.engines.endpoint.faults import Fault
from gem_ma.kernel.types import Message, Reply, Request
from tests.fault_server import reply

END = None  # the connection ends


@dataclass(frozen=True)
class Asked:
    """One request: which it is of its connection, its text, and its number."""

    place: int
    connection: int
    text: str
    number: str


Pieces = Sequence[bytes | float | None]  # what is sent, seconds in between, the end
Script = Callable[[Asked], Pieces]


def whole(
    text: str, number: str, status: str = "200 OK", version: str = "1.1", more: str = ""
) -> bytes:
    """An answer as vLLM writes it."""
    body = json.dumps(reply(text, id=f"chatcmpl-{number}")).encode()
    head = f"HTTP/{version} {status}\r\n{more}content-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def right(asked: Asked) -> bytes:
    return whole(asked.text, asked.number)


class Wire:
    """A server of raw bytes. `asked`: what came, in order."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = self.connections
        self.connections += 1
        place = 0
        while head := await self._head(reader):
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
            headers = {name.lower(): value for name, value in fields.items()}
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            text = body["messages"][-1]["content"]
            asked = Asked(place, connection, text, headers.get("x-request-id", ""))
            self.asked.append(asked)
            place += 1
            for piece in self.script(asked):
                if piece is END:
                    writer.close()
                    return
                if isinstance(piece, float):
                    await asyncio.sleep(piece)
                else:
                    writer.write(piece)
        writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


async def said(engine: OpenAI, text: str) -> Reply:
    return await engine.sample(Request("a", (Message(text),)))


def talk(
    script: Script, texts: int = 4, pause_s: float = 0.0, **options: Any
) -> tuple[list[Reply], Wire]:
    """What so many requests come to, one after the other."""
    wire = Wire(script)

    async def work() -> list[Reply]:
        server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        engine = OpenAI("m", base_url=url, policy="main", **options)
        got = []
        for number in range(texts):
            got.append(await said(engine, str(number)))
            await asyncio.sleep(pause_s)
        server.close()
        return got

    return asyncio.run(work()), wire


def kinds(got: Sequence[Reply]) -> list[list[str]]:
    return [[attempt.kind for attempt in one.attempts] for one in got]


def test_a_real_server_that_repeats_numbers_keeps_a_connection_for_each_who_waits() -> None:
    peers = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        text = (await request.json())["messages"][-1]["content"]
        number = request.headers["x-request-id"]
        return web.json_response(reply(text, id=f"chatcmpl-{number}"))

    async def work() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        engine = OpenAI("m", base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1", policy="p")

        async def chat(name: int) -> None:
            for turn in range(10):
                got = await said(engine, f"{name}/{turn}")
                assert got.text == f"{name}/{turn}" and got.attempts == ()

        await asyncio.gather(*map(chat, range(8)))
        await runner.cleanup()

    asyncio.run(work())
    assert len(peers) <= 8


@pytest.mark.parametrize("chunked", [False, True])
def test_a_number_in_a_header_keeps_too_and_an_answer_without_one_never(chunked: bool) -> None:
    def header(asked: Asked) -> Pieces:
        named = f"X-Request-Id: {asked.number}\r\n"
        if not chunked:
            return (whole(asked.text, "1", more=named),)
        body = json.dumps(reply(asked.text)).encode()
        head = f"HTTP/1.1 200 OK\r\n{named}content-type: application/json\r\n"
        return (
            head.encode() + b"transfer-encoding: chunked\r\n\r\n",
            f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n",
        )

    got, wire = talk(header)
    assert [one.text for one in got] == list("0123") and wire.connections == 1
    got, wire = talk(lambda asked: (whole(asked.text, "1"),))
    assert [one.text for one in got] == list("0123") and wire.connections == 4
    # from the second on nobody is told of numbers, which serve nothing there
    assert [bool(asked.number) for asked in wire.asked] == [True, False, False, False]


@pytest.mark.parametrize(
    ("version", "more", "connections"),
    [
        ("1.0", "", 4),
        ("1.0", "connection: keep-alive\r\n", 1),
        ("1.1", "connection: close\r\n", 4),
        ("1.1", "", 1),
    ],
)
def test_the_server_says_whether_its_connection_stays(
    version: str, more: str, connections: int
) -> None:
    got, wire = talk(lambda asked: (whole(asked.text, asked.number, version=version, more=more),))
    assert [one.text for one in got] == list("0123") and wire.connections == connections
    assert kinds(got) == [[]] * 4


# what a server does with the second request of a connection -> the faults that it meets
ODD: dict[str, tuple[Script, list[str]]] = {
    "ends without a byte": (lambda asked: (END,), ["transport"]),
    "ends in the headers": (lambda asked: (right(asked)[:30], END), ["transport"]),
    "ends in the body": (lambda asked: (right(asked)[:-9], END), ["transport"]),
    "no HTTP": (lambda asked: (b"SSH-2.0-server\r\n\r\n",), ["transport"]),
    "the number of another": (lambda asked: (whole("other", "f" * 32),), ["transport"]),
    "an error of another": (lambda asked: (whole("", "", "401 Unauthorized"),), ["transport"]),
    "an overflow of another": (lambda asked: (whole("", "", "400 Bad"),), ["transport"]),
    "byte by byte": (
        lambda asked: tuple(x for byte in right(asked) for x in (bytes([byte]), 0.0)),
        [],
    ),
    "hears, and waits": (lambda asked: (0.05, right(asked)), []),
    "an interim answer": (lambda asked: (b"HTTP/1.1 100 Continue\r\n\r\n", right(asked)), []),
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_comes_of_a_second_request_it_gets_its_own_answer(name: str) -> None:
    script, faults = ODD[name]
    got, wire = talk(lambda asked: script(asked) if asked.place == 1 else (right(asked),))
    assert [one.text for one in got] == list("0123")
    assert kinds(got)[1] == faults
    # sent once more, and only where that stands in the record
    sent = [asked.text for asked in wire.asked]
    assert [sent.count(text) for text in "0123"] == [1 + len(one.attempts) for one in got]


@pytest.mark.parametrize("late_s, pause_s", [(0.0, 0.0), (0.02, 0.05)])
@pytest.mark.parametrize(
    "what",
    [
        b"\r\n",
        b"HTTP/1.1 2",
        b"garbage",
        whole("unasked", "f" * 32),
        whole("unasked", "f" * 32)[:60],
        whole("", "", "500 Broken"),
    ],
)
def test_what_nobody_asked_for_is_no_answer(what: bytes, late_s: float, pause_s: float) -> None:
    """Right behind an answer, while the connection lies idle, and while the next request waits."""
    odd_once = iter([True])
    got, _ = talk(
        lambda asked: (
            0.04,
            right(asked),
            *((late_s, what) if asked.text == "1" and next(odd_once, False) else ()),
        ),
        pause_s=pause_s,
    )
    assert [one.text for one in got] == list("0123")


def test_a_second_answer_to_the_same_request_is_not_that_of_the_next() -> None:
    for late_s in (0.0, 0.02):
        got, _ = talk(lambda asked, late_s=late_s: (right(asked), late_s, right(asked), 0.02))
        assert [one.text for one in got] == list("0123")


def test_a_connection_that_ended_while_idle_costs_no_fault() -> None:
    got, wire = talk(lambda asked: (right(asked), END), pause_s=0.02)
    assert kinds(got) == [[]] * 4 and wire.connections == len(wire.asked) == 4


def test_one_attempt_is_enough_where_a_kept_connection_ends_and_a_dead_server_is_a_fault() -> None:
    got, _ = talk(lambda asked: (END,) if asked.place else (right(asked),), attempts=1)
    assert [one.text for one in got] == list("0123")

    # the second time is over a connection of its own, and what fails there counts
    def dies(asked: Asked) -> Pieces:
        return (right(asked),) if asked.text == "0" else (END,)

    with pytest.raises(Exception, match="no usable reply"):
        talk(dies, attempts=1)


def post(client: Client, text: str, keep: bool, timeout_s: float = 5.0) -> Any:
    body = {"messages": [{"content": text}]}
    return client.post("/x", body, timeout_s=timeout_s, most_bytes=9999, keep=keep)


def test_a_request_that_ends_early_takes_its_connection_with_it() -> None:
    """Cancelled, and cut by its deadline; a request that changes the server has its own."""
    wire = Wire(lambda asked: (0.2 if asked.text == "slow" else 0.0, right(asked)))

    async def work() -> None:
        server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        client = Client(url, Secret("EMPTY"), 4)
        await post(client, "first", keep=True)
        slow = asyncio.create_task(post(client, "slow", keep=True))
        await asyncio.sleep(0.05)
        slow.cancel()
        await asyncio.wait({slow})
        assert b"second" in (await post(client, "second", keep=True))[0]
        with pytest.raises(Fault, match="no whole reply within"):
            await post(client, "slow", keep=True, timeout_s=0.05)
        assert b"third" in (await post(client, "third", keep=True))[0]
        assert b"apart" in (await post(client, "apart", keep=False))[0]
        server.close()

    asyncio.run(work())
    where = {asked.text: asked.connection for asked in wire.asked}
    assert where["first"] == 0 and where["second"] == 1 and where["third"] == 2
    assert where["apart"] == 3 and wire.asked[-1].place == 0


def test_a_body_beyond_the_cap_is_asked_for_again_apart() -> None:
    got, _ = talk(
        lambda asked: (whole("x" * 5000, asked.number) if asked.place else right(asked),),
        most_bytes=4000,
    )
    assert [one.text for one in got] == list("0123") and kinds(got)[1] == ["transport"]
