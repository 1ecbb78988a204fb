"""A chat-completions server on loopback that answers as scripted, faults included: a real socket,
real HTTP/1.1, nothing patched.

    with FaultServer([status(429, retry_after=0), says("hello")]) as server:
        engine = OpenAI("m", base_url=server.url)

A script is a list of answers, the last of which repeats, or a function from `Asked` to an
answer. What was asked stands in `server.asked`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

JSON, EVENTS, HTML = "application/json", "text/event-stream", "text/html"


@dataclass(frozen=True)
class Answer:
    """What goes over the wire. `then`: what happens after the bytes (nothing, `drop` the
    connection, `hang`); `promised` = Content-Length.

    `second`: an answer that nobody asked for and that follows on the same connection, `second_s`
    later.
    """

    status: int = 200
    body: bytes = b"{}"
    content_type: str | None = JSON
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    then: str = ""
    promised: int | None = None
    drip_s: float = 0.0  # between single bytes
    chunked: bool = False
    reason: str = "Scripted"
    second: Answer | None = None
    second_s: float = 0.0


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def last(self) -> str:
        """Text of the last message."""
        content = self.body["messages"][-1]["content"]
        return content if isinstance(content, str) else ""


def reply(
    text: str | None = "ok",
    *,
    calls: Sequence[tuple[str, str, Any]] = (),
    finish: str = "stop",
    usage: tuple[int, int] | None = (7, 3),
    choice: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The JSON of a good reply; `calls` are (id, name, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": raw}}
            for one, name, raw in calls
        ]
    body: dict[str, Any] = {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, **(choice or {})}],
    }
    if usage is not None:
        body["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
        }
    return body | more


def says(text: str | None = "ok", *, delay_s: float = 0.0, **more: Any) -> Answer:
    """A good reply."""
    return Answer(body=json.dumps(reply(text, **more)).encode(), delay_s=delay_s)


def status(
    code: int,
    message: str = "scripted",
    *,
    code_word: str | None = None,
    delay_s: float = 0.0,
    **headers: Any,
) -> Answer:
    """An error; further names are headers, as in `retry_after=1`."""
    body = json.dumps(
        {"error": {"message": message, "type": "scripted", "code": code_word}}
    ).encode()
    return Answer(
        code,
        body,
        headers={name.replace("_", "-"): str(value) for name, value in headers.items()},
        delay_s=delay_s,
    )


def raw(body: Any, content_type: str | None = JSON, **more: Any) -> Answer:
    """A status 200 with any body."""
    packed = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(body=packed, content_type=content_type, **more)


def truncated(**more: Any) -> Answer:
    """JSON that ends early, with a Content-Length that says so."""
    return raw(json.dumps(reply("never whole")).encode()[:-40], **more)


def drop(*, after: int = 0, **more: Any) -> Answer:
    """The connection ends in the middle of a reply (0: before its first byte)."""
    body = json.dumps(reply("never whole")).encode()
    return Answer(body=body[:after], then="drop", promised=len(body) if after else -1, **more)


def hang(**more: Any) -> Answer:
    """Nothing comes, and the connection stays."""
    return Answer(then="hang", promised=-1, **more)


def piece(delta: Any, finish: Any = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def streamed(chunks: Sequence[Any], end: str = "\n\n", *, done: bool = True) -> bytes:
    lines = [*map(json.dumps, chunks), *(["[DONE]"] if done else [])]
    return "".join(f"data: {line}{end}" for line in lines).encode()


def body_of(value: Any) -> tuple[bytes, str]:
    """A reply with its content type; a list is a stream."""
    if isinstance(value, list):
        return streamed(value), EVENTS
    return json.dumps(value).encode(), JSON


def events(
    *deltas: dict[str, Any] | str,
    finish: str | None = "stop",
    done: bool = True,
    usage: tuple[int, int] | None = None,
    **more: Any,
) -> Answer:
    """A stream of server-sent events; a str is a delta of content."""
    chunks = [piece({"content": one} if isinstance(one, str) else one) for one in deltas]
    if finish is not None:
        chunks.append(piece({}, finish))
    if usage is not None:
        chunks.append(
            {"choices": [], "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}}
        )
    return raw(streamed(chunks, done=done), EVENTS, chunked=True, **more)


Script = Sequence[Answer] | Callable[[Asked], Answer]


class FaultServer:
    """Runs in a thread of its own for the length of a `with`."""

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self.script, self.port = script, port
        self.asked: list[Asked] = []
        self.running = self.most_at_once = 0
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name="fault server", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> FaultServer:
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the server did not start")
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._thread.is_alive():  # stopped by the test already
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def start() -> asyncio.Server:
            return await asyncio.start_server(
                self._connection, "127.0.0.1", self.port, backlog=1024
            )

        server = self._loop.run_until_complete(start())
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0.01))
            self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):
            while await self._exchange(reader, writer):
                pass
        with contextlib.suppress(Exception):
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; True where the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(
            len(self.asked), head[0].split()[1], headers, json.loads(body) if body else {}
        )
        self.asked.append(asked)
        answer = (
            self.script(asked)
            if callable(self.script)
            else self.script[min(asked.number, len(self.script) - 1)]
        )
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(answer.delay_s)
        finally:
            self.running -= 1
        if answer.promised != -1:
            await self._write(writer, answer)
        if answer.second is not None:
            if answer.second_s:
                self._keep(self._late(writer, answer.second, answer.second_s))
            else:
                await self._write(writer, answer.second)
        if answer.then == "hang":
            await reader.read()  # until the other side leaves
        if answer.then == "drop":
            writer.transport.abort()
        return answer.then == ""

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _late(self, writer: asyncio.StreamWriter, answer: Answer, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(ConnectionError):
            if not writer.transport.is_closing():
                await self._write(writer, answer)

    @staticmethod
    async def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"] + [
            f"{name}: {value}" for name, value in answer.headers.items()
        ]
        if answer.content_type is not None:
            lines.append(f"content-type: {answer.content_type}")
        if answer.chunked:
            lines.append("transfer-encoding: chunked")
        else:
            lines.append(
                "content-length:"
                f" {len(answer.body) if answer.promised is None else answer.promised}"
            )
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if answer.chunked:
            for part in answer.body.split(b"\n\n"):
                if part:
                    writer.write(f"{len(part) + 2:x}\r\n".encode() + part + b"\n\n\r\n")
            if answer.then != "drop":
                writer.write(b"0\r\n\r\n")
        elif answer.drip_s:
            for at in range(len(answer.body)):
                writer.write(answer.body[at : at + 1])
                await writer.drain()
                await asyncio.sleep(answer.drip_s)
        else:
            writer.write(answer.body)
        await writer.drain()
