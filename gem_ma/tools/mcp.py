"""The tools of a server that speaks the Model Context Protocol, by its official SDK: started as a
process of the play's own, or reached by HTTP.

A server that is started here has a state of each play: a fork starts one of its own and repeats
the calls so far when it goes on. A server behind an address is shared, and no call is repeated.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gem_ma.engines.api.endpoint import Endpoint
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Tool
from gem_ma.system.env_file import NO_SECRET
from gem_ma.system.extras import install
from gem_ma.tools.belt import Equipment, Use
from gem_ma.tools.connection import (
    FORGOTTEN,
    Connection,
    McpError,
    Target,
    begin,
    call,
    connect,
    tools_of,
    wait,
)

START_S = 60.0  # until a server has started and named its tools, at least
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # of a tool, as the protocol has it
MOST_DEEP = 64  # objects and lists inside each other in a schema
MOST_TOLD = 256 << 10  # bytes of all schemas: every prompt holds them
# sessions with a process; the oldest gives its own up, and is built again when it is needed
MOST_LIVE = 32
_LIVE: list[Session] = []
_LOCK = threading.Lock()


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
            _enter(self)

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
        with _LOCK, suppress(ValueError):
            _LIVE.remove(self)
        if connection is not None:
            begin(connection.close())

    def close(self) -> None:
        self.closed = True
        self.release()


def _enter(session: Session) -> None:
    with _LOCK:
        _LIVE.append(session)
        others = _LIVE[:-1] if len(_LIVE) > MOST_LIVE else []
    for other in others:
        if other.busy.acquire(blocking=False):
            try:
                other.release()
            finally:
                other.busy.release()
            return


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
