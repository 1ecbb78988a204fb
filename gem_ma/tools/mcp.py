"""The tools of a server that speaks the Model Context Protocol, by its official SDK: started as a
process of the play's own, or reached by HTTP.

A server that is started here has a state of each play: a fork starts one of its own and repeats
the calls so far when it goes on. A server behind an address is shared, and no call is repeated.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from gem_ma.engines.endpoint.endpoint import Endpoint, Secret
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Tool
from gem_ma.system.env_file import NO_SECRET
from gem_ma.system.extras import install
from gem_ma.tools.belt import Equipment, Holders, Use

# A connection to a server of the Model Context Protocol, and what is asked on it.
# All connections live on one loop, on a thread of its own. Whatever a server does comes to a text,
# or to an error in one line.

MOST_PAGES = 32  # of a list of tools: a server may name a next page for ever
LONGEST = 8_000  # characters of a result
EXCERPT = 300  # characters of a server's complaint
CLOSE_S = 8.0  # the SDK gives a server 2 s to end, and 2 s more after a signal
EXIT_S = 3.0  # at the end of the program, for servers that clean up; their keeper ends the others
OPEN: set[Connection] = set()
# words of the SDK
FORGOTTEN = "Session terminated"  # by a server that was started anew: it has not taken the call
NO_STATUS = "Server returned an error response"
# the SDK tells every line that is not a message with a traceback, on stderr where nobody listens
logging.getLogger("mcp").addHandler(logging.NullHandler())


class McpError(Exception):
    """The server gave no result, in one line."""


@dataclass(frozen=True)
class Target:
    """Where a server is: a command that starts it, or its address."""

    command: tuple[str, ...] = ()
    url: str = ""
    key_name: str = ""  # variable that holds its key
    key: Secret = field(default_factory=lambda: Secret(""))
    mode: str = "auto"  # how the SDK finds out which version is spoken

    def __str__(self) -> str:
        return " ".join(self.command) or self.url


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The loop of this process: a forked one inherits no thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="gem_ma mcp", daemon=True).start()
    atexit.register(_end, process)
    return loop


def begin(work: Coroutine[Any, Any, Any]) -> Any:
    """Starts work on the loop; gives its future."""
    return asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))


def wait(work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
    """What the work comes to. Raises McpError where it takes longer."""

    async def limited() -> Any:
        async with asyncio.timeout(timeout_s):
            return await work

    try:
        return begin(limited()).result()
    except TimeoutError:
        raise McpError(late(timeout_s)) from None


def late(timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s"


def _end(process: int) -> None:
    if process == os.getpid() and OPEN:

        async def closed() -> None:
            await asyncio.gather(*(each.close() for each in list(OPEN)))

        with suppress(Exception):
            wait(closed(), EXIT_S)


class Connection:
    """A client, in a task that opens and closes it: the SDK wants both in the same one."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.error = "the server ended"
        self.odd = ""
        self.words = b""
        self.opened = asyncio.Event()
        self.left = asyncio.Event()
        self.client: Any = None
        self.status = 0  # of the last answer by HTTP that was a fault
        self.pipe: int | None = None
        OPEN.add(self)
        self.task = asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        from mcp import Client

        try:
            transport = self._started() if self.target.command else self._reached()
            async with Client(
                transport, mode=self.target.mode, message_handler=self._heard
            ) as client:
                self.client = client
                self.opened.set()
                await self.left.wait()
        except Exception as error:
            self.error = self.why(error)
        finally:
            self.client = None
            self.opened.set()
            OPEN.discard(self)

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[Any]:
        """The server behind an address."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        near = urlsplit(self.target.url).hostname in ("127.0.0.1", "localhost", "::1")
        key = self.target.key.value
        headers = {"authorization": f"Bearer {key}"} if self.target.key_name else {}
        # each call has a limit of its own
        times = httpx2.Timeout(30.0, read=None)
        more = {"event_hooks": {"response": [self._answered]}, "trust_env": not near}
        # a proxy of the environment would be asked for servers of this machine too
        async with (
            httpx2.AsyncClient(headers=headers, timeout=times, **more) as http,
            streamable_http_client(self.target.url, http_client=http) as streams,
        ):
            yield streams

    async def _answered(self, response: Any) -> None:
        if response.status_code >= 400:
            self.status = response.status_code

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Any]:
        """The server's process, whose last words on stderr are kept."""
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        keeper = [str(Path(__file__).with_name("keeper.py")), str(os.getpid())]
        started = StdioServerParameters(
            command=sys.executable,
            args=["-I", "-S", *keeper, *self.target.command],
            env={name: self.target.key.value} if (name := self.target.key_name) else None,
            # a byte that is not UTF-8 spoils its own line, and no other one
            encoding_error_handler="replace",
        )
        self.pipe, theirs = os.pipe()
        os.set_blocking(self.pipe, False)
        asyncio.get_running_loop().add_reader(self.pipe, self._listen)
        try:
            with os.fdopen(theirs, "w") as errors:
                async with stdio_client(started, errors) as streams:
                    yield streams
        finally:
            self._listen()
            pipe = self.pipe
            self.pipe = None
            asyncio.get_running_loop().remove_reader(pipe)
            os.close(pipe)

    def _listen(self) -> None:
        if self.pipe is not None:
            with suppress(BlockingIOError):
                words = os.read(self.pipe, 65_536)
                self.words = (self.words + words)[-2_000:]
                if not words:  # a pipe at its end can always be read
                    asyncio.get_running_loop().remove_reader(self.pipe)

    async def _heard(self, message: Any) -> None:
        if isinstance(message, Exception):  # not a message; it may have been an answer
            odd = _short(message)[:EXCERPT]
            self.odd = f"; it sent something that is not a message: {odd}"

    async def ready(self) -> Any:
        """The open client. Raises McpError where there is none."""
        await self.opened.wait()
        if self.client is None:
            raise McpError(self.error)
        return self.client

    async def close(self) -> None:
        """Ends the connection, and the server where it was started."""
        self.left.set()
        # never cancelled before: the SDK would leave the process behind
        await asyncio.wait([self.task], timeout=CLOSE_S)
        self.task.cancel()

    def why(self, error: BaseException) -> str:
        """A fault in one line, with the server's last word where it ended."""
        while isinstance(error, BaseExceptionGroup):  # "1 sub-exception" says nothing
            error = error.exceptions[0]
        text = _short(error)
        if text == NO_STATUS:
            hint = "; is its key named by api_key_env?" if self.status in (401, 403) else ""
            return f"the server answered {self.status}{hint}"
        if text != "Connection closed":
            return self.target.key.hide(text)[:EXCERPT]
        self._listen()
        lines = [
            line for line in self.words.decode("utf-8", "replace").splitlines() if line.strip()
        ]
        told = [line for line in lines if "error" in line.casefold()] or lines
        return f"the server ended{(told and f': {_line(told[-1])[:EXCERPT]}') or ''}"


def _line(text: str) -> str:
    line = " ".join(clean(text).split())
    return "".join(char if char.isprintable() else "?" for char in line)


def _short(error: BaseException) -> str:
    """Of pydantic's lists the first fault; of anything else its first paragraph."""
    from mcp import MCPError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return _line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": "))
    text = _line(str(error).split("\n\n")[0])
    return text if isinstance(error, MCPError | McpError) else f"{type(error).__name__}: {text}"


async def connect(target: Target) -> Connection:
    """A connection that is being opened."""
    return Connection(target)


async def call(connection: Connection, name: str, arguments: Mapping[str, Any]) -> str:
    """The text of a result, or of an error that the server answers. Raises McpError where the
    server has ended."""
    client = await connection.ready()
    try:
        result = await client.call_tool(name, dict(arguments))
    except Exception as error:
        # a server that lives has taken the call, whatever became of it
        why = connection.why(error)
        if why.startswith("the server ended") or why == FORGOTTEN:
            raise McpError(why) from None
        return f"Error: {why}"
    parts = [_text(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = connection.target.key.hide("\n".join(parts))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n[{len(text) - LONGEST} characters more]"
    return f"Error: {text or 'the tool says no more'}" if result.is_error else text


def _text(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    resource = getattr(part, "resource", part)
    if isinstance(text := getattr(resource, "text", None), str):
        return text
    where = getattr(resource, "uri", None)
    return f"[{part.type}{f' {where}' if where else ''}]"


async def tools_of(target: Target, timeout_s: float) -> tuple[list[Tool], str]:
    """A server's tools, and the mode in which it is met next time. Raises McpError."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    connection = Connection(target)
    try:
        async with asyncio.timeout(timeout_s):
            client = await connection.ready()
            tools = []
            cursor = None
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [Tool(t.name, t.description or "", t.input_schema) for t in page.tools]
                cursor = page.next_cursor
                if not cursor:
                    break
        # an old server may leave the question for newer versions unanswered, 10 s each time
        old = client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        return tools, "legacy" if old else "auto"
    except TimeoutError:
        raise McpError(late(timeout_s) + connection.odd) from None
    except Exception as error:
        raise McpError(connection.why(error) + connection.odd) from None
    finally:
        await connection.close()


START_S = 60.0  # until a server has started and named its tools, at least
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # of a tool, as the protocol has it
MOST_DEEP = 64  # objects and lists inside each other in a schema
MOST_TOLD = 256 << 10  # bytes of all schemas: every prompt holds them
HOLDERS = Holders(32)


class Session(Use):
    """The calls of a play, and a connection on which those in `made` were made."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.target = target
        self.timeout_s = timeout_s
        self.repeats = bool(target.command)
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.made: list[tuple[str, Mapping[str, Any]]] = []
        self.connection: Connection | None = None
        self.closed = False
        # a call that nobody waits for any more may still be under way when the next one comes
        self.busy = threading.Lock()

    def plan(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.calls.append((name, arguments))

    def run(self) -> Any:
        *before, last = self.calls
        with self.busy:
            if self.closed:
                raise McpError("the play is over")
            if self.connection is None or (self.repeats and self.made != before):
                self._open()
                for each in before if self.repeats else ():
                    self._call(each, 3 * self.timeout_s)  # it has ended in its time before
            try:
                return self._call(last, self.timeout_s)
            except McpError as error:
                if FORGOTTEN not in str(error):
                    raise
            self._open()
            return self._call(last, self.timeout_s)

    def _open(self) -> None:
        self.release()
        self.connection = wait(connect(self.target), START_S)
        if self.repeats:
            HOLDERS.enter(self)

    def _call(self, made: tuple[str, Mapping[str, Any]], timeout_s: float) -> Any:
        connection = self.connection
        if connection is None:
            raise McpError("it was left")
        try:
            if not self.made:
                wait(connection.ready(), max(START_S, self.timeout_s))
            text = wait(call(connection, *made), timeout_s)
        except BaseException as error:
            self.release()  # what the server did of it is not known
            if isinstance(error, McpError):
                raise McpError(f"{error}{connection.odd}") from None
            raise
        self.made.append(made)
        return text

    def text_of(self, result: Any) -> str:
        if result is None:
            self.calls.pop()  # never made, for what comes later
            self.release()
            return ""
        return str(result)

    def release(self) -> None:
        """Ends the connection, with its server; the calls stay."""
        connection = self.connection
        self.connection = None
        self.made = []
        HOLDERS.leave(self)
        if connection is not None:
            begin(connection.close())

    def close(self) -> None:
        self.closed = True
        self.release()


class Mcp(Equipment):
    """`tools: [{mcp: {command: [python, server.py]}}]`, or `{mcp: {url: ADDRESS}}`."""

    def __init__(
        self,
        command: Sequence[str] = (),
        url: str | None = None,
        *,
        api_key_env: str | None = None,
        only: Sequence[str] | None = None,
        timeout_s: float = 30.0,
        uses: int = 5,
        reward: float = 0.0,
    ) -> None:
        """Asks the server for its tools. Raises ConfigError where it gives none to use."""
        try:
            import mcp  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"mcp: there is no module {error.name!r}; {install('mcp')}"
            ) from error
        self.timeout_s = timeout_s
        self.uses = uses
        self.reward = reward
        target = _target(command, url, api_key_env)
        try:
            tools, mode = wait(
                tools_of(target, max(START_S, timeout_s)), 2 * max(START_S, timeout_s)
            )
        except McpError as error:
            raise ConfigError(f"mcp: {target} gives no list of tools ({error})") from error
        self.target = replace(target, mode=mode)
        self.tools = tuple(tool for tool in tools if only is None or tool.name in only)
        _check(target, tools, self.tools, only or ())

    def open(self) -> Session:
        return Session(self.target, self.timeout_s)


def _target(command: Sequence[str] | None, url: str | None, key_name: str | None) -> Target:
    if bool(command) == bool(url) or isinstance(command, str):
        raise ConfigError("mcp: wants a command, as a list of words, or a url")
    # a key in an address would be logged
    endpoint = Endpoint(base_url=url or "http://127.0.0.1", api_key_env=key_name)
    try:
        endpoint.checked("mcp", "/")
    except ConfigError as error:
        raise ConfigError(str(error).replace("base_url", "url")) from None
    secret = endpoint.key("mcp")
    # without a key the SDK hands a process the path and the home, and nothing else
    named = key_name if secret.value not in NO_SECRET else None
    return Target(tuple(command or ()), url or "", named or "", secret)


def _check(
    target: Target, everything: Sequence[Tool], tools: Sequence[Tool], only: Sequence[str]
) -> None:
    """Raises ConfigError where the tools cannot be offered to a model."""
    names = [tool.name for tool in everything]
    known = ", ".join(names[:20]) or "none"
    if missing := sorted(set(only) - set(names)):
        raise ConfigError(f"mcp: {target} has no tool called {missing[0]!r}; it has {known}")
    if not tools:
        raise ConfigError(f"mcp: {target} offers no tools")
    size = 0
    for tool in tools:
        if not NAME.fullmatch(tool.name):
            raise ConfigError(
                f"mcp: {target} has a tool called {ascii(tool.name)[:80]}; a name is 1 to 128 of"
                " A-Z, a-z, 0-9, _, . and -. `only: [NAME]` takes others alone"
            )
        if names.count(tool.name) > 1:
            raise ConfigError(f"mcp: {target} has two tools called {tool.name}")
        if _depth(tool.parameters) > MOST_DEEP:
            raise ConfigError(
                f"mcp: {target}: the schema of {tool.name} is nested deeper than {MOST_DEEP} times"
            )
        try:
            size += len(json.dumps(tool.schema, allow_nan=False))
        except ValueError as error:
            what = f"the schema of {tool.name} is no JSON"
            raise ConfigError(f"mcp: {target}: {what} ({error})") from None
    if size > MOST_TOLD:
        raise ConfigError(
            f"mcp: {target}: its {len(tools)} tools take {size >> 10} KiB of a prompt, of"
            f" {MOST_TOLD >> 10} at most; `only: [NAME]` takes some of them"
        )


def _depth(value: Any) -> int:
    layers = 0
    layer = [value]
    while layer:
        inner = [node.values() if isinstance(node, Mapping) else node for node in layer]
        layer = [
            node for nodes in inner for node in nodes if isinstance(node, (Mapping, list, tuple))
        ]
        layers += 1
    return layers
