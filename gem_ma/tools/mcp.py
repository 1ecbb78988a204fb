"""The tools of a server that speaks the Model Context Protocol, by its official SDK: started as a
process of the play's own, or reached by HTTP.

A server that is started here has a state of each play: a fork starts one of its own and repeats
the calls so far when it goes on. A server behind an address is shared, and no call is repeated.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache
from typing import Any

from gem_ma.errors import ConfigError
from gem_ma.installing import install
from gem_ma.tools.belt import Equipment, Use
from gem_ma.types import Tool

START_S = 60.0  # until a server has started and named its tools
LONGEST = 8_000  # characters of a result
MOST_PAGES = 32  # of a list of tools: a server may name a next page for ever


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all connections, on a thread of its own: the calls of plays come from threads
    that end."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="gem_ma mcp", daemon=True).start()
    return loop


def _wait(work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(timeout_s):
            return await work

    return asyncio.run_coroutine_threadsafe(limited(), _loop()).result()


class Connection:
    """A client, in a task that opens and closes it: the SDK wants both in the same one."""

    def __init__(self, target: Any) -> None:
        self.target, self.error = target, "it ended"
        self.opened, self.left = asyncio.Event(), asyncio.Event()
        self.client: Any = None
        self.task = asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        from mcp import Client

        try:
            async with Client(self.target) as client:
                self.client = client
                self.opened.set()
                await self.left.wait()
        except Exception as error:
            fault: BaseException = error
            while isinstance(fault, BaseExceptionGroup):  # "1 sub-exception" says nothing
                fault = fault.exceptions[0]
            self.error = f"{type(fault).__name__}: {' '.join(str(fault).split()) or 'no answer'}"
        finally:
            self.client = None
            self.opened.set()

    async def ready(self) -> Any:
        """The open client. Raises ConnectionError where there is none."""
        await self.opened.wait()
        if self.client is None:
            raise ConnectionError(self.error)
        return self.client

    async def close(self) -> None:
        self.left.set()
        await asyncio.wait([self.task], timeout=5)
        self.task.cancel()


async def _connect(target: Any) -> Connection:
    return Connection(target)


async def _call(connection: Connection, name: str, arguments: Mapping[str, Any]) -> str:
    client = await connection.ready()
    result = await client.call_tool(name, dict(arguments))
    text = "\n".join(
        part.text if part.type == "text" else f"[{part.type}]" for part in result.content
    )
    return f"Error: {text}" if result.is_error else text


async def _tools(target: Any) -> list[Tool]:
    connection = Connection(target)
    try:
        client = await connection.ready()
        tools, cursor = [], None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += [Tool(t.name, t.description or "", t.input_schema) for t in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        return tools
    finally:
        await connection.close()


class Session(Use):
    """The calls of a play, and a connection on which the first `done` of them were made."""

    def __init__(self, target: Any, timeout_s: float, repeats: bool) -> None:
        self.target, self.timeout_s, self.repeats = target, timeout_s, repeats
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.connection: Connection | None = None
        self.done = 0

    def plan(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.calls.append((name, arguments))

    def run(self) -> Any:
        calls = list(self.calls)
        if self.connection is None or self.done != len(calls) - 1:
            self.close()
            self.connection = _wait(_connect(self.target), START_S)
            _wait(self.connection.ready(), START_S)
            for call in calls[:-1] if self.repeats else ():
                _wait(_call(self.connection, *call), 3 * self.timeout_s)
        try:
            text: str = _wait(_call(self.connection, *calls[-1]), self.timeout_s)
        except BaseException:
            self.close()  # what the server did of it is not known
            raise
        self.done = len(calls)
        return text[:LONGEST]

    def text_of(self, result: Any) -> str:
        if result is None:
            self.calls.pop()  # never made, for what comes later
            return ""
        return str(result)

    def close(self) -> None:
        connection, self.connection, self.done = self.connection, None, 0
        if connection is not None:
            asyncio.run_coroutine_threadsafe(connection.close(), _loop())


class Mcp(Equipment):
    """`tools: [{mcp: {command: [python, server.py]}}]`, or `{mcp: {url: ADDRESS}}`."""

    def __init__(
        self,
        command: Sequence[str] | None = None,
        url: str | None = None,
        timeout_s: float = 30.0,
        uses: int = 5,
        reward: float = 0.0,
    ) -> None:
        """Asks the server for its tools. Raises ConfigError where it does not answer."""
        try:
            from mcp import StdioServerParameters
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"mcp: there is no module {error.name!r}; {install('mcp')}"
            ) from error
        self.timeout_s, self.uses, self.reward = timeout_s, uses, reward
        self.repeats = bool(command)
        # without `env` the SDK hands the process the path and the home, and no keys
        self.target = (
            StdioServerParameters(command=command[0], args=list(command[1:])) if command else url
        )
        try:
            self.tools = tuple(_wait(_tools(self.target), START_S))
        except Exception as error:
            name = " ".join(command) if command else url
            raise ConfigError(f"mcp: {name} gives no list of tools ({error})") from error

    def open(self) -> Session:
        return Session(self.target, self.timeout_s, self.repeats)
